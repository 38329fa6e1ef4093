"""What a failure cost: from its onset to the last line of the job's own logs, in GPU-hours.

Plain functions over times; the post-mortem, the table of a scan and what a restart repeats all ask
here, so they cannot disagree about one job.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from diagnose.diagnosis import WELL, Diagnosis, JobFacts
from diagnose.text import times
from diagnose.timeline.event import Timeline

_YEAR_S = 365 * 86_400.0  # longer than any job: the clocks are wrong


@dataclass(frozen=True, slots=True)
class Standstill:
    """From the onset to the end, in seconds; `ranks` is None where their number is unknown."""

    seconds: float
    end: datetime
    ranks: int | None

    @property
    def gpu_hours(self) -> float | None:
        """The time of all ranks together."""
        return gpu_hours(self.seconds, self.ranks)


def gpu_hours(seconds: float | None, ranks: int | None) -> float | None:
    """The time of all ranks together, one GPU each; None where either is unknown."""
    return None if seconds is None or ranks is None else seconds * ranks / 3600


def ranks_of(facts: JobFacts, culprits: Collection[int] = ()) -> int | None:
    """How many ranks a job has: its world size, at least up to the highest that is named."""
    named = max((*facts.ranks_seen, *culprits), default=-1) + 1
    return max(facts.world_size or 0, named) or None


def standstill(diagnosis: Diagnosis, end: datetime | None) -> Standstill | None:
    """How long a job that failed held its GPUs after the onset; None where that is unknown."""
    onset = moment(diagnosis.onset.time)
    if onset is None or end is None or diagnosis.verdict in WELL:
        return None
    seconds = max(0.0, (end - onset).total_seconds())
    ranks = ranks_of(diagnosis.job, diagnosis.culprits.ranks)
    return Standstill(seconds, end, ranks) if seconds < _YEAR_S else None


def span(timeline: Timeline) -> tuple[datetime | None, datetime | None]:
    """First and last time of a job's own logs, by the job's clock.

    A machine's own log, whose lines all tell a host and never a rank, goes on before and after.
    """
    names = ("time", "source", "host", "rank")
    times_of, sources, hosts, ranks = (timeline.column(name) for name in names)
    of_jobs = {
        source
        for time, source, host, rank in zip(times_of, sources, hosts, ranks, strict=True)
        if time is not None and (host is None or rank is not None)
    }
    own = [
        time
        for time, source in zip(times_of, sources, strict=True)
        if time is not None and (source in of_jobs or not of_jobs)
    ]
    return (times.moment(min(own)), times.moment(max(own))) if own else (None, None)


def moment(text: str | None) -> datetime | None:
    """A time of a diagnosis in the job's own clock, without its zone."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None) if text else None
    except ValueError:
        return None
