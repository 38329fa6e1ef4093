"""The whole fleet report as plain data; every output form is made from it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from diagnose.batch.pages import page_of
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
    running: int
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

    def named(self) -> list[str]:
        """The jobs that are named, each once."""
        jobs = [job for gap in [*self.unknowns, *self.unreadable] for job in gap.examples]
        jobs += [job for item in self.recurring for job in item.examples]
        jobs += [item.job for item in self.worst]
        jobs += [job for suspect in self.nodes.suspects for job in suspect.blamed_jobs]
        return list(dict.fromkeys(jobs))

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

    `titles` are those of the cause classes. `reports` gets the post-mortems which exist in the
    folder `results`, of the jobs that are named here.
    """
    causes, found_nodes = count(jobs, CAUSE, titles), nodes(jobs)
    fleet = Fleet(
        by=by,
        overview=_overview(jobs, len(found_nodes.nodes)),
        weeks=weeks(jobs),
        causes=causes,
        groups=causes if by == CAUSE else count(jobs, by, titles),
        weekly=count(jobs, WEEK),
        recurring=recurring(jobs),
        nodes=found_nodes,
        unknowns=unknowns(jobs),
        unreadable=unreadable(jobs),
        worst=_worst(jobs),
        reports={},
    )
    return replace(fleet, reports=_reports(results, jobs, fleet.named())) if results else fleet


def _overview(jobs: pd.DataFrame, hosts: int) -> Overview:
    verdicts = jobs["verdict"][~jobs["unreadable"]].value_counts()
    troubled = jobs[jobs["troubled"]]
    times = jobs["time"].dropna()
    return Overview(
        jobs=len(jobs),
        hung=int(verdicts.get("hung", 0)),
        failed=int(verdicts.get("failed", 0)),
        healthy=int(verdicts.get("healthy", 0)),
        running=int(verdicts.get("running", 0)),
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


def _reports(results: Path, jobs: pd.DataFrame, named: list[str]) -> dict[str, str]:
    """The post-mortems of these jobs that exist, relative to `results`."""
    sources = dict(zip(jobs["job"], jobs["source"], strict=True))
    pages = {job: page_of(sources[job]) for job in named}
    return {job: page for job, page in pages.items() if os.path.isfile(results / page)}  # noqa: PTH113


def _class_keys(value: Any) -> Any:
    """`cause` of a row is `class` in the JSON, as in `diagnose/2`."""
    if isinstance(value, dict):
        return {
            "class" if key == "cause" and isinstance(item, str) else key: _class_keys(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_class_keys(item) for item in value]
    return value
