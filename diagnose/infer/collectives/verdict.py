"""The verdict on one job's dumps: what `waitfor.judge` gives to reports and to the diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["missing", "mismatched", "stuck_host", "stuck_device", "cycle", "network"]
Role = Literal["culprit", "waiting", "idle", "done", "no dump"]


@dataclass(frozen=True, slots=True)
class Sign:
    """One piece of evidence. `line` is 1-based in a log and 0 in a dump, which has no lines."""

    file: str
    line: int
    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class DumpVerdict:
    """What dumps say about a hang. Ranks are global and sorted.

    `ranks` are the culprits. They are empty for `network`, and where `tie` is set: then the
    evidence does not choose among `suspects` (the sides of a mismatch without a majority, or the
    ranks of a cycle) and `why` tells the sides. `sure` says that the dumps prove the culprits: all
    ranks of the job left a whole one and no step of the reasoning was a guess.

    `group`, `op`, `seq` and `site` (`file:line`) name the operation that most ranks wait in for
    the culprits; `joined` and `missing` are its members that have and have not enqueued it, as far
    as known. `edges` are (rank, rank it waits for, operation), at most `MAX_EDGES`, first those
    where the other has not enqueued the operation. `roles` has every rank of the job: `idle` has
    nothing pending though others wait for it, `done` has nothing pending and nobody waits.
    """

    kind: Kind
    ranks: tuple[int, ...]
    group: str | None
    op: str | None
    seq: int | None
    joined: tuple[int, ...]
    missing: tuple[int, ...]
    why: str
    evidence: tuple[Sign, ...] = ()
    notes: tuple[str, ...] = ()
    site: str | None = None
    tie: bool = False
    suspects: tuple[int, ...] = ()
    sure: bool = False
    edges: tuple[tuple[int, int, str], ...] = ()
    roles: dict[int, Role] = field(default_factory=dict)
