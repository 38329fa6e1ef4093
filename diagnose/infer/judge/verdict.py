"""The verdict on ranks that stand still: who stopped the others, and how the ranks disagree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from diagnose.infer.judge.ops import Op, in_words

Kind = Literal[
    "missing",  # ranks that did not join
    "mismatched",  # ranks in another call than their group
    "conditional",  # the same by a branch: some are in a barrier
    "shifted",  # ranks at different numbers of one operation
    "stuck_host",  # ranks that were alive, had nothing pending and did not join
    "stuck_device",  # ranks that joined, and only their devices did not finish
    "cycle",  # ranks that wait for each other
    "network",  # all joined, and dumps show that nobody lags
    "all_joined",  # all joined as far as lines show
    "unclear",
]
Role = Literal["culprit", "waiting", "idle", "done", "no dump"]
DIFFER: tuple[Kind, ...] = ("mismatched", "conditional", "shifted", "cycle")
_ABSENT: tuple[Kind, ...] = ("missing", "stuck_host")
_SEVERAL = 3  # ranks that wait, so that the gap below them tells something


class Sign(NamedTuple):
    """One piece of evidence. `line` is 1-based in a log and 0 in a dump, which has no lines."""

    file: str
    line: int
    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a job, or one of its groups, stands still. Ranks are global and sorted.

    `ranks` are the culprits. Where the evidence does not prove or choose among them, `suspects` has
    those that it leaves (the ranks of a gap that may be one of an excerpt, the sides of a mismatch
    without a majority, the ranks of a cycle) and `ranks` is empty. `sure` says that the evidence
    proves it: no step of the reasoning was a guess. `by_dumps`: dumps or counters show it.

    `waits` is what each rank waits in; below 0 are processes of unknown rank. `group`, `op`, `seq`
    and `site` (`file:line`) name the operation that most ranks wait in for the culprits; `joined`
    and `missing` are its members that have and have not enqueued it, as far as known. `rows` are
    events that show it, the culprits' first; `evidence` what dumps say of single ranks. `edges` are
    (rank, rank it waits for, operation), at most `MAX_EDGES`, first those where the other has not
    enqueued the operation. `roles` has every rank of a job with dumps: `idle` has nothing pending
    though others wait for it, `done` has nothing pending and nobody waits.
    """

    kind: Kind
    ranks: tuple[int, ...] = ()
    group: str | None = None
    op: str | None = None
    seq: int | None = None
    joined: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    why: str = ""
    evidence: tuple[Sign, ...] = ()
    notes: tuple[str, ...] = ()
    site: str | None = None
    suspects: tuple[int, ...] = ()
    sure: bool = False
    by_dumps: bool = False
    waits: Mapping[int, Op] = field(default_factory=dict)
    rows: tuple[int, ...] = ()
    edges: tuple[tuple[int, int, str], ...] = ()
    roles: Mapping[int, Role] = field(default_factory=dict)

    @property
    def tie(self) -> bool:
        """Whether the evidence does not choose among the suspects."""
        return bool(self.suspects)

    @property
    def absent(self) -> tuple[int, ...]:
        """Those that did not join, proven or not."""
        return (*self.ranks, *self.suspects) if self.kind in _ABSENT else ()

    @property
    def waiting(self) -> list[int]:
        """Ranks known to wait, of which nobody waits for an absent one in vain."""
        return sorted(set(self.waits) - set(self.absent))

    @property
    def awaited(self) -> tuple[int, ...]:
        """Whom the others wait for, if they wait for work that one rank does for all.

        That is rank 0, which always exists: its gap below several others tells more than another.
        """
        main_alone = self.absent == (0,) and len(self.waiting) >= _SEVERAL
        return self.absent if main_alone else self.ranks * (self.kind in _ABSENT)

    @property
    def phrase(self) -> str:
        """The call that most wait in, for a sentence."""
        same = [op for op in self.waits.values() if (op.seq, op.op) == (self.seq, self.op)]
        size = next((op.size_in for op in same if op.size_in is not None), None)
        return in_words((self.seq, self.op, size, None))

    @property
    def all_but_one(self) -> bool:
        """Whether everybody but one rank is missing, who may not say its own number."""
        if len(self.absent) < 2 or len(self.waiting) != 1:
            return False
        everybody = set(range(max(self.absent) + 1))
        return self.waiting[0] >= 0 or len(everybody - set(self.absent)) == 1

    @property
    def tiny(self) -> bool:
        """At least one rank waits in a barrier-like collective and none in a larger one."""
        return bool(self.waits) and all(op.tiny for op in self.waits.values())

    @property
    def sized(self) -> bool:
        """Sizes are known at all (torch tells them from 2.1 on)."""
        return any(op.size_in is not None for op in self.waits.values())
