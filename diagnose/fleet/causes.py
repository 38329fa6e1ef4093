"""Jobs counted by cause, host, week or a label of theirs.

`count` groups them; every grouping has the same columns, so that one table shows any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.errors import InputError
from diagnose.fleet.columns import moment, positions, split, total
from diagnose.fleet.jobs import NEVER, Jobs

CAUSE, HOST, WEEK = "cause", "host", "week"
USER_LABEL = "user-label"  # the label `user`, however it is spelt in the paths
_USER = ("user", "owner", "account")
NOT_STATED = "(not said)"
MAX_WEEKS = 53


@dataclass(frozen=True, slots=True)
class Group:
    """Some of the jobs.

    `share` is the part of all troubled jobs (hung, failed, unknown) that are in this group.
    `gpu_hours_lost` sums troubled jobs (by host: those it is blamed for), None if no cost is known
    and a lower bound where `cost_unknown` jobs lack it. `weekly` counts troubled jobs in the weeks
    of the fleet. `blamed` and `victim` are for hosts: jobs that name it as a culprit, and jobs in
    which another host is named.
    """

    name: str
    title: str
    jobs: int
    hung: int
    failed: int
    unknown: int
    healthy: int
    running: int
    share: float
    gpu_hours_lost: float | None
    cost_unknown: int
    first_seen: str | None
    last_seen: str | None
    weekly: list[int]
    blamed: int | None = None
    victim: int | None = None


def weeks(jobs: Jobs) -> list[str]:
    """The Mondays of the fleet's weeks without gaps, the last MAX_WEEKS of them."""
    return [_date(week) for week in _weeks(jobs)]


def _weeks(jobs: Jobs) -> range:
    seen = jobs.week[jobs.week != NEVER]
    if not len(seen):
        return range(0)
    last = int(seen.max())
    return range(max(int(seen.min()), last - 7 * (MAX_WEEKS - 1)), last + 1, 7)


def _date(day: int) -> str:
    return "" if day == NEVER else str(np.datetime64(day, "D"))


@dataclass(frozen=True, slots=True)
class _Places:
    """The places of jobs in groups: `rows[at]` is in the group called `names[keys[at]]`.

    `paid` marks where the cost of the job is put on this group, None for all.
    """

    rows: np.ndarray
    keys: np.ndarray
    names: list[str]
    paid: np.ndarray | None = None


def count(jobs: Jobs, by: str, titles: Mapping[str, str] | None = None) -> list[Group]:
    """The groups, the most expensive first (weeks in order of time).

    `by` is `cause`, `host`, `week`, `user-label`, or the name of any label of the jobs; raises
    InputError for another word. By cause only troubled jobs count. `titles` are those of causes.
    """
    found = _groups(jobs, _places(jobs, by), titles or {})
    if by == WEEK:
        return sorted(found, key=lambda group: group.name)
    return sorted(
        found, key=lambda group: (-(group.gpu_hours_lost or 0.0), -_bad(group), group.name)
    )


def _places(jobs: Jobs, by: str) -> _Places:
    readable = np.flatnonzero(~jobs.unreadable)
    if by == CAUSE:
        causes = jobs.cause.renamed(lambda name: name or "unknown")
        rows = np.flatnonzero(jobs.troubled)
        return _Places(rows, causes.codes[rows], list(causes.values))
    if by == WEEK:
        days, keys = np.unique(jobs.week[readable], return_inverse=True)
        return _Places(readable, keys, [_date(int(day)) or NOT_STATED for day in days])
    if by == HOST:
        return _host_places(jobs)
    label = _label(jobs, by)
    stated = jobs.labels.renamed(lambda labels: labels.get(label) or NOT_STATED)
    return _Places(readable, stated.codes[readable], list(stated.values))


def _host_places(jobs: Jobs) -> _Places:
    """Hosts and culprits of each job; one without any is in the group of those."""
    hosts, culprits = (lists.only(~jobs.unreadable) for lists in (jobs.hosts, jobs.culprit_hosts))
    both = hosts.union(culprits)
    alone = np.flatnonzero(~jobs.unreadable & (both.lengths() == 0))
    rows = np.concatenate((both.rows, alone))
    keys = np.concatenate((both.items, np.full(len(alone), len(both.values))))
    paid = np.zeros(len(rows), dtype=bool)
    paid[positions(culprits.keys(), both.keys())[1]] = True
    return _Places(rows, keys, [*both.values, NOT_STATED], paid)


def _label(jobs: Jobs, by: str) -> str:
    known = sorted({name for labels in jobs.labels.values for name in labels})
    if by == USER_LABEL:
        by = next((name for name in _USER if name in known), by)
    if by not in known:
        labels = f" or a label of these jobs: {', '.join(known[:20])}"
        none = "; these jobs have no labels (`diagnose scan` takes them from paths)"
        raise InputError(
            f"cannot group by {by!r}: choose cause, host, week{labels if known else none}"
        )
    return by


def _groups(jobs: Jobs, places: _Places, titles: Mapping[str, str]) -> list[Group]:
    """Each group that has a job."""
    size, by_host = len(places.names), places.paid is not None
    verdicts = _table(places.keys, jobs.verdict.codes[places.rows], size, len(jobs.verdict.values))
    of = {name: verdicts[:, code].tolist() for code, name in enumerate(jobs.verdict.values)}
    none = [0] * size
    bad = jobs.troubled[places.rows]
    rows, keys = places.rows[bad], places.keys[bad]
    troubled = np.bincount(keys, minlength=size).tolist()
    whole = max(1, int(jobs.troubled.sum()))
    calendar = _weeks(jobs)
    weekly = _table(*_in_weeks(keys, jobs.week[rows], calendar), size, len(calendar)).tolist()
    first, last = _spans(keys, jobs.time[rows], size)
    accused = np.bincount(keys[jobs.culprit_hosts.lengths()[rows] > 0], minlength=size).tolist()
    paid = rows, keys
    if places.paid is not None:
        paid = rows[places.paid[bad]], keys[places.paid[bad]]
    blamed = np.bincount(paid[1], minlength=size).tolist()
    costs = {key: jobs.gpu_hours_lost[paid[0][at]] for key, at in split(paid[1])}
    lost = {key: total(hours) for key, hours in costs.items()}
    unpriced = {key: int(np.isnan(hours).sum()) for key, hours in costs.items()}
    return [
        Group(
            name=places.names[key],
            title=titles.get(places.names[key], ""),
            jobs=int(verdicts[key].sum()),
            hung=of.get("hung", none)[key],
            failed=of.get("failed", none)[key],
            unknown=of.get("unknown", none)[key],
            healthy=of.get("healthy", none)[key],
            running=of.get("running", none)[key],
            share=round(troubled[key] / whole, 4),
            gpu_hours_lost=hours(lost.get(key)),
            cost_unknown=unpriced.get(key, 0),
            first_seen=moment(first[key]),
            last_seen=moment(last[key]),
            weekly=weekly[key],
            blamed=blamed[key] if by_host else None,
            victim=accused[key] - blamed[key] if by_host else None,
        )
        for key in np.flatnonzero(verdicts.sum(axis=1)).tolist()
    ]


def _table(rows: np.ndarray, columns: np.ndarray, height: int, width: int) -> np.ndarray:
    """How often each pair occurs."""
    cells = np.bincount(rows.astype(np.int64) * width + columns, minlength=height * width)
    return cells.reshape(height, width)


def _in_weeks(keys: np.ndarray, week: np.ndarray, calendar: range) -> tuple[np.ndarray, np.ndarray]:
    """The keys whose week is in the calendar, and its place there."""
    inside = (week >= calendar.start) & (week != NEVER)
    return keys[inside], (week[inside] - calendar.start) // 7


def _spans(keys: np.ndarray, times: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last time of each key; NaT where it has none."""
    first, last = (np.full(size, np.datetime64("NaT", "us")) for _ in range(2))
    np.fmin.at(first, keys, times)
    np.fmax.at(last, keys, times)
    return first, last


def hours(cost: float | None) -> float | None:
    """A sum of GPU-hours as shown: to the hundredth, None if nothing was known."""
    return None if cost is None else round(cost, 2)


def _bad(group: Group) -> int:
    return group.hung + group.failed + group.unknown
