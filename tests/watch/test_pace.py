"""The heartbeat of a counter."""

from __future__ import annotations

from itertools import accumulate

import pytest

from diagnose.watch.pulse import LEAST, WARM_UP, Pace


def paced(intervals: list[float], look: float = 0.0) -> Pace:
    pace = Pace()
    for at in accumulate(intervals, initial=100.0):
        pace.step(at, look, 600.0, spoiled=False)
    return pace


def test_few_steps_are_no_heartbeat() -> None:
    assert paced([1.0] * (WARM_UP + LEAST)).bound(6) is None
    assert paced([1.0] * (WARM_UP + LEAST + 1)).bound(6) == 6.0


def test_the_first_intervals_do_not_count() -> None:
    assert paced([300.0, 60.0, *[1.0] * 10]).bound(6) == 6.0


def test_a_long_interval_is_a_pause_and_moves_no_heartbeat() -> None:
    pace = paced([*[1.0] * 20, 40.0, 1.0, 1.0])
    assert pace.heartbeat == 1.0
    assert pace.bound(6) == 60.0


def test_a_pause_beyond_all_patience_is_not_expected_again() -> None:
    assert paced([*[1.0] * 20, 4000.0, 1.0, 1.0]).bound(6) == 6.0


def test_the_spread_counts() -> None:
    assert paced([1.0, 2.0, 3.0, 4.0, 5.0] * 8).bound(6) == pytest.approx(3 + 12 * 1.4826)


def test_steps_faster_than_looks_are_counted() -> None:
    pace = Pace()
    for look in range(40):
        for _ in range(5):
            pace.step(look * 0.25, 0.25, 600.0, spoiled=False)
    assert pace.heartbeat == pytest.approx(0.05)


def test_bursts_are_one_beat() -> None:
    pace = Pace()
    for burst in range(20):
        for _ in range(50):
            pace.step(burst * 60.0, 0.25, 600.0, spoiled=False)
    assert pace.heartbeat == 60.0


def test_spoiled_intervals_are_left_out() -> None:
    pace = paced([1.0] * 12)
    pace.step(pace.at + 500, 0.0, 600.0, spoiled=True)
    pace.step(pace.at + 1, 0.0, 600.0, spoiled=False)
    pace.step(pace.at + 1, 0.0, 600.0, spoiled=False)
    assert pace.bound(6) == 6.0
