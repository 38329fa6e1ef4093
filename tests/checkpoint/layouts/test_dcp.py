"""Checkpoints of torch.distributed.checkpoint."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoint import dcp_metadata
from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.layouts.dcp import is_dcp, step_of
from diagnose.checkpoint.layouts.rows import View
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, Found, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family
from tests.checkpoint.make import dcp
from tests.checkpoint.make.base import filler, torch_file, write

DCP = Family("PyTorch DCP")

T = 1_750_000_000.0
OTHER = ": left from another save, or the folder was renamed"


def read(path: Path, *, verify: bool = False) -> Found | None:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    return DCP.read(folder, Looker(verify))


def judge(path: Path, *, verify: bool = False) -> Checkpoint:
    found = read(path, verify=verify)
    assert found is not None
    return judged(found)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "step-10"
    dcp.make(folder, step=10, world=4, start=T)
    return folder


def overwrite(path: Path, at: int, data: bytes) -> None:
    """Change bytes, not the time."""
    stat = path.stat()
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)
    os.utime(path, (stat.st_atime, stat.st_mtime))


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("maker", dcp.MAKERS)
def test_whole(maker: str, verify: bool, tmp_path: Path) -> None:
    folder = tmp_path / dcp.FOLDERS[maker].format(step=500)
    dcp.MAKERS[maker](folder, step=500, world=4, start=T)
    result = judge(folder, verify=verify)
    assert (result.state, result.reasons, result.notes) == ("whole", [], [])
    assert (result.layout, result.step, result.ranks) == ("PyTorch DCP", 500, 4)
    assert result.framework == ("torchtitan" if maker == "torchtitan" else "dcp")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-10", 10), ("step_10", 10), ("step10", 10), ("iter_0000500", 500), ("1000", 1000),
        ("checkpoint-7", 7), ("global_step_9", 9), ("global_step9", 9), ("epoch=1-step=2.ckpt", 2),
        ("run--val_loss=1.25-step=99-consumed_samples=800.0", 99), ("checkpoint-3-step=30", 30),
        ("final", None), ("lockstep-1", None), ("epoch_3", None), ("v2", None), ("step-", None),
    ],
)  # fmt: skip
def test_steps_of_names(name: str, step: int | None) -> None:
    assert step_of(name) == step


def test_killed_before_the_metadata(whole: Path) -> None:
    (whole / ".metadata").unlink()
    (whole / "__2_0.distcp").unlink()
    result = judge(whole)
    assert result.state == "partial"
    assert result.reasons == [".metadata: missing: it is written last, so this save never finished"]
    assert result.notes == ["no data file of rank 2"]
    assert result.ranks == 4


def test_killed_before_the_rename(whole: Path) -> None:
    (whole / ".metadata").rename(whole / ".metadata.tmp")
    assert judge(whole).reasons == [
        ".metadata.tmp: a temporary file of a save that was killed before committing its files",
        ".metadata: missing: it is written last, so this save never finished",
    ]


def test_only_the_metadata_is_left(whole: Path) -> None:
    for path in whole.glob("*.distcp"):
        path.unlink()
    renamed = whole.rename(whole.with_name("final"))
    result = judge(renamed)
    assert result.state == "partial"
    assert result.reasons == [
        f"__{rank}_0.distcp: missing: the metadata names it" for rank in range(4)
    ]


def test_many_missing_files_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "step-10"
    dcp.make(folder, step=10, world=16, start=T)
    for path in folder.glob("*.distcp"):
        path.unlink()
    reasons = judge(folder).reasons
    assert len(reasons) == 9
    assert reasons[-1] == "missing: 8 more files like these"


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_data_cut_off(whole: Path, size: int) -> None:
    path = whole / "__3_0.distcp"
    full = path.stat().st_size
    os.truncate(path, size if size >= 0 else full - 1)
    now = path.stat().st_size
    os.utime(path, (T, T))
    assert judge(whole).reasons == [f"__3_0.distcp: has {now:,} of {full:,} bytes"]
    assert judge(whole).state == "partial"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", ("partial", "is empty")),
        (b"\0" * 500, ("corrupt", "is malformed: not a pickle of protocol 2 to 5")),
        (b"\x80\x04}u.", ("corrupt", "is malformed: damaged pickle")),
    ],
)
def test_damaged_metadata(whole: Path, data: bytes, reason: tuple[str, str]) -> None:
    write(whole / ".metadata", data, T + 10)
    result = judge(whole)
    assert (result.state, result.reasons) == (reason[0], [f".metadata: {reason[1]}"])
    assert result.ranks == 4


@pytest.mark.parametrize("data", [pickle.dumps([1]), b"\x80\x04(" + b"]" * 3_000_000 + b"l."])
@pytest.mark.slow
def test_metadata_of_something_else(whole: Path, data: bytes) -> None:
    (whole / ".metadata").write_bytes(data)
    found = judge(whole)
    assert found.state == "corrupt"
    assert found.reasons[0].startswith(".metadata: ")


def test_cut_off_metadata(whole: Path) -> None:
    data = (whole / ".metadata").read_bytes()
    write(whole / ".metadata", data[:-30], T + 10)
    result = judge(whole)
    assert result.state == "partial"
    assert result.reasons == [".metadata: ends too early: it is truncated"]


def test_links_to_nothing(whole: Path) -> None:
    for name in (".metadata", "__1_0.distcp"):
        (whole / name).unlink()
        (whole / name).symlink_to(whole / "gone")
    assert judge(whole).reasons == [".metadata: is a dangling link"]


def test_metadata_of_another_step(whole: Path) -> None:
    other = whole.with_name("step-20")
    dcp.make(other, step=20, world=4, start=T)
    write(other / ".metadata", (whole / ".metadata").read_bytes(), T + 10)
    result = judge(other)
    assert result.state == "corrupt"
    assert result.reasons == [".metadata: was written for step 10, not 20" + OTHER]


@pytest.mark.parametrize("name", ["final", "step-10-best", "copy_of_step_10", "checkpoint-10"])
def test_a_renamed_folder_is_whole(whole: Path, name: str) -> None:
    assert judge(whole.rename(whole.with_name(name))).state == "whole"


def test_what_training_begins_with_may_be_renamed(whole: Path) -> None:
    result = judge(whole.rename(whole.with_name("step-0")))
    assert (result.state, result.notes) == ("whole", [".metadata was written for step 10, not 0"])


def test_the_step_may_stand_in_the_parent_folder(tmp_path: Path) -> None:
    first, second = (tmp_path / f"checkpoint-{step}" / "pytorch_model_fsdp_0" for step in (10, 20))
    dcp.make(first, step=10, world=2, start=T)
    dcp.make(second, step=20, world=2, start=T)
    assert judge(second).state == "whole"
    write(second / ".metadata", (first / ".metadata").read_bytes(), T + 10)
    assert judge(second).reasons == [".metadata: was written for step 10, not 20" + OTHER]


def test_data_of_another_save_of_other_sizes(whole: Path) -> None:
    """As long as before, but its items begin elsewhere."""
    save = dcp.items_of(dcp.MODEL[::-1], {}, step=20, world=2)
    path = whole / "__1_0.distcp"
    data = save.files["__1_0.distcp"] + filler(10_000)
    size = path.stat().st_size
    write(path, data[:size], T + 3)
    result = judge(whole)
    assert result.state == "corrupt"
    (reason,) = result.reasons
    assert reason.startswith("__1_0.distcp: ")
    assert reason.endswith("is not where the metadata places it: they come from different saves")


def test_zeros_where_items_begin_and_end(whole: Path) -> None:
    path = whole / "__2_0.distcp"
    size = path.stat().st_size
    overwrite(path, size - 512, b"\0" * 512)
    result = judge(whole)
    assert result.state == "partial"
    (reason,) = result.reasons
    assert reason.startswith("__2_0.distcp: contains zeros where the item at byte ")
    assert reason.endswith(" ends: it was never written to disk")
    overwrite(path, 0, b"\0" * size)
    assert judge(whole).reasons == [
        "__2_0.distcp: contains zeros where the item at byte 0 begins: it was never written to disk"
    ]


def test_a_changed_byte_is_found_with_verify_only(whole: Path) -> None:
    path = whole / "__1_0.distcp"
    place = path.read_bytes().index(filler(200, "model.embed.weight 1 10"))
    overwrite(path, place + 50, b"\xff\0\xff")
    assert judge(whole).state == "whole"
    result = judge(whole, verify=True)
    assert result.state == "corrupt"
    (reason,) = result.reasons
    assert reason.startswith("__1_0.distcp: the item at byte 0: the 1,024 bytes of its record")


def test_holes_in_sparse_files(tmp_path: Path) -> None:
    folder = tmp_path / "step-10"
    tensors: dcp.Tensors = (("w", (1024, 512), True), ("b", (16,), False))
    dcp.make(folder, step=10, world=2, start=T, tensors=tensors)
    path = folder / "__1_0.distcp"
    data = path.read_bytes()
    begin = data.index(filler(200, "w 1 10"))
    with path.open("wb") as sink:
        sink.write(data[:begin])
        sink.seek(begin + 1024 * 512 * 2)
        sink.write(data[begin + 1024 * 512 * 2 :])
    os.utime(path, (T + 3, T + 3))
    if path.stat().st_blocks * 512 > len(data) // 2:
        pytest.skip("the file system has no holes")
    result = judge(folder)
    assert result.state == "corrupt"
    assert "do not match their checksum" in result.reasons[0]


def test_longer_data_is_a_note(whole: Path) -> None:
    path = whole / "__0_0.distcp"
    write(path, path.read_bytes() + b"\0" * 7, T + 2)
    result = judge(whole)
    assert result.state == "whole"
    assert result.notes == ["__0_0.distcp: 7 bytes more than the metadata says"]


def test_left_overs_of_more_ranks_are_a_note(whole: Path) -> None:
    write(whole / "__4_0.distcp", torch_file(content=1), T - 1000)
    write(whole / "__5_0.distcp", b"", T - 1000)
    result = judge(whole)
    assert (result.state, result.ranks) == ("whole", 4)
    assert result.notes == [
        "1 data file is not in the metadata (__4_0.distcp): left from another save"
    ]


def test_a_rank_may_have_nothing_to_save(tmp_path: Path) -> None:
    folder = tmp_path / "step-10"
    dcp.make(folder, step=10, world=4, start=T, tensors=(("w", (8,), False),))
    assert (folder / "__3_0.distcp").stat().st_size == 0
    assert judge(folder).state == "whole"


@pytest.mark.parametrize("names", [["__1_0.distcp"], ["__4_0.distcp"]])
def test_overwritten_after_the_commit(whole: Path, names: list[str]) -> None:
    for name in names:
        write(whole / name, torch_file(content=1) * 30, T + 1000)
    found = read(whole)
    assert found is not None
    why = "changed 17 min after the metadata: by a later save that did not finish"
    assert ("partial", why, names[0]) in [(f.state, f.why, f.file) for f in found.flaws]


def test_all_overwritten_after_the_commit(whole: Path) -> None:
    for path in whole.glob("*.distcp"):
        os.utime(path, (T + 300, T + 300))
    assert judge(whole).reasons == [
        ".metadata: is 5 min older than all data files: the save that wrote them did not finish"
    ]


def test_copied_in_any_order_is_whole(whole: Path) -> None:
    for number, path in enumerate(sorted(whole.iterdir())):  # .metadata first
        os.utime(path, (T + 50 * number, T + 50 * number))
    assert judge(whole).state == "whole"
    for path in whole.iterdir():
        os.utime(path, (T, T))
    assert judge(whole).state == "whole"


def test_one_rank_of_an_earlier_save(whole: Path) -> None:
    os.utime(whole / "__2_0.distcp", (T - 3600, T - 3600))
    assert judge(whole).reasons == [
        "__2_0.distcp: was written 60 min before all others: left over from an earlier save"
    ]


def test_one_slow_rank_is_whole(whole: Path) -> None:
    os.utime(whole / "__2_0.distcp", (T + 3000, T + 3000))
    os.utime(whole / ".metadata", (T + 3001, T + 3001))
    assert judge(whole).state == "whole"


def test_fewer_places_than_pieces(whole: Path) -> None:
    save = dcp.items_of(dcp.MODEL, {"step": 1}, step=10, world=4)
    index = next(i for i in save.metadata.storage_data if i.fqn == "model.norm.weight")
    del save.metadata.storage_data[index]
    write(whole / ".metadata", dcp.pickled(save.metadata), T + 10)
    result = judge(whole)
    assert result.state == "corrupt"
    assert ".metadata: locates only 17 of 18 pieces" in result.reasons


def _with_planner_data(folder: Path, data: Any) -> None:
    save = dcp.items_of(dcp.MODEL, {"step": 10, "lr_scheduler.last_epoch": 10}, step=10, world=4)
    save.metadata.planner_data = data
    write(folder / ".metadata", dcp.pickled(save.metadata), T + 10)


def test_metadata_that_would_run_something(whole: Path) -> None:
    _with_planner_data(whole, os.system)
    result = judge(whole)
    name = f"{os.system.__module__}.system"
    assert result.state == "corrupt"
    assert result.reasons == [
        f".metadata: names {name}, which torch never does: loading the checkpoint may run code"
    ]


def test_metadata_of_other_writers_is_a_note(whole: Path) -> None:
    _with_planner_data(whole, pytest.approx)
    result = judge(whole)
    assert result.state == "whole"
    (note,) = result.notes
    assert note.endswith("approx, which torch itself does not")


def test_metadata_too_large_to_be_followed(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp_metadata, "MAX_BYTES", 1000)
    result = judge(whole)
    assert (result.state, result.ranks) == ("whole", 4)
    assert result.notes[0].startswith(".metadata: only the file names were read: pickle of ")
    (whole / "__3_0.distcp").unlink()
    assert judge(whole).reasons == ["__3_0.distcp: missing: the metadata names it"]
    write(whole / "__3_0.distcp", b"", T)
    assert judge(whole).reasons == ["__3_0.distcp: is empty"]


def test_names_that_are_no_names_are_escaped(whole: Path) -> None:
    metadata = dcp.Metadata({}, storage_data={
        dcp.MetadataIndex("a"): dcp._StorageInfo("\x1b[31m../../etc", 0, 100)
    })  # fmt: skip
    write(whole / ".metadata", dcp.pickled(metadata), T + 10)
    (reason,) = judge(whole).reasons
    assert reason == "'\\x1b[31m../../etc': missing: the metadata names it"


def test_without_coordination_every_rank_commits(tmp_path: Path) -> None:
    folder = tmp_path / "step_10"
    dcp.make(folder, step=10, world=4, start=T, coordinated=False)
    (folder / "__3.metadata").rename(folder / "__3.metadata.tmp")
    result = judge(folder)
    assert (result.state, result.ranks) == ("partial", 4)
    assert result.reasons == [
        "__3.metadata.tmp: a temporary file of a save that was killed before committing its files",
        "__3.metadata: missing: this rank never finished its part of the save",
    ]
    (folder / "__3.metadata.tmp").rename(folder / "__3.metadata")
    (folder / "__3_0.distcp").unlink()
    assert judge(folder).reasons == ["__3_0.distcp: missing: the metadata names it"]


def test_items_of_another_format_are_not_zips(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    items = {}
    for rank in range(2):
        write(folder / f"__{rank}_0.distcp", filler(900, str(rank)), T)
        for at in range(0, 900, 300):
            info = dcp._StorageInfo(f"__{rank}_0.distcp", at, 300)
            items[dcp.MetadataIndex(f"{rank} {at}")] = info
    write(folder / ".metadata", dcp.pickled(dcp.Metadata({}, storage_data=items)), T + 1)
    assert judge(folder).state == "whole"
    overwrite(folder / "__1_0.distcp", 300, b"\0" * 300)
    assert judge(folder).state == "partial"


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"model.safetensors": b"x"},
        {".metadata": b"not of torch"},
        {"metadata": b"\x80\x04."},
        {"a.distcp": b"x"},
    ],
)
def test_other_folders_are_none(tmp_path: Path, files: dict[str, bytes]) -> None:
    folder = tmp_path / "anything"
    folder.mkdir()
    for name, data in files.items():
        write(folder / name, data, T)
    assert read(folder) is None


def test_what_is_left_is_told_by_the_name(tmp_path: Path) -> None:
    write(tmp_path / "step-5" / ".metadata", b"", T)
    tree = read_tree(str(tmp_path / "step-5"))
    assert isinstance(tree, Folder)
    assert is_dcp(View(tree, {}, Looker()))


def stale(tmp_path: Path, *steps: int, frozen: bool = False) -> list[list[str]]:
    """A run in which rank 1's data of the second step is that of the first."""
    for step in steps:
        saved = 7 if frozen else step
        dcp.make(tmp_path / f"step-{step}", step=saved, world=4, start=T + step * 60)
    paths = [tmp_path / f"step-{step}/__1_0.distcp" for step in steps]
    write(paths[1], paths[0].read_bytes(), paths[1].stat().st_mtime)
    return [one.reasons for one in inspect([str(tmp_path)]).checkpoints]


@pytest.mark.parametrize("steps", [(10, 20), (10, 20, 30)])
def test_the_same_data_as_in_the_step_before(tmp_path: Path, steps: tuple[int, ...]) -> None:
    why = "__1_0.distcp: has the same content as in step-10"
    assert stale(tmp_path, *steps) == [[], [why], []][: len(steps)]


def test_a_frozen_model_may_stay_the_same(tmp_path: Path) -> None:
    told = stale(tmp_path, 10, 20, 30, frozen=True)
    assert not any("content that it has" in reason for reasons in told for reason in reasons)
