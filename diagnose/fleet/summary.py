"""The whole fleet report as plain data; every output form is made from it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.batch.names import REPORTS, page_of
from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Catalog
from diagnose.fleet.causes import Group, count, hours, weeks
from diagnose.fleet.columns import UNKNOWN, moment, span, total
from diagnose.fleet.grouping import CAUSE, WEEK
from diagnose.fleet.jobs import OTHER, Jobs
from diagnose.fleet.nodes import Nodes, nodes
from diagnose.fleet.recurring import Gap, Recurring, recurring, unknowns, unreadable
from diagnose.fleet.reliability import CHECKPOINT_H, Reliability, reliability
from diagnose.fleet.since import Since, since
from diagnose.fleet.trend import Trends, trends
from diagnose.parse.topology import Topology

SCHEMA = "diagnose-fleet/1"
MAX_WORST = 20


@dataclass(frozen=True, slots=True)
class Overview:
    """All jobs in numbers. Times are UTC; `cost_unknown` troubled jobs have no GPU-hours. Of
    `dated_by_file` jobs the time is that of their files, as their logs tell none. `other` went
    wrong for a cause that is not asked for.
    """

    jobs: int
    hung: int
    failed: int
    healthy: int
    running: int
    unknown: int
    other: int
    unreadable: int
    hosts: int
    gpu_hours_lost: float | None
    cost_unknown: int
    first_seen: str | None
    last_seen: str | None
    dated_by_file: int = 0


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
    """What is said of the fleet. `groups` are by `by`, `causes` always by cause.

    `filters` says in words which jobs were asked for; `price` is that of a GPU-hour, where given.
    """

    by: str
    filters: list[str]
    price: float | None
    overview: Overview
    weeks: list[str]
    causes: list[Group]
    groups: list[Group]
    weekly: list[Group]
    reliability: Reliability
    trends: Trends | None
    since: list[Since]
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
        jobs += [job for group in [*self.causes, *self.groups] for job in group.examples]
        jobs += [job for suspect in self.nodes.suspects for job in suspect.blamed_jobs]
        return list(dict.fromkeys(jobs))

    def to_dict(self) -> dict[str, Any]:
        """Schema `diagnose-fleet/1`: every key is always there; missing values are null."""
        data: dict[str, Any] = _class_keys(asdict(self))
        return {"schema": SCHEMA, **data, "reports": dict(self.reports)}


def summarise(
    jobs: Jobs,
    *,
    by: str = CAUSE,
    results: Path | None = None,
    catalog: Catalog | None = None,
    filters: Sequence[str] = (),
    price: float | None = None,
    checkpoint_h: float = CHECKPOINT_H,
    topology: Topology | None = None,
) -> Fleet:
    """Everything about a fleet's jobs.

    `catalog` says what kind of cause each is (the shipped one where it is None). `filters` are
    words for what `grouping.chosen` left of the jobs, `price` and `checkpoint_h` (hours between
    checkpoints) are the caller's, `topology` says where the nodes are. `reports` gets the
    post-mortems that exist in the folder `results`, of the jobs that are named here.
    """
    catalog = catalog or load_catalog()
    titles = {name: one.title for name, one in catalog.classes.items()}
    causes, found_nodes = count(jobs, CAUSE, titles), nodes(jobs, catalog.node_causes, topology)
    fleet = Fleet(
        by=by,
        filters=list(filters),
        price=price,
        overview=_overview(jobs, len(found_nodes.nodes)),
        weeks=weeks(jobs),
        causes=causes,
        groups=causes if by == CAUSE else count(jobs, by, titles),
        weekly=count(jobs, WEEK),
        reliability=reliability(jobs, catalog.external_ends, catalog.node_causes, checkpoint_h),
        trends=trends(jobs),
        since=since(jobs),
        recurring=recurring(jobs),
        nodes=found_nodes,
        unknowns=unknowns(jobs),
        unreadable=unreadable(jobs),
        worst=_worst(jobs),
        reports={},
    )
    return replace(fleet, reports=_reports(results, jobs, fleet.named())) if results else fleet


@dataclass(frozen=True, slots=True)
class Listed:
    """A job that went wrong. Times are UTC, None where they are not known, as are numbers."""

    job: str
    time: str | None
    verdict: str
    cause: str
    title: str
    gpu_hours_lost: float | None
    culprit_hosts: list[str]
    labels: dict[str, str]
    source: str


def listed(jobs: Jobs, most: int | None = None) -> list[Listed]:
    """The jobs that went wrong, the latest first, at most so many."""
    return _listed(jobs, jobs.in_time(np.flatnonzero(jobs.troubled))[::-1][:most])


def _listed(jobs: Jobs, rows: np.ndarray) -> list[Listed]:
    return [
        Listed(
            job=name, time=moment(jobs.time[row]), verdict=verdict, cause=cause or UNKNOWN,
            title=title, gpu_hours_lost=hours(total(jobs.gpu_hours_lost[row : row + 1])),
            culprit_hosts=jobs.culprit_hosts.of(row), labels=labels, source=source,
        )
        for name, verdict, cause, title, labels, source, row in zip(
            jobs.names(rows), jobs.verdict.of(rows), jobs.cause.of(rows), jobs.title.of(rows),
            jobs.labels.of(rows), jobs.source.take(pa.array(rows)).to_pylist(), rows.tolist(),
            strict=True,
        )
    ]  # fmt: skip


def _overview(jobs: Jobs, hosts: int) -> Overview:
    counts = np.bincount(jobs.verdict.codes, minlength=len(jobs.verdict.values)).tolist()
    having = dict(zip(jobs.verdict.values, counts, strict=True))
    verdicts = ("hung", "failed", "healthy", "running", "unknown", OTHER)
    costs = jobs.gpu_hours_lost[jobs.troubled]
    first, last = span(jobs.time)
    return Overview(
        jobs=len(jobs),
        **{name: having.get(name, 0) for name in verdicts},
        unreadable=int(jobs.unreadable.sum()),
        hosts=hosts,
        gpu_hours_lost=hours(total(costs)),
        cost_unknown=int(np.isnan(costs).sum()),
        first_seen=first,
        last_seen=last,
        dated_by_file=int(jobs.by_file.sum()),
    )


def _worst(jobs: Jobs) -> list[Worst]:
    rows = np.flatnonzero(jobs.troubled & (jobs.gpu_hours_lost > 0))
    return [
        Worst(
            one.job, one.title, one.cause, one.verdict, one.culprit_hosts, one.time,
            one.gpu_hours_lost or 0.0,
        )
        for one in _listed(jobs, jobs.dearest(rows, MAX_WORST))
    ]  # fmt: skip


def _reports(results: Path, jobs: Jobs, named: list[str]) -> dict[str, str]:
    """The post-mortems of these jobs that exist, relative to `results`."""
    try:
        with os.scandir(results / REPORTS) as pages:
            there = {f"{REPORTS}/{page.name}" for page in pages if page.is_file()}
    except OSError:
        return {}
    found = {job: page_of(source) for job, source in jobs.sources(named).items()}
    return {job: found[job] for job in named if found[job] in there}


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
