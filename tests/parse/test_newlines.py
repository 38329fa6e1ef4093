"""Newlines before places, in whatever order they are asked for, of small pieces and large ones."""

from __future__ import annotations

import random

import pytest

from diagnose.match.shapes import runs
from diagnose.parse import chunk
from diagnose.parse.chunk import Chunk, Newlines


@pytest.mark.parametrize("text", [b"\n", b"a\n\nbcd\nef", b"x"])
@pytest.mark.parametrize("size", [0, 1, 300_001])
@pytest.mark.parametrize("pays", [0, 1 << 40], ids=["numpy", "no numpy"])
def test_newlines_before_a_place(
    text: bytes, size: int, pays: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk, "_PAYS", pays)
    data = (text * size)[:size]
    places = sorted({0, 1, 2, size // 3, size // 2, size - 1, size} & {*range(size + 1)})
    expected = {place: data.count(b"\n", 0, place) for place in places}
    shuffled = random.Random(1).sample(places, len(places))
    for order in (places, places[::-1], shuffled, places * 2):
        asked = Newlines(data)
        assert {place: asked.before(place) for place in order} == expected


def test_a_place_costs_no_more_than_the_way_to_the_nearest_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(chunk, "between", lambda data, start, end: counted.append(end - start) or 0)
    asked = Newlines(bytes(1000))
    for place in (900, 890, 890, 910, 0, 100):
        asked.before(place)
    assert counted == [900, 10, 10, 100]


@pytest.mark.parametrize("data", [b"", b"\n", b"ab\n\nc\n", b"ab\n\nc"])
def test_lines_that_are_known_tell_their_number(data: bytes) -> None:
    known, counting = Chunk(data, 0, 1), Chunk(data, 0, 1)
    known.lines_are(runs(data))
    places = [*range(len(data) + 1), None]
    assert [known.newlines(at) for at in places] == [counting.newlines(at) for at in places]
