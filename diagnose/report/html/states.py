"""What each rank was doing when the job stood still, from whatever the diagnosis tells."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from diagnose.diagnosis import Diagnosis
from diagnose.job import Job

MAX_RANKS = 100_000

# State → what the legend says. The order is that of importance.
STATES = {
    "culprit": "to blame",
    "missing": "did not join",
    "waiting": "waited",
    "ended": "ended with an error",
    "idle": "waited for nothing",
    "done": "finished",
    "seen": "seen in the logs",
    "no dump": "left no dump",
    "no log": "nothing seen of it",
}


def states(job: Job, diagnosis: Diagnosis) -> dict[int, str]:
    """The state of every rank that exists as far as anybody says, by rank."""
    seen = {int(rank) for rank in job.ranks.index}
    found = dict.fromkeys(seen | set(diagnosis.job.ranks_seen), "seen")
    if found and diagnosis.job.world_size:
        for rank in range(min(diagnosis.job.world_size, MAX_RANKS)):
            found.setdefault(rank, "no log")
    if "exit" in job.ranks:
        for rank, code in job.ranks["exit"].dropna().items():
            found[int(rank)] = "ended" if int(code) else "done"
    waited = job.timeline.loc[(job.timeline["tells"] == "timeout").fillna(False), "rank"]
    _set(found, (int(rank) for rank in waited.dropna().unique()), "waiting")
    if diagnosis.collective:
        _set(found, diagnosis.collective.joined, "waiting")
        _set(found, diagnosis.collective.missing, "missing")
    graph = getattr(diagnosis, "graph", None)
    if graph is not None:
        found |= {rank: state for rank, state in graph.state.items() if state in STATES}
    _set(found, diagnosis.culprits.ranks, "culprit")
    return dict(sorted(found.items())[:MAX_RANKS])


def hosts(job: Job, diagnosis: Diagnosis) -> dict[int, str]:
    """The host of every rank whose host is known."""
    known = job.ranks["host"].dropna() if "host" in job.ranks else pd.Series(dtype=object)
    found = {int(rank): str(host) for rank, host in known.items()}
    topology = getattr(diagnosis, "topology", None)
    placed = getattr(topology, "hosts", None) or {}
    if isinstance(placed, dict):
        for rank, host in placed.items():
            found.setdefault(int(rank), str(host))
    return found


def _set(found: dict[int, str], ranks: Iterable[int], state: str) -> None:
    for rank in ranks:
        if rank >= 0:
            found[rank] = state
