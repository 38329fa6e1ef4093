"""Lines told by their runs are the lines that splitting gives."""

from __future__ import annotations

import random

import pytest

from diagnose.match.rows import shape
from diagnose.match.shapes import runs

TEXTS = [
    b"",
    b"\n",
    b"\n\n\n",
    b"a",
    b"a\na\n",
    b"aa\na\na\nba\na\na",
    b"step 1\nstep 2\nstep 10\nstep 11\nstep 12\n\n\nend\n",
    b"a\nb\n" * 150 + b"c\n" * 9 + b"d",
    b"step 7\n" * 1000 + b"x step 7\nstep 7\nstep 7 y\n" * 3,
]


def shapes_of(data: bytes) -> list[bytes]:
    return shape(data).split(b"\n")


def mixed(seed: int) -> bytes:
    made = random.Random(seed)
    lines = [b"", b"0", b"1", b"00", b"a0", b"a", b"aa 3", b"a0\na0"]
    return b"\n".join(made.choice(lines) for _ in range(made.randrange(60)))


@pytest.mark.parametrize("data", [*TEXTS, *map(mixed, range(60))])
def test_lines_are_those_of_splitting(data: bytes) -> None:
    told, shapes = runs(data), shapes_of(data)
    assert len(told) == len(shapes)
    assert [told.kind(number) for number in range(len(told))] == shapes
    spans = [told.span(number) for number in range(len(told))]
    assert [data[start:end] for start, end in spans] == data.split(b"\n")
    for step in (1, 3):
        some = range(0, len(told), step)
        assert [*told.spans(some)] == [(number, *spans[number]) for number in some]
    for place in range(len(data) + 1):
        number = data.count(b"\n", 0, place)
        assert told.at(place) == (number, *spans[number])


@pytest.mark.parametrize("data", [*TEXTS, *map(mixed, range(60))])
def test_backwards_gives_the_lines_before_a_place(data: bytes) -> None:
    told, shapes = runs(data), shapes_of(data)
    kinds = {b"step 0", b"a", b"0", b""}
    for high in {0, 1, len(data) // 2, len(data), len(data) + 1}:
        before = [
            (number, told.span(number)[0], same)
            for number, same in enumerate(shapes)
            if same in kinds and told.span(number)[0] < high
        ]
        assert list(told.backwards(kinds, high)) == before[::-1]


def test_a_kind_that_was_removed_is_passed_over() -> None:
    told = runs(b"a 1\na 2\nb\na 3\na 4\nb\n")
    kinds, numbers = {b"a 0", b"b"}, []
    for number, _, same in told.backwards(kinds, 100):
        numbers.append(number)
        kinds.discard(same)
    assert numbers == [5, 4]


def test_neighbours_are_one_run() -> None:
    told = runs(b"a 1\na 2\na 3\nb\na 4\n")
    assert told.kinds == [b"a 0", b"b", b"a 0", b""]
    found = [([*numbers], [*starts]) for _, numbers, starts in told.lines_of({b"a 0"})]
    assert found == [([0, 1, 2], [told.span(n)[0] for n in range(3)]), ([4], [told.span(4)[0]])]
