"""Jobs counted by cause, host, week or a label of theirs.

`count` groups a typed frame; every grouping has the same columns, so that one table shows any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from diagnose.errors import InputError

CAUSE, HOST, WEEK = "cause", "host", "week"
USER_LABEL = "user-label"  # the label `user`, however it is spelt in the paths
_USER = ("user", "owner", "account")
NOT_SAID = "(not said)"
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


def weeks(jobs: pd.DataFrame) -> list[str]:
    """The Mondays of the fleet's weeks without gaps, the last MAX_WEEKS of them."""
    seen = sorted(set(jobs["week"]) - {""})
    if not seen:
        return []
    last = pd.Timestamp(seen[-1])
    first = max(pd.Timestamp(seen[0]), last - pd.Timedelta(weeks=MAX_WEEKS - 1))
    return [day.strftime("%Y-%m-%d") for day in pd.date_range(first, last, freq="7D")]


def count(jobs: pd.DataFrame, by: str, titles: Mapping[str, str] | None = None) -> list[Group]:
    """The groups, the most expensive first (weeks in order of time).

    `by` is `cause`, `host`, `week`, `user-label`, or the name of any label of the jobs; raises
    InputError for another word. By cause only troubled jobs count. `titles` are those of causes.
    """
    readable = jobs[~jobs["unreadable"]]
    calendar = weeks(jobs)
    if by == CAUSE:
        readable = readable[readable["troubled"]]
        keys: pd.Series[Any] = readable["class"].where(readable["class"] != "", "unknown")
    elif by == WEEK:
        keys = readable["week"]
    elif by == HOST:
        readable = readable.assign(host=_taking_part(readable)).explode("host")
        keys = readable["host"]
    else:
        label = _label(jobs, by)
        keys = readable["labels"].map(lambda labels: labels.get(label, ""))
    whole = max(1, int(jobs["troubled"].sum()))
    keys = keys.fillna("").where(keys.fillna("") != "", NOT_SAID)
    found = [
        _group(str(name), rows, (titles or {}).get(str(name), ""), whole, calendar, by)
        for name, rows in readable.groupby(keys, sort=True)
    ]
    if by != WEEK:
        found.sort(key=lambda group: (-(group.gpu_hours_lost or 0.0), -_bad(group), group.name))
    return found


def _taking_part(jobs: pd.DataFrame) -> list[list[str]]:
    return [
        sorted({*hosts, *culprits})
        for hosts, culprits in zip(jobs["hosts"], jobs["culprit_hosts"], strict=True)
    ]


def _label(jobs: pd.DataFrame, by: str) -> str:
    known = sorted({name for labels in jobs["labels"] for name in labels})
    if by == USER_LABEL:
        by = next((name for name in _USER if name in known), by)
    if by not in known:
        labels = f" or a label of these jobs: {', '.join(known[:20])}"
        none = "; these jobs have no labels (`diagnose scan` takes them from paths)"
        raise InputError(
            f"cannot group by {by!r}: choose cause, host, week{labels if known else none}"
        )
    return by


def _group(
    name: str, rows: pd.DataFrame, title: str, whole: int, calendar: Sequence[str], by: str
) -> Group:
    troubled = rows[rows["troubled"]]
    blamed = victim = None
    paid = troubled
    if by == HOST:
        named = [name in culprits for culprits in troubled["culprit_hosts"]]
        paid = troubled[named]
        blamed = len(paid)
        victim = sum(map(bool, troubled["culprit_hosts"])) - blamed
    cost = paid["gpu_hours_lost"].sum(min_count=1)
    verdicts = rows["verdict"].value_counts()
    times = troubled["time"].dropna()
    weekly = troubled["week"].value_counts()
    return Group(
        name=name,
        title=title,
        jobs=len(rows),
        hung=int(verdicts.get("hung", 0)),
        failed=int(verdicts.get("failed", 0)),
        unknown=int(verdicts.get("unknown", 0)),
        healthy=int(verdicts.get("healthy", 0)),
        running=int(verdicts.get("running", 0)),
        share=round(len(troubled) / whole, 4),
        gpu_hours_lost=hours(cost),
        cost_unknown=int(paid["gpu_hours_lost"].isna().sum()),
        first_seen=times.min().isoformat() if len(times) else None,
        last_seen=times.max().isoformat() if len(times) else None,
        weekly=[int(weekly.get(week, 0)) for week in calendar],
        blamed=blamed,
        victim=victim,
    )


def hours(cost: Any) -> float | None:
    """A sum of GPU-hours as shown: to the hundredth, None if nothing was known."""
    return None if pd.isna(cost) else round(float(cost), 2)


def _bad(group: Group) -> int:
    return group.hung + group.failed + group.unknown
