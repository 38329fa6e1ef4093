"""Checkpoints of Lightning that are folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family, remove
from tests.checkpoint.make.base import torch_file, write
from tests.checkpoint.make.lightning import MAKERS, content

LIGHTNING = Family("Lightning")

T = 1_750_000_000.0
NAME = "epoch=0-step=200.ckpt"
META = torch_file(content=content(100, sharded=True), archive="meta")


def judge(path: Path) -> Checkpoint | None:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    found = LIGHTNING.read(folder, Looker())
    return judged(found) if found else None


def made(path: Path, maker: str, name: str = NAME) -> Path:
    MAKERS[maker](path / name, step=200, world=4, start=T)
    return path / name


@pytest.mark.parametrize("maker", ["lightning-fsdp", "lightning-deepspeed"])
def test_what_the_makers_write_is_whole(tmp_path: Path, maker: str) -> None:
    checkpoint = judge(made(tmp_path, maker))
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == ("whole", [])
    assert (checkpoint.step, checkpoint.ranks, checkpoint.layout, checkpoint.framework) == (
        200, 4, "Lightning", "lightning",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("maker", "gone", "reasons"),
    [
        ("lightning-fsdp", "meta.pt", ["meta.pt: missing: it is written last"]),
        (
            "lightning-fsdp",
            ".metadata",
            [".metadata: missing: it is written last, so this save never finished"],
        ),
        ("lightning-fsdp", "__3_0.distcp", ["__3_0.distcp: missing: the metadata names it"]),
        (
            "lightning-deepspeed",
            "checkpoint",
            ["checkpoint: missing: DeepSpeed keeps the model and optimizer there"],
        ),
        (
            "lightning-deepspeed",
            "latest",
            ["latest: missing: it is written when a save is complete"],
        ),
        (
            "lightning-deepspeed",
            "checkpoint/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
            ["checkpoint/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt: missing: optimizer "
             "states of 3 of 4 ranks exist"],
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    tmp_path: Path, maker: str, gone: str, reasons: list[str]
) -> None:
    path = made(tmp_path, maker)
    remove(path / gone)
    checkpoint = judge(path)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == ("partial", reasons)


def test_nothing_but_the_rest_of_the_state(tmp_path: Path) -> None:
    write(tmp_path / "last.ckpt/meta.pt", META, T)
    checkpoint = judge(tmp_path / "last.ckpt")
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == (
        "partial", [".metadata: missing: it is written last, so this save never finished"]
    )  # fmt: skip


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    checkpoint = judge(tmp_path / NAME)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == ("partial", ["nothing was written to it"])


def test_a_state_of_another_step_is_corrupt(tmp_path: Path) -> None:
    path = made(tmp_path, "lightning-fsdp")
    write(path / "meta.pt", META, T + 10)
    checkpoint = judge(path)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == ("corrupt", ["meta.pt: says step 100"])


def test_the_step_is_read_where_the_name_has_none(tmp_path: Path) -> None:
    checkpoint = judge(made(tmp_path, "lightning-fsdp", "last-v1.ckpt"))
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.step) == ("whole", 200)


def test_fabric_calls_folders_as_it_is_told(tmp_path: Path) -> None:
    checkpoint = judge(made(tmp_path, "lightning-fsdp", "state"))
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.step, checkpoint.layout) == ("whole", 200, "Lightning")


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("step-5", [".metadata", "__0_0.distcp"]),
        ("model.ckpt", ["weights/common.pt", "context/io.json"]),
        ("model.ckpt", ["variables.index"]),
        ("out", ["meta.pt"]),
    ],
)
def test_other_folders_are_none(tmp_path: Path, name: str, files: list[str]) -> None:
    for file in files:
        write(tmp_path / name / file, b"", T)
    assert judge(tmp_path / name) is None
