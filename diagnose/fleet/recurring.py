"""Failures that come again, and the versions with which they began.

Jobs with the same fingerprint failed alike. A version is said to have begun it where all of these
jobs that tell the package have that version (or, with several, that one or a later one), jobs
without it do not fail so, and earlier passing ones did not have it. Chance must not explain it:
that k of k failing incidents all fall among the jobs that have the version is hypergeometric, held
against the number of pairs of fingerprint and package looked at (Bonferroni).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pandas as pd

from diagnose.fleet.causes import hours
from diagnose.fleet.nodes import hypergeometric
from diagnose.fleet.read import UNKNOWN

ALPHA = 0.05
MIN_INCIDENTS = 3
MIN_EARLIER = 5  # passing jobs before it that tell the package
MAX_EXAMPLES = 5

_NUMBERS = re.compile(r"\d{1,9}")


@dataclass(frozen=True, slots=True)
class Began:
    """A version with which a failure began; `or_later` where later versions fail too.

    `before` counts earlier passing jobs that tell this package, all with another version. `p` is
    adjusted.
    """

    package: str
    version: str
    or_later: bool
    before: int
    p: float


@dataclass(frozen=True, slots=True)
class Recurring:
    """One fingerprint with at least two jobs. `hosts` counts the hosts that were blamed."""

    fingerprint: str
    title: str
    cause: str
    signature: str
    jobs: int
    incidents: int
    first_seen: str | None
    last_seen: str | None
    gpu_hours_lost: float | None
    hosts: int
    began_with: list[Began]
    examples: list[str]


def recurring(jobs: pd.DataFrame) -> list[Recurring]:
    """Failures of two jobs or more: first those that a version began, then by incidents."""
    failing = jobs[jobs["troubled"] & (jobs["fingerprint"] != "") & (jobs["class"] != UNKNOWN)]
    groups = [(str(mark), rows) for mark, rows in failing.groupby("fingerprint") if len(rows) > 1]
    told = _incidents_by_package(jobs)
    pairs = max(1, sum(_looked_at(rows) for _, rows in groups))
    found = [_recurring(mark, rows, told, pairs) for mark, rows in groups]
    found.sort(
        key=lambda item: (not item.began_with, -item.incidents, -item.jobs, item.fingerprint)
    )
    return found


def _incidents_by_package(jobs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """For each package the incidents that tell its version: version, mark, time, passing."""
    rows: dict[str, list[tuple[str, str, pd.Timestamp, bool]]] = {}
    readable = jobs[~jobs["unreadable"]].drop_duplicates("incident")
    for versions, mark, time, troubled in zip(
        readable["versions"], readable["fingerprint"], readable["time"], readable["troubled"],
        strict=True,
    ):  # fmt: skip
        for package, version in versions.items():
            rows.setdefault(package, []).append((version, mark, time, not troubled))
    names = ["version", "mark", "time", "passing"]
    return {package: pd.DataFrame(found, columns=names) for package, found in rows.items()}


def _looked_at(rows: pd.DataFrame) -> int:
    return len({package for versions in rows["versions"] for package in versions})


def _recurring(
    mark: str, rows: pd.DataFrame, told: dict[str, pd.DataFrame], pairs: int
) -> Recurring:
    rows = rows.sort_values(["time", "job"])
    times = rows["time"].dropna()
    packages = sorted({package for versions in rows["versions"] for package in versions})
    began = [found for name in packages if (found := _began(mark, name, told[name], pairs))]
    began.sort(key=lambda found: (found.p, found.package))
    title = Counter(rows["title"]).most_common(1)[0][0]
    return Recurring(
        fingerprint=mark,
        title=title,
        cause=Counter(rows["class"]).most_common(1)[0][0],
        signature=Counter(map(str, rows["signature"].fillna(""))).most_common(1)[0][0],
        jobs=len(rows),
        incidents=int(rows["incident"].nunique()),
        first_seen=times.iloc[0].isoformat() if len(times) else None,
        last_seen=times.iloc[-1].isoformat() if len(times) else None,
        gpu_hours_lost=hours(rows["gpu_hours_lost"].sum(min_count=1)),
        hosts=len({host for hosts in rows["culprit_hosts"] for host in hosts}),
        began_with=began,
        examples=list(rows["job"])[-MAX_EXAMPLES:][::-1],
    )


def _began(mark: str, package: str, told: pd.DataFrame, pairs: int) -> Began | None:
    """The version of one package that all these failures share and earlier jobs lack."""
    failing = told["mark"] == mark
    if failing.sum() < MIN_INCIDENTS:
        return None
    versions = set(told["version"][failing])
    first = min(versions, key=order)
    later = len(versions) > 1
    having = told["version"].map(order) >= order(first) if later else told["version"] == first
    drawn = int(failing.sum())
    p = float(hypergeometric(len(told), int(having.sum()), drawn)[drawn]) * pairs
    earlier = told["passing"] & (told["time"] < told["time"][failing].min())
    lacking = int((earlier & ~having).sum())
    # A few had the version already, but had not met the failure yet.
    if p > ALPHA or lacking < MIN_EARLIER or lacking < int((earlier & having).sum()):
        return None
    return Began(package, first, later, lacking, p)


def order(version: str) -> tuple[tuple[int, ...], str]:
    """A key by which versions sort as people number them: 2.9 < 2.10 < 2.10+cu128."""
    numbers = _NUMBERS.findall(re.split(r"[+-]", version, maxsplit=1)[0])
    return tuple(map(int, numbers)), version
