"""Whether a cause grows: the last weeks against as many before, and what the next ones will bring.

The rate of incidents per job is compared, so that a busy month is no rise. Retries count once, and
where weeks differ more than chance explains, the interval is as much wider. A cause is called
rising or falling only where the interval of the ratio, widened for the number of causes looked at
(Bonferroni), leaves out 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal

import numpy as np

from diagnose.fleet import intervals
from diagnose.fleet.grouping import NOT_KNOWN
from diagnose.fleet.jobs import NEVER, Jobs

Direction = Literal["rising", "falling", "no change shown"]

WEEKS = 4
ALL = "all causes"
STEADY: Direction = "no change shown"
_LEAST = 5  # incidents in both windows, below which nothing is said of a cause


@dataclass(frozen=True, slots=True)
class Trend:
    """A cause in two windows of weeks: incidents, and how many times as many a job there are now.

    `ratio`, `low` and `high` are None where there is no bound.
    """

    name: str
    before: int
    now: int
    ratio: float | None
    low: float
    high: float | None
    direction: Direction


@dataclass(frozen=True, slots=True)
class Forecast:
    """The next `weeks`, if they bring as many jobs and as much trouble a job as the last ones.

    `low` and `high`: between them the number of incidents falls 19 times of 20. `gpu_hours_lost`
    is None where no cost is known.
    """

    weeks: int
    jobs: int
    incidents: float
    low: float
    high: float
    gpu_hours_lost: float | None


@dataclass(frozen=True, slots=True)
class Trends:
    """`weeks` is the length of a window; `before` and `now` are the Mondays on which they begin."""

    weeks: int
    before: str
    now: str
    jobs_before: int
    jobs_now: int
    causes: list[Trend]
    forecast: Forecast


def trends(jobs: Jobs) -> Trends | None:
    """Of all causes and each; None where there are no two weeks to compare."""
    dated = np.flatnonzero(~jobs.unreadable & (jobs.week != NEVER))
    if not len(dated):
        return None
    week = jobs.week[dated]
    last = int(week.max())
    wide = min(WEEKS, ((last - int(week.min())) // 7 + 1) // 2)
    if wide < 1:
        return None
    at = 2 * wide - 1 - (last - week) // 7  # 0: the first week of the first window
    rows, at = dated[at >= 0], at[at >= 0]
    per_week = np.bincount(at, minlength=2 * wide)
    once = jobs.troubled[rows] & (jobs.incident[rows] == rows)
    codes = jobs.cause.codes[rows[once]]
    table = np.zeros((len(jobs.cause.values), 2 * wide), dtype=np.int64)
    np.add.at(table, (codes, at[once]), 1)
    asked = [code for code in np.argsort(-table.sum(axis=1), kind="stable").tolist()
             if table[code].sum() >= _LEAST]  # fmt: skip
    z = intervals.z_of(len(asked) + 1)
    rows_of = [(ALL, table.sum(axis=0))]
    rows_of += [(jobs.cause.values[code] or NOT_KNOWN, table[code]) for code in asked]
    hours = jobs.gpu_hours_lost[rows[(at >= wide) & jobs.troubled[rows]]]
    monday = last - 7 * (2 * wide - 1)
    return Trends(
        weeks=wide,
        before=str(np.datetime64(monday, "D")),
        now=str(np.datetime64(monday + 7 * wide, "D")),
        jobs_before=int(per_week[:wide].sum()),
        jobs_now=int(per_week[wide:].sum()),
        causes=[_trend(name, counts, per_week, z) for name, counts in rows_of],
        forecast=_forecast(rows_of[0][1], per_week, hours),
    )


def _trend(name: str, counts: np.ndarray, jobs: np.ndarray, z: float) -> Trend:
    wide = len(counts) // 2
    before, now = int(counts[:wide].sum()), int(counts[wide:].sum())
    of_before, of_now = int(jobs[:wide].sum()), int(jobs[wide:].sum())
    spread = intervals.dispersion(counts, _expected(counts, jobs), 2)
    ratio, low, high = intervals.ratio(before, of_before, now, of_now, z, spread)
    direction = STEADY
    if low > 1 or high < 1:
        direction = "rising" if low > 1 else "falling"
    shown = [None if value is None or value == inf else round(value, 3) for value in (ratio, high)]
    return Trend(name, before, now, shown[0], round(low, 3), shown[1], direction)


def _expected(counts: np.ndarray, jobs: np.ndarray) -> np.ndarray:
    """The counts of each week, had its window one rate."""
    wide = len(counts) // 2
    rates = counts.reshape(2, wide).sum(axis=1) / np.maximum(1, jobs.reshape(2, wide).sum(axis=1))
    expected: np.ndarray = jobs * np.repeat(rates, wide)
    return expected


def _forecast(counts: np.ndarray, jobs: np.ndarray, costs: np.ndarray) -> Forecast:
    wide = len(counts) // 2
    now = int(counts[wide:].sum())
    spread = intervals.dispersion(counts, _expected(counts, jobs), 2)
    off = intervals.Z * sqrt(spread * 2 * max(1, now))  # of what was counted, and of what comes
    known = costs[~np.isnan(costs)]
    lost = round(float(known.sum()), 1) if len(known) else None
    return Forecast(
        wide, int(jobs[wide:].sum()), now, round(max(0.0, now - off)), round(now + off), lost
    )


def rising(found: Trends | None) -> Sequence[str]:
    """The causes that rise."""
    causes = found.causes if found else []
    return [one.name for one in causes if one.direction == "rising"]
