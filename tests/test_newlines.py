"""Newlines are counted by blocks, of small pieces and of large ones."""

from __future__ import annotations

import pytest

from diagnose.newlines import BLOCK, before, counted


@pytest.mark.parametrize("text", [b"\n", b"a\n\nbcd\nef", b"x"])
@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 200 * BLOCK, 300_001])
def test_newlines_before_a_place(text: bytes, size: int) -> None:
    data = (text * size)[:size]
    counts = counted(data)
    places = {0, 1, BLOCK - 1, BLOCK, size // 2, size - 1, size}
    told = {place: before(place, data, counts) for place in places if 0 <= place <= size}
    assert told == {place: data.count(b"\n", 0, place) for place in told}
