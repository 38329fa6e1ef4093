"""Jobs counted by cause, host, week, size or a label of theirs.

`count` groups them; every grouping has the same columns, so that one table shows any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.fleet import intervals
from diagnose.fleet.columns import moment, split, total
from diagnose.fleet.grouping import CAUSE, NOT_KNOWN, ORDERED, Places, date, places_of
from diagnose.fleet.jobs import NEVER, Jobs

MAX_WEEKS = 53
MAX_GROUPS = 5000  # by a label with more values the rest is one group
MAX_EXAMPLES = 5
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Group:
    """Some of the jobs.

    `share` is the part of all troubled jobs (hung, failed, unknown) that are in this group, `rate`
    the part of its jobs that are troubled (by cause: of all jobs), with `rate_low` and `rate_high`
    (Wilson, 95 %). `causes` counts its troubled jobs by cause, `examples` are the last of them.
    `gpu_hours_lost` sums troubled jobs (by host: those it is blamed for), None if there are some
    and no cost is known, and a lower bound where `cost_unknown` jobs lack it. `weekly` counts
    troubled jobs in the weeks of the fleet. `blamed` and `victim` are for hosts: jobs that name it
    as a culprit, and jobs in which another host is named. `other` went wrong for causes that are
    not asked for.
    """

    name: str
    title: str
    jobs: int
    hung: int
    failed: int
    unknown: int
    healthy: int
    running: int
    other: int
    share: float
    rate: float
    rate_low: float
    rate_high: float
    gpu_hours_lost: float | None
    cost_unknown: int
    first_seen: str | None
    last_seen: str | None
    weekly: list[int]
    causes: dict[str, int]
    examples: list[str]
    blamed: int | None = None
    victim: int | None = None

    @property
    def troubled(self) -> int:
        """Jobs that hung, failed, or nobody knows."""
        return self.hung + self.failed + self.unknown


def weeks(jobs: Jobs) -> list[str]:
    """The Mondays of the fleet's weeks without gaps, the last MAX_WEEKS of them."""
    return [date(week) for week in _weeks(jobs)]


def _weeks(jobs: Jobs) -> range:
    seen = jobs.week[jobs.week != NEVER]
    if not len(seen):
        return range(0)
    last = int(seen.max())
    return range(max(int(seen.min()), last - 7 * (MAX_WEEKS - 1)), last + 1, 7)


def count(jobs: Jobs, by: str, titles: Mapping[str, str] | None = None) -> list[Group]:
    """The groups, the most expensive first (weeks and sizes in their order).

    `by` is a word that `grouping` knows; raises InputError for another one. By cause only troubled
    jobs count. `titles` are those of causes.
    """
    places = places_of(jobs, by)
    found = _groups(jobs, _bounded(jobs, places), titles or {}, of_all=by == CAUSE)
    if by in ORDERED:
        order = {name: at for at, name in enumerate(places.names)}
        return sorted(found, key=lambda group: order[group.name])
    return sorted(found, key=lambda one: (-(one.gpu_hours_lost or 0.0), -one.troubled, one.name))


def _bounded(jobs: Jobs, places: Places) -> Places:
    """The same places with at most MAX_GROUPS groups: what has least trouble is one."""
    size = len(places.names)
    if size <= MAX_GROUPS:
        return places
    bad = np.bincount(places.keys[jobs.troubled[places.rows]], minlength=size)
    kept = np.sort(np.argsort(-bad, kind="stable")[: MAX_GROUPS - 1])
    new = np.full(size, len(kept))
    new[kept] = np.arange(len(kept))
    names = [*(places.names[at] for at in kept.tolist()), OTHERS]
    return Places(places.rows, new[places.keys], names, places.paid)


def _groups(jobs: Jobs, places: Places, titles: Mapping[str, str], *, of_all: bool) -> list[Group]:
    """Each group that has a job; `of_all`: its rate is that of all jobs."""
    size, by_host = len(places.names), places.paid is not None
    verdicts = _table(places.keys, jobs.verdict.codes[places.rows], size, len(jobs.verdict.values))
    of = {name: verdicts[:, code].tolist() for code, name in enumerate(jobs.verdict.values)}
    none = [0] * size
    bad = jobs.troubled[places.rows]
    rows, keys = places.rows[bad], places.keys[bad]
    troubled = np.bincount(keys, minlength=size).tolist()
    whole = max(1, int(jobs.troubled.sum()))
    calendar = _weeks(jobs)
    week = jobs.week[rows]
    inside = (week >= calendar.start) & (week != NEVER)
    places_in = (week[inside] - calendar.start) // 7
    weekly = _table(keys[inside], places_in, size, len(calendar)).tolist()
    first, last = _spans(keys, jobs.time[rows], size)
    accused = np.bincount(keys[jobs.culprit_hosts.lengths()[rows] > 0], minlength=size).tolist()
    paid = rows, keys
    if places.paid is not None:
        paid = rows[places.paid[bad]], keys[places.paid[bad]]
    blamed = np.bincount(paid[1], minlength=size).tolist()
    costs = {key: jobs.gpu_hours_lost[paid[0][at]] for key, at in split(paid[1])}

    causes = _table(keys, jobs.cause.codes[rows], size, len(jobs.cause.values))
    latest = _latest(jobs, rows, keys, size)
    every = int((~jobs.unreadable).sum())
    found = []
    for key in np.flatnonzero(verdicts.sum(axis=1)).tolist():
        of_these = every if of_all else int(verdicts[key].sum())
        low, high = intervals.share(troubled[key], of_these)
        found.append(
            Group(
                name=places.names[key],
                title=titles.get(places.names[key], ""),
                jobs=int(verdicts[key].sum()),
                **{name: of.get(name, none)[key] for name in _VERDICTS},
                share=round(troubled[key] / whole, 4),
                rate=round(troubled[key] / max(1, of_these), 4),
                rate_low=round(low, 4),
                rate_high=round(high, 4),
                gpu_hours_lost=hours(total(costs[key]) if key in costs else 0.0),
                cost_unknown=int(np.isnan(costs.get(key, ())).sum()),
                first_seen=moment(first[key]),
                last_seen=moment(last[key]),
                weekly=weekly[key],
                causes=_by_cause(causes[key], jobs.cause.values),
                examples=latest.get(key, []),
                blamed=blamed[key] if by_host else None,
                victim=accused[key] - blamed[key] if by_host else None,
            )
        )
    return found


_VERDICTS = ("hung", "failed", "unknown", "healthy", "running", "other")


def _by_cause(counts: np.ndarray, causes: Sequence[str]) -> dict[str, int]:
    """How many jobs have each cause, the most frequent first."""
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    return {causes[at] or NOT_KNOWN: int(counts[at]) for at in order.tolist()}


def _latest(jobs: Jobs, rows: np.ndarray, keys: np.ndarray, size: int) -> dict[int, list[str]]:
    """The last jobs of each group, the latest first."""
    times = jobs.time[rows].astype(np.int64)
    order = np.lexsort((times, keys))
    ends = np.searchsorted(keys[order], np.arange(size), side="right")
    begins = np.maximum(np.searchsorted(keys[order], np.arange(size)), ends - MAX_EXAMPLES)
    picked = [rows[order[begin:end]][::-1] for begin, end in zip(begins, ends, strict=True)]
    names = iter(jobs.names(np.concatenate([*picked, np.zeros(0, dtype=np.int64)])))
    return {key: [next(names) for _ in some] for key, some in enumerate(picked)}


def _table(rows: np.ndarray, columns: np.ndarray, height: int, width: int) -> np.ndarray:
    """How often each pair occurs."""
    cells = np.bincount(rows.astype(np.int64) * width + columns, minlength=height * width)
    return cells.reshape(height, width)


def _spans(keys: np.ndarray, times: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last time of each key; NaT where it has none."""
    first, last = (np.full(size, np.datetime64("NaT", "us")) for _ in range(2))
    np.fmin.at(first, keys, times)
    np.fmax.at(last, keys, times)
    return first, last


def hours(cost: float | None) -> float | None:
    """A sum of GPU-hours as shown: to the hundredth, None if nothing was known."""
    return None if cost is None else round(cost, 2)
