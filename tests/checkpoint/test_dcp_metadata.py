"""`.metadata` of DCP is read without unpickling, whatever is in it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.checkpoint import dcp_metadata
from diagnose.checkpoint.dcp_metadata import Metadata, names_in, read_metadata
from diagnose.ingest.raw import BytesStore
from diagnose.parse.pickles import TruncatedPickleError, UnsafePickleError
from tests.checkpoint.make import dcp

CLASS = b"\x8c\x05torch\x94\x8c\x0c_StorageInfo\x94\x93\x94"


def read(data: bytes) -> Metadata:
    with BytesStore(data).open() as reader:
        return read_metadata(reader)


def made(**changes: object) -> dcp.Metadata:
    """What a save of 2 ranks says."""
    metadata = dcp.items_of(dcp.MODEL, {"step": 7}, step=7, world=2).metadata
    for name, value in changes.items():
        setattr(metadata, name, value)
    return metadata


def one_item(path: str = "__0_0.distcp", offset: int = 0, length: int = 9) -> dcp.Metadata:
    info = dcp._StorageInfo(path, offset, length)
    return dcp.Metadata({}, storage_data={dcp.MetadataIndex("a"): info})


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_all_ranges_are_read(protocol: int) -> None:
    save = dcp.items_of(dcp.MODEL, {"step": 7}, step=7, world=2)
    expected: dict[str, list[list[int]]] = {}
    for info in save.metadata.storage_data.values():
        expected.setdefault(info.relative_path, []).append([info.offset, info.length])
    result = read(dcp.pickled(save.metadata, protocol))
    assert {name: rows.tolist() for name, rows in result.files.items()} == expected
    assert (result.tensors, result.chunks, result.blobs, result.items) == (5, 9, 1, 10)
    assert (result.saved_as, result.transformed, result.foreign) == ("", False, ())
    for name, rows in result.files.items():
        assert rows.sum(axis=1).max() == len(save.files[name])


def test_what_is_cut_in_one_and_in_many_dimensions_is_counted() -> None:
    tensors: dcp.Tensors = (
        ("scalar", (1,), False), ("deep", (2, 3, 4, 5, 6), False), ("long", (70_000,), False),
    )  # fmt: skip
    result = read(dcp.pickled(dcp.items_of(tensors, {}, step=1, world=1).metadata))
    assert (result.tensors, result.chunks, result.items) == (3, 3, 3)


@pytest.mark.parametrize(
    ("folder", "expected"),
    [(Path("/data/run/step-10"), "/data/run/step-10"), ("s3://bucket/step-10/", "s3://bucket/step-10/"),
     (None, "")],
)  # fmt: skip
def test_the_folder_that_was_saved_to(folder: Path | str | None, expected: str) -> None:
    assert read(dcp.pickled(made(storage_meta=dcp.StorageMeta(folder, "id")))).saved_as == expected


def test_transformed_items_are_told() -> None:
    info = dcp._StorageInfo("__0_0.distcp", 0, 9, ["zstd"])
    metadata = dcp.Metadata({}, storage_data={dcp.MetadataIndex("a"): info})
    assert read(dcp.pickled(metadata)).transformed


def test_items_are_in_order_of_offset() -> None:
    items = {dcp.MetadataIndex(str(at)): dcp._StorageInfo("a", at, 5) for at in (10, 5, 1 << 40, 0)}
    result = read(dcp.pickled(dcp.Metadata({}, storage_data=items)))
    assert result.files["a"].tolist() == [[0, 5], [5, 5], [10, 5], [1 << 40, 5]]


def test_records_of_other_programs_are_passed_over() -> None:
    """Megatron-LM saves a class of its own, and its plans with it."""
    data = dcp.pickled(made(planner_data={"plans": [1.5, None, b"x", {3}, frozenset("a"), 10**30]}))
    ours, theirs = (
        b"\x8c\x25torch.distributed.checkpoint.metadata",
        b"\x8c\x25megatron.core.dist_checkpointing.stra",
    )
    assert ours in data
    result = read(data.replace(ours, theirs))
    assert (result.items, result.foreign) == (10, ())


def test_foreign_names_are_told_and_not_called(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path}/harm",)

    result = read(dcp.pickled(made(planner_data=Harm())))
    assert result.foreign == (f"{os.system.__module__}.system",)
    assert result.items == 10
    assert not (tmp_path / "harm").exists()
    assert read(pickle.dumps([eval, set, print], 4)).foreign == ("builtins.eval", "builtins.print")


def test_cut_off_anywhere() -> None:
    data = dcp.pickled(made())
    for end in range(2, len(data)):
        with pytest.raises(TruncatedPickleError):
            read(data[:end])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a pickle"),
        (b"\0" * 100, "not a pickle"),
        (b"\x80\x09.", "not a pickle"),
        (b"{}", "not a pickle"),
        (b"\x80\x04b.", "damaged pickle"),
        (b"\x80\x04u.", "damaged pickle"),
        (b"\x80\x04\x94.", "damaged pickle"),
        (b"\x80\x04K\x01\x87.", "damaged pickle"),
        (b"\x80\x04N\x8c\x01a\x93.", "name is no string"),
        (dcp.pickled(one_item(offset=-1)), "an item of 9 bytes at -1"),
        (dcp.pickled(one_item(length=(1 << 63) - 1, offset=1)), "an item of 9,223,372"),
        (dcp.pickled(one_item(length=1 << 70)), "an item of 1,180,591"),
        (dcp.pickled(one_item(path="x" * 5000)), "an item without"),
    ],
)
def test_nonsense(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(data)


@pytest.mark.parametrize("op", [b"I1\n", b"Vx\n", b"P1\n", b"Q", b"itorch\nSize\n", b"o", b"\x82\1",
                                b"\x97", b"2", b"\xff"])  # fmt: skip
def test_opcodes_that_torch_does_not_use(op: bytes) -> None:
    with pytest.raises(UnsafePickleError, match="opcode"):
        read(b"\x80\x04N" + op + b".")


@pytest.mark.parametrize(
    "data",
    [
        b"N" * 1_100_000,
        b"(" * 1_100_000,
        b"}" * 1_100_000,
        CLASS + b"h\x02}(N" * 300_000,
        b"\x8c\x00\x940" * 1_100_000,
        b"cpathlib\nPosixPath\nq\0X\0\x10\0\0" + b"a" * 4096 + b"q\1" + b"h\0h\1h\1\x86R" * 20_000,
        b"c_\n_\n0" * 1_100_000,
    ],
    ids=["stack", "marks", "dicts", "states", "strings", "paths", "globals"],
)
@pytest.mark.slow
def test_more_than_any_real_file_has(data: bytes) -> None:
    with pytest.raises(UnsafePickleError, match="more than"):
        read(b"\x80\x04" + data + b".")


def test_tuples_inside_tuples_cost_nothing() -> None:
    assert read(b"\x80\x04N" + b"\x85" * 100_000 + b".").files == {}


def test_a_memo_slot_of_four_billion_costs_nothing() -> None:
    assert read(b"\x80\x02X\1\0\0\0ar\xff\xff\xff\xff.").files == {}


def test_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dcp.pickled(made())
    monkeypatch.setattr(dcp_metadata, "MAX_BYTES", len(data))
    assert read(data).items == 10
    monkeypatch.setattr(dcp_metadata, "MAX_BYTES", len(data) - 1)
    with pytest.raises(UnsafePickleError, match=f"of {len(data):,} bytes"):
        read(data)


def test_too_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp_metadata, "MAX_NAMES", 1)
    with pytest.raises(UnsafePickleError, match="more than 1 files"):
        read(dcp.pickled(made()))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_bytes_raise_value_errors_only(drawn: st.DataObject) -> None:
    data = bytearray(dcp.pickled(made(storage_meta=dcp.StorageMeta(Path("/a/step-1"), "id"))))
    for _ in range(drawn.draw(st.integers(1, 4))):
        data[drawn.draw(st.integers(2, len(data) - 1))] = drawn.draw(st.integers(0, 255))
    try:
        read(bytes(data))
    except ValueError:
        return


@pytest.mark.parametrize("protocol", [2, 4])
def test_names_are_found_without_reading_the_rest(
    protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dcp_metadata, "_PIECE", 301)  # names lie across the pieces, too
    data = dcp.pickled(dcp.items_of(dcp.MODEL, {}, step=1, world=16).metadata, protocol)
    with BytesStore(data + b"\xff" * 50).open() as reader:
        result = names_in(reader)
    assert sorted(result.files) == sorted(f"__{rank}_0.distcp" for rank in range(16))
    assert not result.ranged
    assert result.items == 0


def test_only_a_record_of_metadata_is_genuine() -> None:
    assert read(dcp.pickled(made())).genuine
    assert not read(pickle.dumps({"a": [1]})).genuine


def test_a_name_may_have_the_bytes_of_opcodes() -> None:
    for name in ("q1h\1h\2.distcp", "rabcdhahbub", "ub", "\x94ub"):
        assert list(read(dcp.pickled(one_item(name), 2)).files) == [name]
        assert list(read(dcp.pickled(one_item(name), 4)).files) == [name]
