from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.ingest.chunks import stream_chunks, without_escapes

# The same, of one sequence after the other.
ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]"
    rb"|[\]PX^_][^\x07\x1b\r\n]{0,2048}(?:\x07|\x1b\\)"
    rb"|[ -/]{1,8}[0-~]"
    rb"|[0-OQ-WYZ\\`-~])?"
)
PIECES = [
    *(b"\x1b", b"\x1b[", b"\x1b]", b"\x1bP", b"\x1b\\", b"\x1b(", b"\x07", b"0", b";", b"m", b"A"),
    *(b" ", b"(", b"B", b"X", b"Z", b"^", b"]", b"[", b"\\", b"\n", b"\r", b"\0", b"\xff"),
    *(b"x" * 2047, b"1" * 63, b"/" * 7),
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join))
def test_the_same_as_one_by_one(data: bytes) -> None:
    assert without_escapes(data) == ESCAPE.sub(b"", data)


@given(st.lists(st.integers(0x1A, 0x80), max_size=30).map(bytes))
def test_any_bytes(data: bytes) -> None:
    assert without_escapes(b"\x1b" + data) == ESCAPE.sub(b"", b"\x1b" + data)


@pytest.mark.parametrize("size", [2047, 2048, 2049])
@pytest.mark.parametrize("end", [b"\x07", b"\x1b\\", b"\x1b", b""])
def test_bounds_of_strings(size: int, end: bytes) -> None:
    data = b"\x1b]" + b"x" * size + end
    assert without_escapes(data) == ESCAPE.sub(b"", data)


@pytest.mark.parametrize("piece", [b"\x1b", b"\x1b[mx", b"\x1b]", b"\x1b[31mx\x1b[0m\n"])
def test_many(piece: bytes) -> None:
    data = piece * 20_000
    assert without_escapes(data) == ESCAPE.sub(b"", data)


def test_memory_for_a_hostile_log() -> None:
    data = b"\x1b" * 500_000
    tracemalloc.start()
    assert without_escapes(data) == b""
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * len(data)  # as single replacements they take a hundred bytes each


@pytest.mark.parametrize("size", [1000, 400_000])
def test_small_and_large_pieces_give_the_same(size: int) -> None:
    line = b"\x1b[31mx\x1b[0m\n\x1b]0;title\x07"
    data = line * (size // len(line))
    chunks = stream_chunks([data], limit=len(data))
    assert b"".join(chunk.data for chunk in chunks) == b"x\n" * (size // len(line))
