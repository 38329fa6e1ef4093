"""Checkpoints of transformers' Trainer, alone and beside each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family, remove
from tests.checkpoint.make import hf
from tests.checkpoint.make.base import json_bytes, torch_file, write

HF_TRAINER = Family("Hugging Face Trainer")

T = 1_750_000_000.0
NAME = "checkpoint-200"


def tree(path: Path) -> Folder:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    return folder


def judge(path: Path) -> Checkpoint:
    found = HF_TRAINER.read(tree(path), Looker())
    assert found is not None
    return judged(found)


def run_of(path: Path) -> dict[str, Checkpoint]:
    run, look = tree(path), Looker()
    found = [one for inside in run.folders.values() if (one := HF_TRAINER.read(inside, look))]
    found.sort(key=lambda one: one.step or 0)
    HF_TRAINER.compare(run, found)
    return {one.name: judged(one) for one in found}


def made(path: Path, maker: str = "hf-trainer", *, world: int = 4, **variant: Any) -> Path:
    hf.MAKERS[maker](path / NAME, step=200, world=world, start=T, **variant)
    return path / NAME


TRAINERS = [maker for maker in hf.MAKERS if maker.startswith("hf-trainer")]


@pytest.mark.parametrize("world", [1, 4])
@pytest.mark.parametrize("maker", TRAINERS)
def test_what_the_makers_write_is_whole(tmp_path: Path, maker: str, world: int) -> None:
    checkpoint = judge(made(tmp_path, maker, world=world))
    assert (checkpoint.state, checkpoint.reasons) == ("whole", [])
    assert (checkpoint.step, checkpoint.layout, checkpoint.framework) == (
        200, "Hugging Face Trainer", "transformers",
    )  # fmt: skip
    assert checkpoint.ranks == (None if maker == "hf-trainer-model-only" else world)


WRITTEN_LAST = "missing: it is written last"
THREE_OF_FOUR = "missing: 3 of 4 ranks wrote theirs"


@pytest.mark.parametrize(
    ("maker", "gone", "reasons"),
    [
        (
            "hf-trainer-sharded",
            "model-00003-of-00003.safetensors",
            ["model-00003-of-00003.safetensors: missing: 2 of 3 shards exist"],
        ),
        (
            "hf-trainer-deepspeed-zero3",
            "global_step200",
            ["global_step200: missing: DeepSpeed keeps the optimizer there",
             "model.safetensors: missing: there are no model weights"],
        ),
        ("hf-trainer-fsdp-sharded", "optimizer_0", ["optimizer_0: missing: FSDP's model exists"]),
        (
            "hf-trainer-fsdp-sharded",
            "pytorch_model_fsdp_0",
            ["pytorch_model_fsdp_0: missing: FSDP's optimizer exists"],
        ),
        (
            "hf-trainer-fsdp-sharded",
            "optimizer_0/.metadata",
            ["optimizer_0/.metadata: missing: it is written last, so this save never finished"],
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    tmp_path: Path, maker: str, gone: str, reasons: list[str]
) -> None:
    path = made(tmp_path, maker)
    remove(path / gone)
    checkpoint = judge(path)
    assert (checkpoint.state, checkpoint.reasons) == ("partial", reasons)


def test_a_save_that_ended_after_the_model(tmp_path: Path) -> None:
    path = made(tmp_path)
    for file in path.iterdir():
        if file.name.startswith(("optimizer", "scheduler", "rng", "trainer_state")):
            file.unlink()
    assert judge(path).reasons == [f"trainer_state.json: {WRITTEN_LAST}"]


def test_a_save_that_ended_before_anything_was_written(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    checkpoint = judge(tmp_path / NAME)
    assert (checkpoint.state, checkpoint.reasons) == ("partial", ["nothing was written to it"])


def test_a_temporary_folder_that_was_not_renamed(tmp_path: Path) -> None:
    path = made(tmp_path).rename(tmp_path / f"tmp-{NAME}")
    checkpoint = judge(path)
    assert (checkpoint.state, checkpoint.step, checkpoint.reasons) == (
        "partial", 200, ["temporary name: the save ended before the final rename"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (hf.trainer_state(100), "says step 100"),
        (json_bytes({"epoch": 1.0}), "has no global_step"),
        (json_bytes({"global_step": True}), "has no global_step"),
        (json_bytes([1]), "has no global_step"),
    ],
)
def test_a_state_of_another_step_is_corrupt(tmp_path: Path, data: bytes, reason: str) -> None:
    path = made(tmp_path)
    write(path / "trainer_state.json", data, T)
    checkpoint = judge(path)
    assert (checkpoint.state, checkpoint.reasons) == (
        "corrupt", [f"trainer_state.json: {reason}"]
    )  # fmt: skip


def test_a_marker_of_deepspeed_that_points_nowhere_is_corrupt(tmp_path: Path) -> None:
    path = made(tmp_path, "hf-trainer-deepspeed-zero2")
    write(path / "latest", b"global_step100", T)
    checkpoint = judge(path)
    assert (checkpoint.state, checkpoint.reasons) == (
        "corrupt", ["latest: names global_step100, which does not exist"]
    )  # fmt: skip


def test_one_numbered_random_state_is_of_at_least_two_ranks(tmp_path: Path) -> None:
    """The only process of a job writes rng_state.pth."""
    path = made(tmp_path, world=1)
    (path / "rng_state.pth").rename(path / "rng_state_0.pth")
    assert judge(path).reasons == ["rng_state_1.pth: missing: 1 of 2 ranks wrote theirs"]


def test_the_world_is_read_from_the_training_arguments(tmp_path: Path) -> None:
    path = made(tmp_path, world=300)
    for rank in range(280, 300):
        (path / f"rng_state_{rank}.pth").unlink()
    checkpoint = judge(path)
    assert checkpoint.ranks == 300
    assert checkpoint.reasons == [
        *(
            f"rng_state_{rank}.pth: missing: 280 of 300 ranks wrote theirs"
            for rank in range(280, 288)
        ),
        "missing: 12 more files like these",
    ]


def test_half_the_ranks_may_have_saved_elsewhere(tmp_path: Path) -> None:
    path = made(tmp_path, world=8)
    for rank in range(4):
        (path / f"rng_state_{rank}.pth").unlink()
    checkpoint = judge(path)
    assert checkpoint.state == "partial"
    assert checkpoint.reasons[0] == "rng_state_0.pth: missing: 4 of 8 ranks wrote theirs"
    assert checkpoint.notes == ["hosts that save to a local disk keep their own ranks' files"]


def _without_args(path: Path) -> None:
    (path / "training_args.bin").unlink()


def _reward_model(path: Path) -> None:
    (path / "generation_config.json").unlink()
    write(path / "value_head.bin", torch_file(content={"v": 1}), T)


def _half_precision(path: Path) -> None:
    write(path / "scaler.pt", torch_file(content={"scale": 65536.0}), T)


def _files_of_the_user(path: Path) -> None:
    write(path / "README.md", b"", T)
    write(path / "eval_results.json", b"", T)
    write(path / "notes/todo.txt", b"", T)
    write(path / "user_content.pt", b"", T)


def _second_adapter(path: Path) -> None:
    hf.adapter(path / "second", step=200, start=T)


def _old_order(path: Path) -> None:
    """Before 4.37 the random states came after the state of the Trainer."""
    for rank in range(4):
        file = path / f"rng_state_{rank}.pth"
        write(file, file.read_bytes(), T + 60)


@pytest.mark.parametrize(
    "change",
    [
        _without_args, _reward_model, _half_precision, _files_of_the_user, _second_adapter,
        _old_order,
    ],
)  # fmt: skip
def test_what_is_normal_stays_whole(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = made(tmp_path)
    change(path)
    checkpoint = judge(path)
    assert (checkpoint.state, checkpoint.reasons) == ("whole", [])


def test_modules_of_sentence_transformers_are_the_model(tmp_path: Path) -> None:
    path = made(tmp_path)
    for name in ("model.safetensors", "config.json", "generation_config.json"):
        (path / name).unlink()
    hf.model(path / "0_Transformer", step=200, start=T)
    assert judge(path).state == "whole"


def test_a_checkpoint_under_another_name_is_told_by_its_files(tmp_path: Path) -> None:
    path = made(tmp_path).rename(tmp_path / "last-checkpoint")
    checkpoint = judge(path)
    assert (checkpoint.state, checkpoint.step) == ("whole", 200)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("final", ["config.json", "model.safetensors", "trainer_state.json", "training_args.bin"]),
        ("checkpoint-5", ["model.safetensors", "random_states_0.pkl", "scheduler.bin"]),
        ("checkpoint-5", ["results.csv"]),
        ("checkpoint-5", ["config.json", "model.safetensors"]),
        ("checkpoint-5x", ["optimizer.pt"]),
        ("empty", []),
    ],
)
def test_other_folders_are_none(tmp_path: Path, name: str, files: list[str]) -> None:
    (tmp_path / name).mkdir()
    for file in files:
        write(tmp_path / name / file, b"{}", T)
    assert HF_TRAINER.read(tree(tmp_path / name), Looker()) is None


def three(path: Path, worlds: tuple[int, ...] = (4, 4, 4), **variant: Any) -> None:
    for number, world in enumerate(worlds, 1):
        step = 100 * number
        folder = path / f"checkpoint-{step}"
        hf.trainer(folder, step=step, world=world, start=T + 900 * number, **variant)
        (folder / "training_args.bin").unlink()  # old ones do not tell the world


def test_the_last_rank_is_missed_beside_a_checkpoint_that_has_it(tmp_path: Path) -> None:
    three(tmp_path, (4, 4, 3))
    found = run_of(tmp_path)
    assert [one.state for one in found.values()] == ["whole", "whole", "partial"]
    last = found["checkpoint-300"]
    assert last.reasons == [f"rng_state_3.pth: {THREE_OF_FOUR}"]
    assert last.notes == ["checkpoint-200 was saved by 4 ranks, this one by 3"]


@pytest.mark.parametrize(
    ("worlds", "partial"),
    [
        ((4, 3, 4), [200]),
        ((3, 4, 4), [100]),
        ((4, 4, 4), []),
        ((8, 4, 4), []),  # restarted on half as many
        ((2, 4, 4), []),  # restarted on twice as many
        ((8, 8, 7, 7), []),
        ((8, 8, 6, 7), []),
    ],
)
def test_a_restart_on_other_ranks_is_no_damage(
    tmp_path: Path, worlds: tuple[int, ...], partial: list[int]
) -> None:
    three(tmp_path, worlds)
    assert [one.step for one in run_of(tmp_path).values() if one.state != "whole"] == partial


def test_a_plan_of_other_steps_tells_a_restart(tmp_path: Path) -> None:
    """With epochs to train, half the ranks need twice the steps."""
    three(tmp_path, (8, 8))
    hf.trainer(tmp_path / "checkpoint-300", step=300, world=4, start=T + 9000, max_steps=2000)
    (tmp_path / "checkpoint-300/training_args.bin").unlink()
    assert {one.state for one in run_of(tmp_path).values()} == {"whole"}


def test_training_arguments_tell_a_restart(tmp_path: Path) -> None:
    three(tmp_path, (8, 8))
    hf.trainer(tmp_path / "checkpoint-300", step=300, world=4, start=T + 9000)
    assert {one.state for one in run_of(tmp_path).values()} == {"whole"}


def test_no_random_state_at_all_is_named_as_the_others_are(tmp_path: Path) -> None:
    three(tmp_path, (2, 2, 2))
    for rank in range(2):
        (tmp_path / f"checkpoint-300/rng_state_{rank}.pth").unlink()
    assert run_of(tmp_path)["checkpoint-300"].reasons == [
        "rng_state_0.pth: missing: 0 of 2 ranks wrote theirs",
        "rng_state_1.pth: missing: 0 of 2 ranks wrote theirs",
    ]


def test_settings_that_no_checkpoint_of_the_run_has_are_not_needed(tmp_path: Path) -> None:
    three(tmp_path, what=partial(hf.model, tokenizer=False))
    for number in (1, 2, 3):
        (tmp_path / f"checkpoint-{number}00/generation_config.json").unlink()
    (tmp_path / "checkpoint-100/config.json").unlink()
    first = run_of(tmp_path)["checkpoint-100"]
    assert (first.state, first.reasons) == (
        "unknown", ["config.json: missing: from_pretrained needs it"]
    )  # fmt: skip
    for number in (2, 3):
        (tmp_path / f"checkpoint-{number}00/config.json").unlink()
    found = run_of(tmp_path)
    assert {one.state for one in found.values()} == {"whole"}
    assert found["checkpoint-100"].notes == ["no config.json: this is not a transformers model"]


def test_a_best_checkpoint_that_is_gone_is_a_note(tmp_path: Path) -> None:
    three(tmp_path, (2, 2), best="/scratch/out/checkpoint-50")
    found = run_of(tmp_path)
    assert {one.state for one in found.values()} == {"whole"}
    assert found["checkpoint-100"].notes == []
    assert found["checkpoint-200"].notes == ["the best checkpoint was checkpoint-50, which is gone"]
