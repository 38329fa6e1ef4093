from pathlib import Path

import pytest

from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.tree import holds_states
from diagnose.errors import InputError
from tests.checkpoint.make import dcp, hf
from tests.checkpoint.make.base import torch_file, write

BEGIN = 1_700_000_000.0


def trainer(run: Path, *steps: int) -> None:
    for number, step in enumerate(steps):
        start = BEGIN + 600 * number
        hf.MAKERS["hf-trainer"](run / f"checkpoint-{step}", step=step, world=2, start=start)


def names(path: Path) -> list[tuple[str, str]]:
    found = inspect([str(path)]).checkpoints
    return [(one.path.removeprefix(f"{path}").lstrip("/"), one.state) for one in found]


def test_a_run_with_its_final_model_above_the_checkpoints(tmp_path: Path) -> None:
    trainer(tmp_path, 100, 200)
    hf.MAKERS["hf-model"](tmp_path, step=0, world=1, start=BEGIN + 3000)
    assert names(tmp_path) == [
        ("", "whole"),
        ("checkpoint-100", "whole"),
        ("checkpoint-200", "whole"),
    ]
    back = inspect([str(tmp_path)]).resume
    assert back is not None
    assert back.path == f"{tmp_path}/checkpoint-200"


def test_a_checkpoint_given_by_itself(tmp_path: Path) -> None:
    trainer(tmp_path, 100)
    assert names(tmp_path / "checkpoint-100") == [("", "whole")]


def test_one_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    write(path, torch_file(content={"a": 1}), BEGIN)
    assert names(path) == [("", "whole")]
    write(path, torch_file(content={"a": 1})[:-1], BEGIN)
    assert names(path) == [("", "partial")]


def test_runs_of_several_layouts_in_one_tree(tmp_path: Path) -> None:
    trainer(tmp_path / "a/out", 100)
    dcp.MAKERS["dcp"](tmp_path / "b/step-7", step=7, world=2, start=BEGIN)
    assert names(tmp_path) == [("a/out/checkpoint-100", "whole"), ("b/step-7", "whole")]


def test_the_same_checkpoint_given_twice_counts_once(tmp_path: Path) -> None:
    trainer(tmp_path, 100)
    paths = [str(tmp_path), str(tmp_path / "checkpoint-100")]
    assert len(inspect(paths).checkpoints) == 1


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no checkpoint")
    assert inspect([str(tmp_path)]).checkpoints == []
    with pytest.raises(InputError, match="gone: no such file or directory"):
        inspect([str(tmp_path / "gone")])


def test_bounds_of_the_tree_are_told(tmp_path: Path) -> None:
    trainer(tmp_path, 100, 200)
    found = inspect([str(tmp_path)], max_files=3)
    assert any("too many files" in note for note in found.notes)


def test_a_link_in_circles_and_a_link_to_nothing(tmp_path: Path) -> None:
    trainer(tmp_path, 100)
    (tmp_path / "checkpoint-100/again").symlink_to(tmp_path)
    assert names(tmp_path) == [("checkpoint-100", "whole")]
    weights = tmp_path / "checkpoint-100/model.safetensors"
    weights.unlink()
    weights.symlink_to("../gone")
    found = inspect([str(tmp_path)]).checkpoints[0]
    assert (found.state, found.reasons[0]) == ("partial", "model.safetensors: is a dangling link")


def test_a_cache_of_links_is_whole(tmp_path: Path) -> None:
    trainer(tmp_path / "run", 100)
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/abc"
    (tmp_path / "run/checkpoint-100").rename(blobs)
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(blob)
    assert names(snapshot) == [("", "whole")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b/model.safetensors", True), ("out/.metadata", True), ("rng_state.pth", True),
        ("train.log", False), ("a/model.py", False), ("config.json", False), ("a.pt.log", False),
    ],
)  # fmt: skip
def test_names_that_only_checkpoints_have(tmp_path: Path, name: str, expected: bool) -> None:
    write(tmp_path / name, b"x", BEGIN)
    assert holds_states(str(tmp_path)) is expected


def test_the_look_at_names_is_bounded(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path / f"{number:02}/x.log", b"x", BEGIN)
    write(tmp_path / "00/deep/model.pt", b"x", BEGIN)
    assert holds_states(str(tmp_path))
    assert not holds_states(str(tmp_path), 5)


def test_a_model_of_which_only_the_settings_are_left(tmp_path: Path) -> None:
    write(tmp_path / "a/model/config.json", b"{}", BEGIN)
    found = inspect([str(tmp_path / "a/model")]).checkpoints[0]
    assert (found.state, found.reasons) == (
        "partial",
        ["model.safetensors: missing: there are no weights"],
    )
    assert inspect([str(tmp_path)]).checkpoints == []  # one of many things that have settings
