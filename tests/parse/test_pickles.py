"""Pickles of plain data load; everything else is refused before anything is built."""

from __future__ import annotations

import pickle
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.parse import pickles
from diagnose.parse.pickles import TruncatedPickleError, UnsafePickleError, load, load_truncated

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=300),
    st.tuples(st.text(max_size=5), st.text(max_size=5)),
)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(PLAIN, st.integers(2, 5))
def test_plain_data_comes_back(value: Any, protocol: int) -> None:
    assert load(pickle.dumps(value, protocol)) == value


def test_a_shared_object_stays_one() -> None:
    frame = {"name": "step", "line": 3}
    first, second = load(pickle.dumps([frame, frame], 2))
    assert first is second


class Touch:
    """Writes a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_malicious_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "ran"
    data = pickle.dumps({"version": "2.9", "entries": [Touch(marker)]}, protocol)

    with pytest.raises(UnsafePickleError, match="GLOBAL"):
        load(data)

    assert not marker.exists()
    pickle.loads(data)  # the payload is real
    assert marker.exists()


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"cos\nsystem\n.", "GLOBAL"),
        (b"(S'true'\nios\nsystem\n.", "STRING"),
        (b"(ios\nsystem\n.", "INST"),
        (b"(o.", "OBJ"),
        (b"N)R.", "REDUCE"),
        (b"}}b.", "BUILD"),
        (b"N)\x81.", "NEWOBJ"),
        (b"\x82\x01.", "EXT1"),
        (b"Pid\n.", "PERSID"),
        (b"NQ.", "BINPERSID"),
        (b"N0N.", "POP"),
        (b"N2.", "DUP"),
        (b"\x8f.", "EMPTY_SET"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"\x96" + struct.pack("<Q", 1 << 40) + b".", "BYTEARRAY8"),
        (b"B\xff\xff\xff\x7f.", "BINBYTES"),
        (b"I1\n.", "INT"),
        (b"(N\x85.", "TUPLE1"),
        (b"(NNt.", "TUPLE"),
    ],
)
def test_other_opcodes_are_refused_by_name(body: bytes, name: str) -> None:
    with pytest.raises(UnsafePickleError, match=f"opcode {name} "):
        load(b"\x80\x04" + body + b" " * 16)


@pytest.mark.parametrize(
    "body",
    [
        # Tuples in tuples: endless to hash as a key of a dict.
        b"NN\x86.",
        b"X\x01\x00\x00\x00aq\x00h\x00\x86q\x01h\x01h\x01\x86.",
        # A tuple stored unseen, behind closing nothing into it, then doubled.
        b"X\x01\x00\x00\x00aq\x00h\x00\x86(eq\x01h\x01h\x01\x86.",
        # A slot that first held a string.
        b"X\x01\x00\x00\x00aq\x00X\x01\x00\x00\x00bq\x01h\x00h\x01\x86q\x01h\x01h\x01\x86.",
    ],
)
def test_bombs_are_refused(body: bytes) -> None:
    with pytest.raises(UnsafePickleError):
        load(b"\x80\x02" + body + b" " * 16)


@pytest.mark.parametrize("put", [b"r\xff\xff\xff\x7f", b"q\x64\x94"])
def test_a_far_slot_of_the_memo_costs_nothing(put: bytes) -> None:
    assert load(b"\x80\x04]" + put + b".") == []


@pytest.mark.slow
def test_items_at_once_are_bounded() -> None:
    with pytest.raises(UnsafePickleError, match="objects at once"):
        load(b"\x80\x02](" + b"N" * (5 << 20) + b"e.")


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps([[] for _ in range(50)], 2)
    monkeypatch.setattr(pickles, "MAX_CONTAINERS", 40)
    with pytest.raises(UnsafePickleError, match="containers"):
        load(data)
    monkeypatch.setattr(pickles, "MAX_BYTES", 60)
    with pytest.raises(UnsafePickleError, match="bytes"):
        load(data)


@pytest.mark.slow
def test_dicts_are_bounded_by_what_they_take() -> None:
    few, many = (
        b"\x80\x02](" + b"}K\x01K\x01s" * count + b"e." for count in (1_000_000, 1_500_000)
    )
    assert load(few).count({1: 1}) == 1_000_000
    with pytest.raises(UnsafePickleError, match="more than 4,194,304 objects at once"):
        load(many)


def test_deep_nesting_of_lists_is_harmless() -> None:
    found = load(b"\x80\x02" + b"](" * 100_000 + b"e" * 100_000 + b".")
    assert found == [] or isinstance(found[0], list)


@given(st.binary(max_size=200))
def test_garbage_ends_in_a_value_error(garbage: bytes) -> None:
    for start in (b"\x80\x02", b"\x80\x04", b""):
        with suppress(ValueError):
            load(start + garbage)


DUMP = {"version": "2.9", "entries": [{"record_id": n, "frames": [{"line": n}]} for n in range(9)]}


def test_truncated_is_told_from_unsafe() -> None:
    data = pickle.dumps(DUMP, 2)
    for cut in range(2, len(data) - 1):
        with pytest.raises(TruncatedPickleError):
            load(data[:cut])


def test_a_truncated_dump_gives_its_whole_entries() -> None:
    data = pickle.dumps(DUMP, 2)
    found = load_truncated(data[: len(data) * 2 // 3])
    entries = found["entries"]
    assert found["version"] == "2.9"
    assert 3 <= len(entries) < 9
    assert entries == DUMP["entries"][: len(entries)]
    with pytest.raises(ValueError, match="nothing whole"):
        load_truncated(data[:20])


def test_a_truncated_dump_is_no_way_around(tmp_path: Path) -> None:
    data = pickle.dumps({"version": "2.9", "entries": [{"a": Touch(tmp_path / "ran")}, {}]}, 2)
    with pytest.raises(ValueError, match="pickle"):
        load_truncated(data[:-3])
    assert not (tmp_path / "ran").exists()
