"""Whether a cause grows, held against chance."""

import random
from typing import Any

import pytest

from diagnose.fleet import intervals
from diagnose.fleet.trend import ALL, STEADY, Trends, rising, trends
from diagnose.report.fleet import words

from .frames import failed, frame, row, typed


def weeks(*failing: int, jobs: int | tuple[int, ...] = 100) -> list[dict[str, Any]]:
    """Of so many jobs a week, the first so many fail."""
    rows, cause = [], "hw.gpu"
    each = jobs if isinstance(jobs, tuple) else (jobs,) * len(failing)
    for week, (bad_ones, all_jobs) in enumerate(zip(failing, each, strict=True)):
        for number in range(all_jobs):
            name, day = f"{cause}-{week}-{number}", 7 * week + number % 7
            bad = number < bad_ones
            mark = {"fingerprint": name, "hosts": [name], "culprit_hosts": [name]}
            rows.append(failed(name, day, **{"class": cause}, **mark) if bad else row(name, day))
    return rows


def of(*rows: dict[str, Any]) -> Trends:
    found = trends(typed(frame(*rows)))
    assert found is not None
    return found


def test_a_cause_that_triples_is_rising() -> None:
    found = of(*weeks(*[8] * 4, *[24] * 4))
    assert (found.weeks, found.before, found.now) == (4, "2025-06-02", "2025-06-30")
    assert [one.name for one in found.causes] == [ALL, "hw.gpu"]
    one = found.causes[1]
    assert (one.before, one.now, one.ratio, one.direction) == (32, 96, 3.0, "rising")
    assert 1 < one.low < 3 < (one.high or 0)
    assert rising(found) == [ALL, "hw.gpu"]
    back = of(*weeks(*[24] * 4, *[8] * 4))
    assert back.causes[1].direction == "falling"


def test_a_busy_month_is_no_rise() -> None:
    """Twice as many jobs with twice as many failures."""
    found = of(*weeks(*[10] * 4, *[20] * 4, jobs=(100,) * 4 + (200,) * 4))
    assert (found.causes[1].before, found.causes[1].now) == (40, 80)
    assert found.causes[1].ratio == 1.0
    assert found.causes[1].direction == STEADY


def test_retries_count_once() -> None:
    rows = weeks(*[6] * 8)
    again = [one | {"job": f"{one['job']}-{n}"} for one in rows if one["verdict"] == "failed"
             and one["ended"] >= "2025-06-30" for n in range(5)]  # fmt: skip
    found = of(*rows, *again)
    assert (found.causes[1].before, found.causes[1].now) == (24, 24)


def test_one_bad_week_is_no_trend() -> None:
    """Weeks that vary more than chance explains widen the interval."""
    found = of(*weeks(2, 2, 2, 2, 2, 40, 2, 2))
    assert found.causes[1].ratio == pytest.approx(46 / 8, abs=0.01)
    assert found.causes[1].direction == STEADY


@pytest.mark.slow
def test_chance_alone_seldom_is_a_trend() -> None:
    rng = random.Random(4)
    called = 0
    for _ in range(60):
        counts = [sum(rng.random() < 0.1 for _ in range(100)) for _ in range(8)]
        found = of(*weeks(*counts))
        called += found.causes[0].direction != STEADY
    assert called <= 3


def test_the_next_weeks_are_like_the_last_ones() -> None:
    found = of(*weeks(*[10] * 8)).forecast
    assert (found.weeks, found.jobs, found.incidents) == (4, 400, 40)
    assert (found.low, found.high) == (22, 58)  # 40 ± 1.96 √(2 × 40)
    assert found.gpu_hours_lost is None


def test_one_week_has_no_trend() -> None:
    assert trends(typed(frame(*weeks(5)))) is None
    assert rising(None) == []


def test_intervals_of_tables() -> None:
    """Wilson's and Byar's, against values of statistics books."""
    assert intervals.share(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    assert intervals.share(0, 0) == (0.0, 1.0)
    assert intervals.count(10) == pytest.approx((4.8, 18.4), abs=0.1)
    assert intervals.count(0) == pytest.approx((0.0, 3.69), abs=0.1)
    assert intervals.ratio(0, 10, 0, 10)[0] is None
    found, low, high = intervals.ratio(0, 100, 8, 100)
    assert found is None
    assert low > 1
    assert high == float("inf")


def test_without_incidents_before_a_bound_is_named_or_nothing() -> None:
    many, few = (of(*weeks(*[0] * 4, *now)).causes[0] for now in ([9] * 4, [0] * 4))
    assert words.trend(many).startswith("36 incidents, 0 before: at least ×")
    assert words.trend(few) == "0 incidents, 0 before: too few to compare, no change shown"
