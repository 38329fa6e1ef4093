"""Layouts that nobody knows, and two in one folder."""

from pathlib import Path

import pytest

from diagnose.checkpoint.find import inspect
from tests.checkpoint.make import deepspeed
from tests.checkpoint.make.base import filler, torch_file, write

T = 1.7e9
UNKNOWN = "unknown layout: what is missing cannot be determined"


@pytest.mark.parametrize("name", ["checkpoint-500", "epoch_500", "global_step500", "Step=500"])
@pytest.mark.parametrize("file", ["arrays.npz", "d/model.msgpack", "model.data-00000-of-00001"])
def test_a_folder_named_like_a_checkpoint(tmp_path: Path, name: str, file: str) -> None:
    write(tmp_path / name / file, filler(5000), T)
    for path in (tmp_path, tmp_path / name):
        (found,) = inspect([str(path)]).checkpoints
        assert (found.layout, found.step, found.state) == ("unknown", 500, "unknown")
        assert found.reasons == [UNKNOWN]


def test_damage_in_it_is_told_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "step-5/part0.pt", torch_file(content={"a": 1})[:-30], T)
    write(tmp_path / "step-5/part1.npz", filler(100), T)
    (found,) = inspect([str(tmp_path / "step-5")]).checkpoints
    assert found.state == "partial"
    assert found.reasons[0].startswith("part0.pt: ends before its table of contents")


@pytest.mark.parametrize(
    "file", ["step-5/train.log", "data/a.npz", "step-5/plot.png", "epoch/a.npz"]
)
def test_other_folders_are_none(tmp_path: Path, file: str) -> None:
    write(tmp_path / file, filler(5000), T)
    assert inspect([str(tmp_path)]).checkpoints == []


def test_two_layouts_in_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "global_step10"
    deepspeed.MAKERS["deepspeed-zero2"](folder, step=10, world=2, start=T)
    write(folder / "__0_0.distcp", filler(500), T + 1)
    (found,) = inspect([str(tmp_path)]).checkpoints
    assert found.state == "unknown"
    assert found.reasons == [
        "mixes files of PyTorch DCP and DeepSpeed: unclear which save they belong to"
    ]
