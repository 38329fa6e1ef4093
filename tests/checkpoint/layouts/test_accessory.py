"""LLaMA2-Accessory's checkpoints, and Meta's weights."""

from __future__ import annotations

from pathlib import Path

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, Found, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family
from tests.checkpoint.make.accessory import training
from tests.checkpoint.make.base import write

ACCESSORY = Family("LLaMA2-Accessory")

T = 1_700_000_000.0


def read(path: Path) -> Found | None:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    return ACCESSORY.read(folder, Looker())


def alone(path: Path) -> Checkpoint:
    found = read(path)
    assert found is not None
    return judged(found)


def made(tmp_path: Path, name: str = "epoch0-iter5000", mp: int = 2) -> Path:
    folder = tmp_path / name
    training(folder, step=5000, world=4, start=T, mp=mp)
    return folder


def test_extra_files_do_no_harm(tmp_path: Path) -> None:
    folder = made(tmp_path)
    write(folder / "meta.json", b'{"llama_type": "llama"}', T)
    write(folder / "tokenizer.model", b"\x0a\x0e", T)
    assert alone(folder).state == "whole"


def test_steps_are_dropped_where_there_are_several_epochs(tmp_path: Path) -> None:
    found = [read(made(tmp_path, name)) for name in ("epoch0-iter5000", "epoch0")]
    several = [one for one in found if one is not None]
    assert [one.step for one in several] == [5000, None]
    ACCESSORY.compare(Folder(str(tmp_path)), several)
    assert [one.step for one in several] == [None, None]


def test_a_damaged_file(tmp_path: Path) -> None:
    folder = made(tmp_path)
    name = "consolidated.00-of-02.optimizer.pth"
    (folder / name).write_bytes((folder / name).read_bytes()[:-5000])
    found = alone(folder)
    assert found.state == "partial"
    assert [reason.partition(": ")[0] for reason in found.reasons] == [name]


def test_content_of_another_iteration(tmp_path: Path) -> None:
    folder = made(tmp_path)
    other = tmp_path / "epoch0-iter4000"
    training(other, step=4000, world=4, start=T)
    name = "consolidated.01-of-02.other.pth"
    (folder / name).write_bytes((other / name).read_bytes())
    found = alone(folder)
    assert (found.state, found.reasons) == ("corrupt", [f"{name}: says iteration 4000"])


def test_files_of_an_earlier_world_are_noted(tmp_path: Path) -> None:
    folder = made(tmp_path)
    write(folder / "rank-specific-00007-of-00008.pth",
          (folder / "rank-specific-00003-of-00004.pth").read_bytes(), T)  # fmt: skip
    found = alone(folder)
    assert (found.state, found.ranks) == ("whole", 4)
    assert found.notes == ["also has files of a world size of 8"]


def test_other_folders_are_none_of_it(tmp_path: Path) -> None:
    write(tmp_path / "consolidated.safetensors", b"", T)
    write(tmp_path / "model.pth", b"", T)
    (tmp_path / "epoch3").mkdir()
    assert read(tmp_path) is None
    assert read(tmp_path / "epoch3") is None


def test_absurd_numbers_are_no_danger(tmp_path: Path) -> None:
    folder = tmp_path / "epoch0"
    write(folder / "consolidated.00-of-99999.model.pth", b"", T)
    write(folder / "rank-specific-0000000-of-9999999.pth", b"", T)
    found = alone(folder)
    assert found.state == "partial"
    assert len(found.reasons) < 60
