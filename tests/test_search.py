"""A search is given up for the time that it takes itself, not for what others take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
import regex

from diagnose import search

HURTFUL = regex.compile(r"(?:x+x+)+y")
LINE = "x" * 60


def own_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Each attempt takes this thread so long, beside another thread."""
    ticks: Iterator[float] = (seconds * tick for tick in count())
    monkeypatch.setattr(search, "thread_time", lambda: next(ticks))
    monkeypatch.setattr(search, "cores", lambda: 8)


def test_found() -> None:
    digits = regex.compile(r"\d+")
    match = search.first_match(digits, "step 12 of 30", 1.0)
    assert match is not None
    assert match.group() == "12"
    assert [m.group() for m in search.all_matches(digits, "step 12 of 30", 1.0)] == ["12", "30"]
    assert search.first_match(digits, "none", 1.0) is None


def test_a_line_made_to_hurt_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        search.first_match(HURTFUL, LINE, 0.001)
    with pytest.raises(TimeoutError):
        search.all_matches(HURTFUL, LINE, 0.001)


def test_time_that_others_took_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    own_time(monkeypatch, 0.001)
    given = []

    def attempt(seconds: float) -> str:
        given.append(seconds)
        if seconds < 0.1:
            raise TimeoutError
        return "found"

    assert search._within(0.02, attempt) == "found"
    assert given == [0.02, 0.04, 0.08, 0.16]


@pytest.mark.parametrize(("own", "attempts"), [(0.02, 1), (0.001, 6)])
def test_attempts_end(monkeypatch: pytest.MonkeyPatch, own: float, attempts: int) -> None:
    """With the thread's own time, and with what all cores can take beside it."""
    own_time(monkeypatch, own)
    given = []

    def attempt(seconds: float) -> str:
        given.append(seconds)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        search._within(0.02, attempt)
    assert len(given) == attempts
