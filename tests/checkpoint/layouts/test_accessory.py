"""LLaMA2-Accessory's checkpoints, and Meta's weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, Found, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family
from tests.checkpoint.make.accessory import meta, training
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


def test_a_whole_one(tmp_path: Path) -> None:
    found = alone(made(tmp_path))
    assert (found.state, found.reasons) == ("whole", [])
    assert (found.step, found.ranks, found.framework) == (5000, 4, "llama2-accessory")
    assert found.files == 10


def test_extra_files_do_no_harm(tmp_path: Path) -> None:
    folder = made(tmp_path)
    write(folder / "meta.json", b'{"llama_type": "llama"}', T)
    write(folder / "tokenizer.model", b"\x0a\x0e", T)
    assert alone(folder).state == "whole"


def test_iterations_count_anew_in_later_epochs(tmp_path: Path) -> None:
    assert alone(made(tmp_path, "epoch1-iter5000")).step is None
    assert alone(made(tmp_path, "epoch1")).step is None


def test_steps_are_dropped_where_there_are_several_epochs(tmp_path: Path) -> None:
    found = [read(made(tmp_path, name)) for name in ("epoch0-iter5000", "epoch0")]
    several = [one for one in found if one is not None]
    assert [one.step for one in several] == [5000, None]
    ACCESSORY.compare(Folder(str(tmp_path)), several)
    assert [one.step for one in several] == [None, None]


def test_stopped_while_the_optimizer_was_gathered(tmp_path: Path) -> None:
    # GIVEN the model of both model parallel ranks, and nothing that is saved after it
    folder = made(tmp_path)
    for path in folder.iterdir():
        if ".model." not in path.name:
            path.unlink()

    found = alone(folder)

    assert found.state == "partial"
    assert found.reasons[:2] == [
        f"consolidated.0{m}-of-02.optimizer.pth: missing: the model was saved and the optimizer "
        "was not; such a save has stopped in FSDP.full_optim_state_dict, where all ranks wait for "
        "each other"
        for m in range(2)
    ]
    assert found.reasons[2:] == [
        f"consolidated.0{m}-of-02.other.pth: missing: the save stopped after the optimizer"
        for m in range(2)
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("consolidated.00-of-02.model.pth", "missing: 1 of 2 model files exist"),
        ("consolidated.01-of-02.optimizer.pth", "missing: 1 of 2 optimizer files exist"),
        ("consolidated.01-of-02.other.pth", "missing: 1 of 2 other files exist"),
        ("rank-specific-00000-of-00004.pth", "missing: 3 of 4 ranks saved their own state"),
        ("rank-specific-00003-of-00004.pth", "missing: 3 of 4 ranks saved their own state"),
    ],
)
def test_one_missing_file(tmp_path: Path, name: str, why: str) -> None:
    folder = made(tmp_path)
    (folder / name).unlink()
    found = alone(folder)
    assert (found.state, found.reasons) == ("partial", [f"{name}: {why}"])


def test_a_kind_missing_whose_followers_are_there(tmp_path: Path) -> None:
    folder = made(tmp_path, mp=1)
    (folder / "consolidated.00-of-01.optimizer.pth").unlink()
    assert alone(folder).reasons == [
        "consolidated.00-of-01.optimizer.pth: missing: 0 of 1 optimizer files exist"
    ]


def test_no_rank_saved_its_own_state(tmp_path: Path) -> None:
    folder = tmp_path / "epoch0-iter5000"
    training(folder, step=5000, world=4, start=T, specific=False)
    found = alone(folder)
    assert found.state == "unknown"
    assert found.reasons == [
        "rank-specific-*.pth: missing: no rank saved its own state; earlier versions wrote none"
    ]


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


def test_weights_alone_outside_of_a_training(tmp_path: Path) -> None:
    # GIVEN a published model: weights, no folder of an epoch
    folder = made(tmp_path, "SPHINX-1k")
    for path in folder.iterdir():
        if ".model." not in path.name:
            path.unlink()
    found = alone(folder)
    assert (found.state, found.framework, found.step) == ("whole", "", None)


def test_weights_of_meta(tmp_path: Path) -> None:
    meta(tmp_path / "13B")
    found = alone(tmp_path / "13B")
    assert (found.layout, found.state, found.framework) == ("LLaMA (Meta)", "whole", "")


def test_a_shard_of_meta_missing(tmp_path: Path) -> None:
    folder = tmp_path / "33B"
    meta(folder, mp=4)
    (folder / "consolidated.01.pth").unlink()
    (folder / "consolidated.03.pth").unlink()
    assert alone(folder).reasons == [
        "consolidated.01.pth: missing: 2 of at least 3 shards exist",
        "consolidated.03.pth: missing: checklist.chk lists it",
    ]


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
