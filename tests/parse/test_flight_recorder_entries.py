"""Entries that repeat are left out of a dump and read from its bytes, with the same outcome."""

from __future__ import annotations

import dataclasses
import random
import struct
from typing import Any

import numpy as np
import pytest

from diagnose.parse import flight_recorder, pickles
from diagnose.parse.flight_recorder import Dump, DumpError, read_dump
from diagnose.parse.flight_recorder_entries import integers, spread, thinned, whole

from .test_flight_recorder import content, entry

_CONSTANTS = {None: b"N", True: b"\x88", False: b"\x89"}


def torch_pickle(value: Any) -> bytes:
    """As torch's C++ pickler writes: only strings go into the memo."""
    memo: dict[str, bytes] = {}

    def write(one: Any) -> bytes:
        if one is None or isinstance(one, bool):
            return _CONSTANTS[one]
        if isinstance(one, int):
            return _number(one)
        if isinstance(one, str):
            return memo.get(one) or _text(one, memo)
        if isinstance(one, tuple):
            return b"".join(map(write, one)) + b"\x86"
        if isinstance(one, list):
            return b"](" + b"".join(map(write, one)) + b"e"
        return b"}(" + b"".join(write(key) + write(item) for key, item in one.items()) + b"u"

    return b"\x80\x02" + write(value) + b"."


def _text(text: str, memo: dict[str, bytes]) -> bytes:
    wide, number = len(memo) > 255, len(memo)
    memo[text] = struct.pack("<cI", b"j", number) if wide else bytes([ord("h"), number])
    put = struct.pack("<cI", b"r", number) if wide else bytes([ord("q"), number])
    return struct.pack("<cI", b"X", len(text)) + text.encode() + put


def _number(one: int) -> bytes:
    if 0 <= one < 1 << 8:
        return bytes([ord("K"), one])
    if 0 <= one < 1 << 16:
        return struct.pack("<cH", b"M", one)
    if -(1 << 31) <= one < 1 << 31:
        return struct.pack("<ci", b"J", one)
    return b"\x8a\x08" + struct.pack("<q", one)


def entries(seed: int, count: int = 200) -> list[dict[str, Any]]:
    """Entries of a few kinds, with numbers of all sizes; new texts come up in the middle."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        kind = rng.randrange(3 if number < count // 2 else 5)
        found.append(
            entry(
                number * rng.choice([1, 300, 70_000]),
                profiling_name=f"nccl:op{kind}",
                input_sizes=[[kind, 512 * kind], [7]] if kind else [],
                state=rng.choice(["completed", "scheduled"]),
                retired=kind == 1,
                time_discovered_completed_ns=rng.choice([None, 1_758_580_155_793_872_443]),
                frames=[],
            )
        )
    return found


def same(one: Dump, other: Dump) -> None:
    for field in dataclasses.fields(Dump):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, field.name
            assert left.tolist() == right.tolist(), field.name
        else:
            assert left == right, field.name


def read_in_full(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Dump:
    with monkeypatch.context() as patch:
        patch.setattr(flight_recorder, "thinned", lambda data: None)
        return read_dump(data, "nccl_trace_rank_3")


@pytest.mark.parametrize("seed", range(8))
def test_the_same_as_reading_all_of_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = torch_pickle(content(entries(seed)))
    thin = thinned(data)
    assert thin is not None
    assert len(thin.data) < len(data) / 2
    same(read_dump(data, "nccl_trace_rank_3"), read_in_full(data, monkeypatch))


def test_of_too_many_the_newest_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "MAX_ENTRIES", 60)
    data = torch_pickle(content(entries(1)))
    dump = read_dump(data, "nccl_trace_rank_3")
    assert len(dump) == 60
    same(dump, read_in_full(data, monkeypatch))


def test_absurd_numbers_count_as_missing_in_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [entry(n, time_created_ns=-5 if n % 2 else 2**62, frames=[]) for n in range(60)]
    data = torch_pickle(content(odd))
    assert thinned(data) is not None
    dump = read_dump(data, "nccl_trace_rank_3")
    assert dump.created.tolist() == [0] * 60
    same(dump, read_in_full(data, monkeypatch))


@pytest.mark.parametrize("cut", [3, 500, 5000])
def test_a_truncated_dump_is_read_as_before(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = torch_pickle(content(entries(2)))[:-cut]
    dump = read_dump(data, "nccl_trace_rank_3")
    assert dump.partial
    same(dump, read_in_full(data, monkeypatch))


def test_a_global_among_repeats_is_refused() -> None:
    data = torch_pickle(content(entries(3)))
    bad = data[:-3] + b"cos\nsystem\nX\x02\x00\x00\x00id\x85R" + data[-3:]
    with pytest.raises(DumpError, match="refused: pickle with opcode GLOBAL"):
        read_dump(bad, "nccl_trace_rank_3")


def test_none_among_the_entries_is_no_run() -> None:
    rows: list[Any] = entries(4)
    data = torch_pickle(content([rows[0], None, *rows[1:]]))
    with pytest.raises(DumpError, match="an entry is not a dict"):
        read_dump(data, "nccl_trace_rank_3")
    thin = thinned(data)
    assert thin is not None
    with pytest.raises(ValueError, match="odd place"):
        spread(thin, pickles.load(thin.data)["entries"])


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80\x02}.", torch_pickle({"entries": []}), torch_pickle(content(entries(0, 9)))],
)
def test_small_dumps_are_left_alone(data: bytes) -> None:
    assert thinned(data) is None


def test_integers_of_every_width() -> None:
    pushed = [
        b"K\xff",
        b"M\x00\xff",
        b"J\xff\xff\xff\xff",
        b"\x8a\x08" + struct.pack("<q", -(2**62)),
    ]
    assert integers([one.ljust(10, b"u") for one in pushed]).tolist() == [255, 65280, -1, -(2**62)]


def test_whole_repeats_nothing() -> None:
    found = whole([{"a": 1}, {"a": 2}])
    assert (len(found), found.of.tolist(), found.repeats.any()) == (2, [0, 1], np.False_)
    assert found.last(5) is found
