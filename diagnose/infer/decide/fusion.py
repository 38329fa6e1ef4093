"""What dumps, reports and stacks of a job add to its logs: who was waited for, and where it stood.

Their readers and judges are imported where a job has such documents; most have none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import Evidence
from diagnose.infer.advise import narrative as story
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.failures import done, went_on
from diagnose.infer.events.watchdogs import Stall
from diagnose.infer.rules import collectives as told
from diagnose.infer.rules.base import Candidate
from diagnose.timeline.rows import DOCUMENT_TELLS

_GOES_ON = pd.Timedelta(minutes=1)  # a step so long after the onset is none of a hung job
_TOLD_BY_DUMPS = ("desync.missing_rank", "desync.mismatch", "unknown")

if TYPE_CHECKING:
    from diagnose.infer.collectives.parallelism import Topology
    from diagnose.infer.collectives.verdict import DumpVerdict
    from diagnose.infer.stacks.classify import PlaceClass
    from diagnose.job.load import Job


def evidence(
    winner: Candidate,
    frame: pd.DataFrame,
    catalog: Catalog,
    found: list[Stall],
    held: DumpVerdict | None,
    places: list[PlaceClass],
) -> list[Evidence]:
    """Log lines of the verdict first, then where single ranks stand by dumps and stacks."""
    tells = frame.loc[winner.rows, "tells"]
    rows = [row for row in winner.rows if tells.loc[row] not in DOCUMENT_TELLS]
    lines = story.evidence(replace(winner, rows=rows), frame, catalog, found)
    if places:
        from diagnose.infer.rules import stacks as placed  # noqa: PLC0415

        lines += placed.evidence(places, winner.ranks)
    if held is not None:
        lines += told.evidence(held)
    return lines


def joined(
    follows: list[Candidate],
    job: Job,
    held: DumpVerdict | None,
    found: list[Stall],
    frame: pd.DataFrame,
    host_of: dict[int, str],
) -> list[Candidate]:
    """Candidates that follow from the logs, with those of dumps and stacks.

    Who was waited for, dumps say better; what that rank was busy with, the logs and stacks do.
    `found` begins with the stall that the dumps show, where they do.
    """
    if held is not None:
        follows = [c for c in follows if c.cause not in _TOLD_BY_DUMPS]
        alive = bool(job.documents.dumps)
        follows.append(told.blamed(held, found[0], job.catalog, host_of, alive=alive))
    if job.places:
        from diagnose.infer.rules.stacks import placed  # noqa: PLC0415

        by_stacks = placed(job.places, frame, job.catalog, held.ranks if held else ())
        follows = [c for c in follows if not _outdone(c, by_stacks)] + by_stacks
    return follows


def _outdone(candidate: Candidate, by_stacks: list[Candidate]) -> bool:
    """Whether stacks of the same ranks say better what a candidate only knows to be stuck."""
    vague = candidate.cause in ("stall.host", "desync.missing_rank")
    return vague and any(
        set(candidate.ranks) & set(other.ranks) and other.cause != candidate.cause
        for other in by_stacks
    )


def grid_of(job: Job, facts: Facts) -> Topology | None:
    """The grid that the groups of the job make, if they make one."""
    if job.collectives is None:
        return None
    from diagnose.infer.collectives.parallelism import topology  # noqa: PLC0415

    grid = topology(job.collectives.groups.values(), facts.world_size or job.collectives.world)
    return grid if grid.axes else None


def unit_of(winner: Candidate, grid: Topology | None, host_of: dict[int, str]) -> str:
    """The part of the job that all culprits are in: `all suspects are on host node7`."""
    if len(winner.ranks) < 2:
        return ""
    from diagnose.infer.collectives.parallelism import Topology, smallest_unit  # noqa: PLC0415

    unit = smallest_unit(winner.ranks, grid or Topology(), host_of)
    return unit.text if unit else ""


def clock_notes(job: Job) -> list[str]:
    """One line per host whose clock is surely off; its times are corrected."""
    if job.clocks is None:
        return []
    reference, residual = job.clocks.reference, job.clocks.residual
    notes = []
    for host, offset in job.clocks.certain().items():
        apart = f"{abs(offset) / 1e9:,.3f} s {'ahead of' if offset > 0 else 'behind'}"
        within = f"to within {(residual[host] or 0) / 1e9:,.3f} s, by shared collectives"
        notes.append(
            f"the clock of {host} is {apart} {reference}'s ({within}); its times are corrected"
        )
    return notes


def held_up(job: Job, frame: pd.DataFrame, failing: pd.DataFrame) -> DumpVerdict | None:
    """What the dumps say; None without any, and where the logs show that the job went on.

    A dump taken on demand of a job at work lists operations in flight as well, and in the last
    lines of a log ranks are never quite at the same call: those count only in a job that failed
    (`failing`), or that shows no step.
    """
    if job.collectives is None or done(frame):
        return None
    dumped = bool(job.documents.dumps)
    if not dumped and failing.empty and went_on(frame):
        return None
    from diagnose.infer.collectives.analyze import judge  # noqa: PLC0415

    verdict = judge(job.collectives)
    if verdict is not None and dumped and failing.empty and _stepped_since(verdict, frame):
        return None
    doubtful = not dumped and (job.documents.passing or failing.empty)
    return replace(verdict, sure=False) if verdict is not None and doubtful else verdict


def _stepped_since(verdict: DumpVerdict, frame: pd.DataFrame) -> bool:
    """Whether the log has steps from long after the operation that the dumps show pending."""
    onset = told.onset(verdict, frame).time
    steps = frame.loc[frame["kind"] == "progress", "time"]
    return onset is not None and bool((steps > onset + _GOES_ON).any())
