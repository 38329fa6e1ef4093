"""Checkpoints of torchtune: one folder per epoch, the recipe's state beside them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family
from tests.checkpoint.make import hf
from tests.checkpoint.make.torchtune import MAKERS, make

TORCHTUNE = Family("torchtune")

T = 1_750_000_000.0
RECIPE = "../recipe_state/recipe_state.pt"


def tree(path: Path) -> Folder:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    return folder


def judge(path: Path) -> Checkpoint | None:
    found = TORCHTUNE.read(tree(path), Looker())
    return judged(found) if found else None


def run_of(path: Path) -> list[Checkpoint]:
    run, look = tree(path), Looker()
    found = [one for inside in run.folders.values() if (one := TORCHTUNE.read(inside, look))]
    TORCHTUNE.compare(run, found)
    return [judged(one) for one in found]


def two(path: Path) -> None:
    for epoch in range(2):
        make(path / f"epoch_{epoch}", step=epoch, world=2, start=T + 3600 * epoch)


@pytest.mark.parametrize("maker", MAKERS)
def test_what_the_makers_write_is_whole(tmp_path: Path, maker: str) -> None:
    for epoch in range(3):
        folder = tmp_path / f"epoch_{epoch}"
        MAKERS[maker](folder, step=epoch, world=2, start=T + 3600 * epoch)
    found = run_of(tmp_path)
    assert [(one.step, one.state, one.framework) for one in found] == [
        (epoch, "whole", "torchtune") for epoch in range(3)
    ]
    assert [one.notes for one in found] == [[], [], []]


def test_the_recipes_state_counts_for_the_last_epoch(tmp_path: Path) -> None:
    two(tmp_path)
    recipe = tmp_path / "recipe_state/recipe_state.pt"
    recipe.write_bytes(b"")
    assert [one.reasons for one in run_of(tmp_path)] == [[], [f"{RECIPE}: is empty"]]
    recipe.unlink()
    assert [one.reasons for one in run_of(tmp_path)] == [
        [], [f"{RECIPE}: missing: without it training restarts from scratch"]
    ]  # fmt: skip


def test_others_number_shards_in_folders_of_epochs_too(tmp_path: Path) -> None:
    two(tmp_path)
    shutil.rmtree(tmp_path / "recipe_state")
    found = run_of(tmp_path)
    assert [one.state for one in found] == ["whole", "whole"]
    assert found[1].notes == [
        "no recipe_state.pt beside it: the optimizer would start from scratch"
    ]


def test_the_final_epoch_writes_no_recipe_state(tmp_path: Path) -> None:
    two(tmp_path)
    make(tmp_path / "later/epoch_0", step=0, world=2, start=T)
    (tmp_path / "later/recipe_state/recipe_state.pt").replace(
        tmp_path / "recipe_state/recipe_state.pt"
    )
    found = run_of(tmp_path)
    assert [one.state for one in found] == ["whole", "whole"]
    assert found[1].notes == [
        "recipe_state.pt is from an earlier epoch, as is normal after the final one"
    ]


def test_other_folders_are_none(tmp_path: Path) -> None:
    hf.model(tmp_path / "epoch_0", step=0, start=T)  # of save_pretrained
    hf.model(tmp_path / "step_5", step=0, start=T, shards=2)
    hf.trainer(tmp_path / "epoch_1", step=5, world=1, start=T, shards=2)
    (tmp_path / "epoch_2").mkdir()
    assert [judge(path) for path in sorted(tmp_path.iterdir())] == [None] * 4
