"""Who wrote a line, as far as it is known while a job runs: by the line itself or its file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from diagnose.parse.path import PathHints
from diagnose.parse.prefix import Prefix


@dataclass(frozen=True, slots=True)
class Who:
    """One author. Each kind of number as in `Prefix`; `source` only where there is no number."""

    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str | None = None
    source: str = ""


def who_of(prefix: Prefix, hints: PathHints, source: str) -> Who:
    """The author of a line with this prefix in a file of this path."""
    rank = prefix.rank if prefix.rank is not None else hints.rank
    if rank is not None:
        return Who(rank=rank)
    host = prefix.host or hints.host or (None if hints.node is None else f"node {hints.node}")
    local = prefix.local_rank if prefix.local_rank is not None else hints.local_rank
    task = prefix.task if prefix.task is not None else hints.task
    if local is not None:
        return Who(local_rank=local, task=task, host=host)
    if task is not None:
        return Who(task=task)
    return Who(host=host, source="" if host else source)


def ranks(authors: Iterable[Who]) -> dict[Who, int]:
    """The global rank of each author that has one.

    A local rank is the rank where all of the job is on one node, a task where each is one process.
    """
    found = list(authors)
    known = {who: who.rank for who in found if who.rank is not None}
    nodes = {(who.host, who.task) for who in found if who.local_rank is not None}
    if len(nodes) == 1:
        known |= {who: who.local_rank for who in found if who.local_rank is not None}
    elif not nodes:
        known |= {who: who.task for who in found if who.task is not None}
    return known


def name(who: Who, known: dict[Who, int]) -> str:
    """How people call an author: `rank 3`, `local rank 1 of node01`, or its file."""
    if who in known:
        return f"rank {known[who]}"
    where = who.host or ("" if who.task is None else f"task {who.task}")
    if who.local_rank is not None:
        return f"local rank {who.local_rank}{f' of {where}' if where else ''}"
    return where or who.source
