"""RAS reports of one job in several files: one report, weighed against an earlier one.

Files of the same job have a communicator in common. JSON counts every operation, and text only
those that differ, so the two do not compare: JSON is taken where there is any. Reports without a
time (text has none of its own) are in the order of the files' names.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from diagnose.parse.ras import MIN_SECONDS, RasReport, report_of, seconds_of
from diagnose.parse.ras_snapshot import Found, Snapshot

_Named = tuple[str, Snapshot]

_DIGITS = re.compile(r"(\d+)")


@dataclass(slots=True)
class _Same:
    """Files that tell of one job, by name, and the communicators that they tell of."""

    files: list[tuple[str, RasReport]] = field(default_factory=list)
    comms: set[str] = field(default_factory=set)


def joined(reports: Iterable[tuple[str, RasReport]]) -> list[tuple[str, RasReport]]:
    """One report a job, with the name of the file whose lines it tells."""
    several = sorted(reports, key=lambda one: _natural(one[0]))
    if len(several) < 2:
        return several
    return [_one(same.files) for same in _jobs(several)]


def _jobs(reports: Sequence[tuple[str, RasReport]]) -> list[_Same]:
    """The files by job; one that names no communicator belongs to the only job there is."""
    jobs: list[_Same] = []
    silent = []
    for name, report in reports:
        own = {hash_ for one in report.found.snapshots for hash_ in one.comms}
        if not own:
            silent.append((name, report))
            continue
        same = [job for job in jobs if job.comms & own]
        whole = _Same([file for job in same for file in job.files] + [(name, report)], own)
        whole.comms |= {hash_ for job in same for hash_ in job.comms}
        jobs = [job for job in jobs if job not in same] + [whole]
    if len(jobs) == 1:
        jobs[0].files += silent
    else:
        jobs += [_Same([file]) for file in silent]
    return jobs


def _one(files: list[tuple[str, RasReport]]) -> tuple[str, RasReport]:
    """What the files of one job say together."""
    if len(files) == 1:
        return files[0]
    as_json = any(report.json and report.found.snapshots for _, report in files)
    whole = Found()
    snapshots: list[_Named] = []
    for name, report in files:
        whole.dead |= report.found.dead
        whole.events += report.found.events
        whole.errors += report.found.errors
        if report.json == as_json:
            snapshots += [(name, one) for one in report.found.snapshots]
    times = [seconds_of(one.stamp) for _, one in snapshots]
    if None not in times:
        order = sorted(range(len(snapshots)), key=lambda n: (times[n] or 0.0, n))
        snapshots = _fullest_last([snapshots[n] for n in order], [times[n] or 0.0 for n in order])
    whole.snapshots = deque(one for _, one in snapshots)
    name = snapshots[-1][0] if snapshots else files[-1][0]
    report = report_of(whole, name, as_json)
    report.notes = [*dict.fromkeys(report.notes)]
    return name, report


def _fullest_last(snapshots: list[_Named], times: Sequence[float]) -> list[_Named]:
    """Of the last reports, asked for at about the same time, only the one of the most ranks.

    A node that the others cannot reach sees only itself.
    """
    since = next(n for n, time in enumerate(times) if times[-1] - time < MIN_SECONDS)
    return [*snapshots[:since], max(snapshots[since:], key=lambda one: _counted(one[1]))]


def _counted(snapshot: Snapshot) -> int:
    ranks = (rank for comm in snapshot.comms.values() for rank in comm.ranks.values())
    return sum(rank.counts is not None for rank in ranks)


def _natural(name: str) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(name)]
