"""Damage that shows only beside the other checkpoints of a run, or where little is left."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.model import Checkpoint
from tests.checkpoint.make import hf
from tests.checkpoint.make.base import Tensor, torch_file, write
from tests.checkpoint.mutate import make_run, makers, name_of

BEGIN = 1_700_000_000.0
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n"


def made(run: Path, maker: str = "hf-trainer") -> Path:
    make_run(maker, run)
    return run


def judge(run: Path) -> dict[str, tuple[str, list[str]]]:
    """What is not whole: state and reasons by name."""
    found = inspect([str(run)]).checkpoints
    return {told(one): (one.state, one.reasons) for one in found if one.state != "whole"}


def told(one: Checkpoint) -> str:
    return one.path.rpartition("/")[2]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
def test_a_file_changed_later_is_not_blamed_on_the_next_checkpoint(
    tmp_path: Path, name: str
) -> None:
    run = made(tmp_path)
    write(run / "checkpoint-200" / name, b"", BEGIN + 1e8)
    assert judge(run) == {"checkpoint-200": ("partial", [f"{name}: is empty"])}


@pytest.mark.parametrize("maker", makers())
def test_a_folder_in_which_nothing_was_written(tmp_path: Path, maker: str) -> None:
    run = made(tmp_path, maker)
    last = name_of(maker, 300)
    if (run / last).is_file():
        pytest.skip("a checkpoint of one file")
    shutil.rmtree(run / last)
    (run / last).mkdir()
    for marker in run.glob("latest*"):
        marker.write_text(marker.read_text().replace("300", "200"))
    assert judge(run)[last][0] == "partial"
    back = inspect([str(run)]).resume
    assert back is not None
    assert told_path(back.path) == name_of(maker, 200)


def told_path(path: str) -> str:
    return path.rpartition("/")[2]


def test_settings_without_weights_beside_whole_models(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        folder = tmp_path / f"step_{step}"
        hf.MAKERS["hf-model"](folder, step=step, world=1, start=BEGIN + step)
        (folder / "generation_config.json").unlink()
    (tmp_path / "step_200/model.safetensors").unlink()
    reasons = ["model.safetensors: missing: step_300 has it"]
    assert judge(tmp_path) == {"step_200": ("partial", reasons)}


def test_settings_that_all_others_have(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        folder = tmp_path / f"step_{step}"
        hf.MAKERS["hf-model"](folder, step=step, world=1, start=BEGIN + step)
    (tmp_path / "step_300/config.json").unlink()
    assert judge(tmp_path)["step_300"][0] == "partial"


def test_a_trainer_state_that_all_others_have(tmp_path: Path) -> None:
    run = made(tmp_path, "hf-trainer-model-only")
    (run / "checkpoint-300/trainer_state.json").unlink()
    reasons = judge(run)["checkpoint-300"][1]
    assert any(reason.startswith("trainer_state.json: missing") for reason in reasons)


@pytest.mark.parametrize("maker", ["hf-trainer-deepspeed-zero2", "lightning-deepspeed"])
def test_the_last_piece_of_an_optimizer(tmp_path: Path, maker: str) -> None:
    run = made(tmp_path, maker)
    last = run / name_of(maker, 300)
    piece = max(last.rglob("*zero_pp_rank_*_optim_states.pt"))
    piece.unlink()
    state, reasons = judge(run)[last.name]
    assert state == "partial"
    assert reasons[0].startswith(f"{piece.relative_to(last)}: missing")


@pytest.mark.parametrize("name", ["checkpoint_{}.pt", "model_{}.pth", "epoch=0-step={}.ckpt"])
@pytest.mark.parametrize(
    ("data", "state"),
    [
        (b"", "partial"),
        (b"P", "partial"),
        (b"\x80", "partial"),
        (POINTER, "partial"),
        (bytes(4096), "partial"),
        (b"<html><body>404", "corrupt"),
        (b"Not Found", "corrupt"),
        (bytes(range(64, 128)) * 20, "corrupt"),
    ],
)
def test_a_file_of_its_own_of_which_nothing_is_left(
    tmp_path: Path, name: str, data: bytes, state: str
) -> None:
    for step in (100, 200):
        content = {"state_dict": {"a.weight": Tensor((4,))}, "seed": step}
        write(tmp_path / name.format(step), torch_file(content=content), BEGIN + step)
    write(tmp_path / name.format(300), data, BEGIN + 300)
    judged = judge(tmp_path)
    assert list(judged) == [name.format(300)]
    assert judged[name.format(300)][0] == state


def test_a_file_of_its_own_that_is_that_of_another_step(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        content = {"state_dict": {"a.weight": Tensor((4,))}, "seed": step}
        write(tmp_path / f"model_{step}.pt", torch_file(content=content), BEGIN + step)
    shutil.copyfile(tmp_path / "model_200.pt", tmp_path / "model_300.pt")
    reasons = ["model_300.pt: has the same content as in model_200.pt"]
    assert judge(tmp_path) == {"model_300.pt": ("corrupt", reasons)}


@pytest.mark.parametrize("data", [b"Not Found", bytes(range(64, 128))])
def test_random_states_that_are_none(tmp_path: Path, data: bytes) -> None:
    run = made(tmp_path, "accelerate")
    path = run / "checkpoint_300/random_states_1.pkl"
    time = path.stat().st_mtime
    write(path, data, time)
    reasons = judge(run)["checkpoint_300"][1]
    assert reasons == ["random_states_1.pkl: is not a torch.save file"]


def test_a_file_left_with_its_time_from_the_checkpoint_before(tmp_path: Path) -> None:
    for step in (100, 200):
        folder = tmp_path / f"checkpoint-{step}"
        hf.MAKERS["hf-trainer"](folder, step=step, world=1, start=BEGIN + 6 * step)
    for name in ("optimizer.pt", "rng_state.pth"):
        old, new = (tmp_path / f"checkpoint-{step}" / name for step in (100, 200))
        shutil.copy2(old, new)
    why = "has the same age as in checkpoint-100: not written by this save"
    reasons = [f"{name}: {why}" for name in ("optimizer.pt", "rng_state.pth")]
    assert judge(tmp_path) == {"checkpoint-200": ("partial", reasons)}


def test_ranks_that_are_lost_where_the_state_of_the_trainer_is_too(tmp_path: Path) -> None:
    run = made(tmp_path)
    for name in ("trainer_state.json", "rng_state_3.pth"):
        (run / "checkpoint-300" / name).unlink()
    assert judge(run)["checkpoint-300"][1] == [
        "trainer_state.json: missing: it is written last",
        "rng_state_3.pth: missing: 3 of 4 ranks wrote theirs",
    ]


def test_times_that_only_one_checkpoint_has_out_of_order(tmp_path: Path) -> None:
    run = made(tmp_path)
    path = run / "checkpoint-300/optimizer.pt"
    time = path.stat().st_mtime
    os.utime(path, (time + 3 * 3600,) * 2)
    why = "changed 3 h after all other files: not written by this save"
    assert judge(run) == {"checkpoint-300": ("partial", [f"optimizer.pt: {why}"])}
