"""Newlines are counted by blocks, of small pieces and of large ones."""

from __future__ import annotations

import pytest

from diagnose.newlines import BLOCK, before, counted
from diagnose.parse.chunk import Chunk


@pytest.mark.parametrize("text", [b"\n", b"a\n\nbcd\nef", b"x"])
@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 200 * BLOCK, 300_001])
def test_newlines_before_a_place(text: bytes, size: int) -> None:
    data = (text * size)[:size]
    counts = counted(data)
    places = {0, 1, BLOCK - 1, BLOCK, size // 2, size - 1, size}
    told = {place: before(place, data, counts) for place in places if 0 <= place <= size}
    assert told == {place: data.count(b"\n", 0, place) for place in told}


@pytest.mark.parametrize("data", [b"", b"\n", b"ab\n\nc\n", b"ab\n\nc"])
def test_where_lines_begin_tells_their_number(data: bytes) -> None:
    known, counting = Chunk(data, 0, 1), Chunk(data, 0, 1)
    known.lines_begin([0, *(at + 1 for at, char in enumerate(data) if char == 10), len(data) + 1])
    places = [*range(len(data) + 1), None]
    assert [known.newlines(at) for at in places] == [counting.newlines(at) for at in places]
