"""The whole fleet report as plain data; every output form is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from diagnose.fleet.causes import CAUSE, WEEK, Group, count, hours, weeks
from diagnose.fleet.nodes import Nodes, nodes
from diagnose.fleet.recurring import Recurring, recurring
from diagnose.fleet.unknowns import Gap, unknowns, unreadable

SCHEMA = "diagnose-fleet/1"
MAX_WORST = 20


@dataclass(frozen=True, slots=True)
class Overview:
    """All jobs in numbers. Times are UTC; `cost_unknown` troubled jobs have no GPU-hours."""

    jobs: int
    hung: int
    failed: int
    healthy: int
    unknown: int
    unreadable: int
    hosts: int
    gpu_hours_lost: float | None
    cost_unknown: int
    first_seen: str | None
    last_seen: str | None


@dataclass(frozen=True, slots=True)
class Worst:
    """An expensive job."""

    job: str
    title: str
    cause: str
    verdict: str
    culprit_hosts: list[str]
    time: str | None
    gpu_hours_lost: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is said of the fleet. `groups` are by `by`, `causes` always by cause."""

    by: str
    overview: Overview
    weeks: list[str]
    causes: list[Group]
    groups: list[Group]
    weekly: list[Group]
    recurring: list[Recurring]
    nodes: Nodes
    unknowns: list[Gap]
    unreadable: list[Gap]
    worst: list[Worst]
    reports: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Schema `diagnose-fleet/1`: every key is always there; missing values are null."""
        data: dict[str, Any] = _class_keys(asdict(self))
        return {"schema": SCHEMA, **data, "reports": dict(self.reports)}


def summarise(
    jobs: pd.DataFrame,
    *,
    by: str = CAUSE,
    titles: Mapping[str, str] | None = None,
    results: Path | None = None,
) -> Fleet:
    """Everything about a typed frame of jobs.

    `titles` are those of the cause classes. `reports` gets the post-mortems (`reports/JOB.html`)
    which exist in the folder `results`, of the jobs that are named here.
    """
    causes = count(jobs, CAUSE, titles)
    found_nodes, gaps, unread = nodes(jobs), unknowns(jobs), unreadable(jobs)
    repeats, worst = recurring(jobs), _worst(jobs)
    named = [job for gap in [*gaps, *unread] for job in gap.examples]
    named += [job for item in repeats for job in item.examples] + [item.job for item in worst]
    named += [job for suspect in found_nodes.suspects for job in suspect.blamed_jobs]
    return Fleet(
        by=by,
        overview=_overview(jobs, len(found_nodes.nodes)),
        weeks=weeks(jobs),
        causes=causes,
        groups=causes if by == CAUSE else count(jobs, by, titles),
        weekly=count(jobs, WEEK),
        recurring=repeats,
        nodes=found_nodes,
        unknowns=gaps,
        unreadable=unread,
        worst=worst,
        reports=_reports(results, named) if results else {},
    )


def _overview(jobs: pd.DataFrame, hosts: int) -> Overview:
    verdicts = jobs["verdict"][~jobs["unreadable"]].value_counts()
    troubled = jobs[jobs["troubled"]]
    times = jobs["time"].dropna()
    return Overview(
        jobs=len(jobs),
        hung=int(verdicts.get("hung", 0)),
        failed=int(verdicts.get("failed", 0)),
        healthy=int(verdicts.get("healthy", 0)),
        unknown=int(verdicts.get("unknown", 0)),
        unreadable=int(jobs["unreadable"].sum()),
        hosts=hosts,
        gpu_hours_lost=hours(troubled["gpu_hours_lost"].sum(min_count=1)),
        cost_unknown=int(troubled["gpu_hours_lost"].isna().sum()),
        first_seen=times.min().isoformat() if len(times) else None,
        last_seen=times.max().isoformat() if len(times) else None,
    )


def _worst(jobs: pd.DataFrame) -> list[Worst]:
    rows = jobs[jobs["troubled"] & (jobs["gpu_hours_lost"] > 0)]
    rows = rows.sort_values(["gpu_hours_lost", "job"], ascending=[False, True]).head(MAX_WORST)
    return [
        Worst(job, title, cause, verdict, hosts, None if pd.isna(time) else time.isoformat(),
              round(float(cost), 2))
        for job, title, cause, verdict, hosts, time, cost in zip(
            rows["job"], rows["title"], rows["class"], rows["verdict"], rows["culprit_hosts"],
            rows["time"], rows["gpu_hours_lost"], strict=True,
        )
    ]  # fmt: skip


def _reports(results: Path, named: list[str]) -> dict[str, str]:
    """The post-mortems of these jobs that exist, relative to `results`.

    Names of jobs come from archives: one that leads out of the folder has no post-mortem.
    """
    found = {}
    for job in dict.fromkeys(named):
        parts = f"{job}.html".split("/")
        if not job or {"", ".", ".."} & set(parts) or "\0" in job:
            continue
        path = Path("reports", *parts)
        try:
            if (results / path).is_file():
                found[job] = path.as_posix()
        except OSError:  # a name too long for a file
            continue
    return found


def _class_keys(value: Any) -> Any:
    """`cause` of a row is `class` in the JSON, as in `diagnose/1`."""
    if isinstance(value, dict):
        return {
            "class" if key == "cause" and isinstance(item, str) else key: _class_keys(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_class_keys(item) for item in value]
    return value
