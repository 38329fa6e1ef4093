"""How regularly lines of progress come."""

from __future__ import annotations

from typing import Any

from diagnose.stories.work import rhythms
from diagnose.timeline.event import Author
from tests.infer.rows import at, step

Row = dict[str, Any]


def row(number: int, seconds: int, **more: Any) -> Row:
    return step(number, time=at("08:00:00") + seconds * 1_000_000_000, **more)


def test_the_interval_is_that_between_lines_and_not_between_steps(make: Any) -> None:
    (one,) = rhythms(make(*(row(100 * n, 30 * n, rank=3) for n in range(5))))
    assert (one.author, one.interval_s, one.pace_s) == (Author("rank", (3,)), 30.0, 0.3)
    assert (one.stride, one.apart, one.last_step, one.pause_s) == (100, 1, 400, 30.0)


def test_one_long_pause_is_remembered_and_is_not_usual(make: Any) -> None:
    times = (0, 10, 400, 410)
    (one,) = rhythms(make(*(row(n, seconds) for n, seconds in enumerate(times))))
    assert (one.interval_s, one.pause_s) == (10.0, 390.0)


def test_what_a_stretch_took_beyond_its_steps_was_a_pause(make: Any) -> None:
    last = [row(1000 + n, 20_000 + 10 * n) for n in range(4)]
    (one,) = rhythms(make(row(0, 0), *last))
    assert one.interval_s == 10.0
    assert one.pause_s == 20_000 * 0.9 - 1000 * 10


def test_authors_are_apart(make: Any) -> None:
    rows = [row(n, 10 * n, rank=rank) for n in range(3) for rank in range(2)]
    assert [(one.author.rank, one.interval_s, one.apart) for one in rhythms(make(*rows))] == [
        (0, 10.0, 2),
        (1, 10.0, 2),
    ]


def test_a_bar_has_its_own_clock(make: Any) -> None:
    rows = [step(n, elapsed_ms=5000 * n) for n in (10, 20, 30)]
    (one,) = rhythms(make(*rows))
    assert (one.interval_s, one.pace_s) == (5.0, 5.0)


def test_many_that_write_as_one_have_a_rough_rhythm(make: Any) -> None:
    (one,) = rhythms(make(row(0, 0), *(row(40, 400, line=397 + n) for n in range(4))))
    assert one.interval_s == 20.0
