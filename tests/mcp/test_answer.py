"""Answers are bounded whatever a job holds, and say what they left out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from diagnose.mcp.answer import SHARE, Answer, data_of, quoted, size, text_of
from tests.sizes import few


def test_what_fits_stays() -> None:
    answer = Answer(["a", "b"], {"rows": [1, 2], "name": "x"}, "ask for less")
    assert text_of(answer) == "a\nb"
    assert data_of(answer) == {"rows": [1, 2], "name": "x"}


def test_lines_that_do_not_fit_are_counted() -> None:
    answer = Answer([f"line {number} " + 'é"' * 100 for number in range(500)], {}, "go on at 7")
    text = text_of(answer)
    kept = text.splitlines()
    assert size(text) <= SHARE
    assert size(text) > SHARE - 1000
    assert kept[-1] == f"… {500 - len(kept) + 1} more lines: go on at 7"
    assert text_of(Answer(["x" * 5000])) == "x" * 1500 + "…"


def test_the_longest_list_is_cut_and_counted() -> None:
    rows = [{"text": "y" * 100, "line": number} for number in range(400)]
    data = data_of(Answer([], {"few": [1, 2, 3], "rows": rows}, "use offset"))
    assert size(data) <= SHARE
    assert data["few"] == [1, 2, 3]
    assert data["rows"] == rows[: len(data["rows"])]
    assert data["left_out"] == {"rows": 400 - len(data["rows"])}
    assert data["more"] == "use offset"
    assert len(rows) == 400  # the answer itself is not changed


def test_a_long_string_is_cut() -> None:
    data = data_of(Answer([], {"a": "x" * 100_000, "b": "short"}))
    assert size(data) <= SHARE
    assert data["a"].endswith("…")
    assert data["b"] == "short"


def test_names_without_end_are_dropped() -> None:
    data = data_of(Answer([], {"states": {f"name-{number}": number for number in range(9999)}}))
    assert data == {"left_out": {"all": 1}, "more": "ask for less"}


def test_quotes() -> None:
    assert quoted("a") == "│ a"
    assert quoted("a", 48) == "│     48  a"


def anything(chance: random.Random, depth: int) -> Any:
    kind = chance.choice("snldd" if depth else "sn")
    if kind == "l":
        return [anything(chance, depth - 1) for _ in range(chance.randrange(30))]
    if kind == "d":
        return {f"k{n}": anything(chance, depth - 1) for n in range(chance.randrange(9))}
    return 'é\x1b"x' * chance.randrange(400) if kind == "s" else chance.randrange(10**9)


@pytest.mark.parametrize("seed", few(range(30), 2))
@pytest.mark.slow
def test_any_data_is_bounded(seed: int) -> None:
    chance = random.Random(seed)
    data = {f"key{number}": anything(chance, 4) for number in range(20)}
    lines = [str(value) for value in data.values()]
    assert size(data_of(Answer(lines, data))) <= SHARE
    assert size(text_of(Answer(lines, data))) <= SHARE
