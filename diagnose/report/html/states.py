"""What each rank was doing when the job stood still, from whatever the diagnosis tells."""

from __future__ import annotations

from collections.abc import Iterable

from diagnose.diagnosis import Diagnosis
from diagnose.timeline.event import Timeline

MAX_RANKS = 100_000

# State → what the legend says. The order is that of importance.
STATES = {
    "culprit": "to blame",
    "missing": "never joined",
    "waiting": "waiting",
    "ended": "ended with an error",
    "idle": "idle",
    "done": "finished",
    "seen": "seen in the logs",
    "no dump": "no dump",
    "no log": "no output",
}


def states(timeline: Timeline, diagnosis: Diagnosis) -> dict[int, str]:
    """The state of every rank that exists as far as anybody says, by rank.

    `timeline` is that of the attempt that was diagnosed.
    """
    found = dict.fromkeys({*timeline.ranks, *diagnosis.job.ranks_seen}, "seen")
    if found and diagnosis.job.world_size:
        for rank in range(min(diagnosis.job.world_size, MAX_RANKS)):
            found.setdefault(rank, "no log")
    for event in timeline.kind("exit"):
        if event.rank is not None:
            code = event.fields.get("exitcode", "").lstrip("+")
            clean = code == "0" and "signal" not in event.fields
            found[event.rank] = "done" if clean else "ended"
    waited = (event.rank for event in timeline.signalling("timeout"))
    _set(found, (rank for rank in waited if rank is not None), "waiting")
    for place in diagnosis.places:
        if place.waits:
            _set(found, place.ranks, "waiting")
    if diagnosis.collective:
        _set(found, diagnosis.collective.joined, "waiting")
        _set(found, diagnosis.collective.missing, "missing")
    if diagnosis.graph is not None:
        stated = diagnosis.graph.state.items()
        found |= {rank: state for rank, state in stated if state in STATES and rank >= 0}
    _set(found, diagnosis.culprits.ranks, "culprit")
    return dict(sorted(found.items())[:MAX_RANKS])


def _set(found: dict[int, str], ranks: Iterable[int], state: str) -> None:
    for rank in ranks:
        if rank >= 0:
            found[rank] = state
