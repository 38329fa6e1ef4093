"""States that accelerate saved, alone and beside each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family, remove
from tests.checkpoint.make import hf
from tests.checkpoint.make.accelerate import MAKERS, make
from tests.checkpoint.make.base import safetensors_file, torch_file, write

ACCELERATE = Family("accelerate")

T = 1_750_000_000.0


def tree(path: Path) -> Folder:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    return folder


def judge(path: Path) -> Checkpoint:
    found = ACCELERATE.read(tree(path), Looker())
    assert found is not None
    return judged(found)


def run_of(path: Path) -> list[Checkpoint]:
    run, look = tree(path), Looker()
    found = [one for inside in run.folders.values() if (one := ACCELERATE.read(inside, look))]
    found.sort(key=lambda one: one.step or 0)
    ACCELERATE.compare(run, found)
    return [judged(one) for one in found]


def made(path: Path, maker: str, world: int = 4) -> Path:
    MAKERS[maker](path / "checkpoint_3", step=3, world=world, start=T)
    return path / "checkpoint_3"


@pytest.mark.parametrize("world", [1, 4])
@pytest.mark.parametrize("maker", MAKERS)
def test_what_the_makers_write_is_whole(tmp_path: Path, maker: str, world: int) -> None:
    checkpoint = judge(made(tmp_path, maker, world))
    assert (checkpoint.state, checkpoint.reasons, checkpoint.notes) == ("whole", [], [])
    assert (checkpoint.step, checkpoint.ranks, checkpoint.framework) == (3, world, "accelerate")


@pytest.mark.parametrize(
    ("maker", "gone", "reasons"),
    [
        ("accelerate-fsdp", "optimizer_0", ["optimizer_0: missing: FSDP's model exists"]),
        (
            "accelerate-fsdp",
            "pytorch_model_fsdp_0/.metadata",
            ["pytorch_model_fsdp_0/.metadata: missing: it is written last, so this save never "
             "finished"],
        ),
        (
            "accelerate-fsdp",
            "random_states_3.pkl",
            ["random_states_3.pkl: missing: 3 of 4 ranks wrote theirs"],
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


def test_a_save_that_ended_after_its_first_file(tmp_path: Path) -> None:
    write(tmp_path / "checkpoint_3/model.safetensors", safetensors_file(hf.MODEL), T)
    assert judge(tmp_path / "checkpoint_3").reasons == [
        "random_states_0.pkl: missing: 0 of 1 ranks wrote theirs"
    ]
    (tmp_path / "checkpoint_4").mkdir()
    assert judge(tmp_path / "checkpoint_4").reasons == ["nothing was written to it"]


@pytest.mark.parametrize(
    ("data", "state", "why"),
    [
        (b"", "partial", "is empty"),
        (b"PK", "partial", "is truncated within its first bytes"),
        (b"hello, world", "corrupt", "is not a torch.save file"),
    ],
)
def test_random_states_that_are_none(tmp_path: Path, data: bytes, state: str, why: str) -> None:
    path = made(tmp_path, "accelerate")
    write(path / "random_states_1.pkl", data, T)
    checkpoint = judge(path)
    assert (checkpoint.state, checkpoint.reasons) == (state, [f"random_states_1.pkl: {why}"])


def _models_by_hooks(path: Path) -> None:
    """Training scripts of diffusers."""
    (path / "model.safetensors").unlink()
    hf.weights(path / "unet", step=3, start=T, stem="diffusion_pytorch_model")
    write(path / "unet/config.json", b'{"_class_name": "UNet2DConditionModel"}', T)


def _lora_by_hooks(path: Path) -> None:
    (path / "model.safetensors").unlink()
    write(path / "pytorch_lora_weights.safetensors", safetensors_file(hf.LORA), T)


def _without_scheduler_and_sampler(path: Path) -> None:
    for name in ("scheduler.bin", "sampler.bin", "custom_checkpoint_0.pkl"):
        (path / name).unlink()


def _no_optimizer(path: Path) -> None:
    for name in ("scheduler.bin", "optimizer.bin"):
        (path / name).unlink()


def _more_samplers(path: Path) -> None:
    write(path / "sampler_1.bin", torch_file(content={"seed": 1}), T)
    write(path / "dl_state_dict.bin", torch_file(content={"seed": 1}), T)


@pytest.mark.parametrize(
    "change",
    [
        _models_by_hooks, _lora_by_hooks, _without_scheduler_and_sampler, _no_optimizer,
        _more_samplers,
    ],
)  # fmt: skip
def test_what_is_normal_stays_whole(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = made(tmp_path, "accelerate")
    change(path)
    checkpoint = judge(path)
    assert (checkpoint.state, checkpoint.reasons) == ("whole", [])


def test_models_by_hooks_are_judged_too(tmp_path: Path) -> None:
    path = made(tmp_path, "accelerate")
    _models_by_hooks(path)
    file = path / "unet/diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    checkpoint = judge(path)
    assert checkpoint.state == "partial"
    assert [reason.partition(":")[0] for reason in checkpoint.reasons] == [
        "unet/diffusion_pytorch_model.safetensors"
    ]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("checkpoint-5", ["optimizer.pt", "scheduler.pt", "rng_state.pth"]),
        ("checkpoint_5", ["model.safetensors", "config.json"]),
        ("checkpoint_5", [".metadata", "__0_0.distcp"]),
        ("epoch_1", ["model.safetensors"]),
        ("empty", []),
    ],
)
def test_other_folders_are_none(tmp_path: Path, name: str, files: list[str]) -> None:
    (tmp_path / name).mkdir()
    for file in files:
        write(tmp_path / name / file, b"", T)
    assert ACCELERATE.read(tree(tmp_path / name), Looker()) is None


def test_the_last_rank_is_missed_beside_a_checkpoint_that_has_it(tmp_path: Path) -> None:
    for number, world in enumerate((2, 2, 1)):
        path = tmp_path / f"checkpoint_{number}"
        make(path, step=number, world=world, start=T + 900 * number)
    found = run_of(tmp_path)
    assert [one.state for one in found] == ["whole", "whole", "partial"]
    assert found[2].reasons == ["random_states_1.pkl: missing: 1 of 2 ranks wrote theirs"]


def test_shards_of_fewer_ranks_tell_a_restart(tmp_path: Path) -> None:
    for number, world in enumerate((4, 4, 2)):
        path = tmp_path / f"checkpoint_{number}"
        MAKERS["accelerate-fsdp"](path, step=number, world=world, start=T + 900 * number)
    assert {one.state for one in run_of(tmp_path)} == {"whole"}
