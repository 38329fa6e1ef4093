"""Since which version a cause is more frequent; chance, and what has no order, names none."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest

from diagnose.fleet.since import Since, _exact, _Table, since
from tests.fleet.frames import failed, frame, row, typed

VERSIONS = ("2.3.0", "2.4.0", "2.9.1", "2.10.0", "2.11.0rc1", "2.11.0")
JOBS = 24  # of a version


def found(
    wrong: Sequence[int],
    values: Sequence[str] = VERSIONS,
    label: str = "torch",
    *,
    hosts: int = 9999,
) -> list[Since]:
    """What is said of jobs of these versions, of which so many failed; all are used all along."""
    rows = []
    for at in range(JOBS * len(values)):
        number, turn = at % len(values), at // len(values)
        make = failed if (turn * 7 + number * 5) % JOBS < wrong[number] else row
        versions = {label: values[number]}
        rows.append(make(f"job-{at}", at / 3, versions=versions, hosts=[f"n{at % hosts}"]))
    return since(typed(frame(*rows)))


def test_the_first_bad_version_is_named() -> None:
    both = found((1, 1, 1, 14, 13, 15))
    assert [one.name for one in both] == ["all causes", "crash.exception"]
    one = both[0]
    assert (one.label, one.first, one.until) == ("torch", "2.10.0", None)
    assert (one.earliest, one.latest) == ("2.10.0", "2.10.0")
    assert (one.before, one.jobs_before, one.now, one.jobs_now) == (3, 72, 42, 72)
    assert one.ratio == 14
    assert one.low < 14
    assert one.p < 0.005


def test_a_release_candidate_comes_before_its_release() -> None:
    assert found((1, 1, 1, 1, 14, 15))[0].first == "2.11.0rc1"


def test_what_was_fixed_has_an_end() -> None:
    one = found((1, 0, 16, 17, 1, 0))[0]
    assert (one.first, one.until) == ("2.9.1", "2.11.0rc1")


def test_a_step_between_two_leaves_open_which_was_first() -> None:
    one = found((1, 1, 1, 6, 14, 14))[0]
    assert VERSIONS.index(one.earliest) <= VERSIONS.index(one.first) <= VERSIONS.index(one.latest)
    assert one.earliest != one.latest


def test_images_are_ordered_by_their_tags() -> None:
    images = tuple(f"registry.example/pytorch:25.{month:02d}-py3" for month in range(3, 9))
    assert found((1, 1, 1, 13, 15, 14), images, "image")[0].first == images[3]


@pytest.mark.parametrize(
    "wrong", [(4, 5, 4, 5, 4, 5), (2, 2, 3, 4, 4, 5), (0,) * 6, (14, 14, 14, 1, 1, 1)]
)
def test_nothing_is_named_without_a_rise(wrong: tuple[int, ...]) -> None:
    assert found(wrong) == []


def test_names_without_an_order_are_no_versions() -> None:
    users = tuple(f"user{number}" for number in range(1, 7))
    assert found((1, 1, 1, 14, 15, 14), users, "user") == []


def test_retries_count_once() -> None:
    assert found((1, 1, 1, 14, 14, 14), hosts=1)[0].now < 42


def _fleet(*jobs: tuple[str, int, int, bool]) -> list[Since]:
    """What is said of jobs by version, week, number of ranks and whether they failed."""
    rows = []
    for at, (torch, week, ranks, bad) in enumerate(jobs):
        make, day = failed if bad else row, week * 7 + at % 7
        rows.append(
            make(f"job-{at}", day, versions={"torch": torch}, hosts=[f"n{at}"], ranks=ranks)
        )
    return since(typed(frame(*rows)))


def _of_weeks(before: int, after: int, kept: int, weeks: int = 20) -> list[Since]:
    """Of 10 jobs a week so many fail; 2.6.0 comes amid the weeks, a few keep 2.5.0."""
    jobs = []
    for week in range(weeks):
        new = week >= weeks // 2
        jobs += [("2.5.0", week, 8, n < before) for n in range(0 if new else 10)]
        jobs += [("2.5.0", week, 8, n < kept) for n in range(4 if new else 0)]
        jobs += [("2.6.0", week, 8, n < after) for n in range(6 if new else 0)]
    return _fleet(*jobs)


@pytest.mark.parametrize(
    ("after", "kept", "named"),
    [
        (3, 0, ("torch", [])),  # those that kept the old version never fail
        (5, 1, ("torch", ["week 2025-08-11"])),  # they fail, but those of the new one more
        (3, 2, ("week", [])),  # they fail as often
    ],
)
def test_jobs_of_both_versions_in_one_week_decide(
    after: int, kept: int, named: tuple[str, list[str]]
) -> None:
    best = _of_weeks(0, after, kept)[0]
    assert (best.label, best.also) == named
    assert best.first == ("2.6.0" if best.label == "torch" else "2025-08-11")


def test_larger_jobs_are_no_cause() -> None:
    """Four of five large jobs fail, one of ten small ones; most jobs of 2.6.0 are large."""
    jobs = []
    for at in range(400):
        torch = "2.6.0" if at % 2 else "2.5.0"
        large = at % 20 < 10 + 8 * (at % 2) and at % 10 < 6 + 3 * (at % 2)
        jobs.append((torch, at // 20, 512 if large else 8, at // 40 < 8 if large else at // 40 < 1))
    assert _fleet(*jobs) == []


def test_chances_of_many_jobs_do_not_take_for_ever() -> None:
    """Two sizes of jobs, of which all but a few are of one side and most have the cause."""
    table = _Table(np.array([[10, 499_990]] * 2), np.array([[3, 299_997]] * 2))
    began = time.process_time()
    assert _exact(table, slice(1, 2)) == pytest.approx(0.00647, rel=0.01)
    assert time.process_time() - began < 1


def test_weeks_that_vary_without_end_name_none() -> None:
    shares = (
        2,
        3,
        1,
        4,
        3,
        2,
        4,
        2,
        15,
        4,
        3,
        3,
        3,
        8,
        3,
        4,
        2,
        2,
        3,
        3,
        4,
        2,
        2,
        2,
        6,
        2,
        2,
        1,
        1,
        6,
    )
    jobs = [
        (f"2.{5 + (week > 9) + (week > 19)}.0", week, 8, n < share)  # of 30 a week
        for week, share in enumerate(shares)
        for n in range(30)
    ]
    assert _fleet(*jobs) == []
