"""Ranks that stand still: who waits for what, and how the ranks of a job disagree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from diagnose.text.ranks import plural

P2P_OPS = frozenset({"SEND", "RECV", "RECVANYSOURCE"})
# Operations whose sizes may differ between ranks of one correct call.
UNEVEN_OPS = frozenset({"ALLTOALL", "ALLTOALL_BASE", "GATHER", "SCATTER", *P2P_OPS, "UNKNOWN"})
_BATCH = "COALESCED"  # several operations in one; a batch of sends and receives has no size

_SEVERAL = 3  # ranks that wait, so that the gap below them tells something

Shape = Literal["mismatch", "conditional", "shifted", "missing", "all_joined", "unclear"]

# What must be equal on all members of a correct call: operation, elements in and out.
Kind = tuple[str | None, int | None, int | None]
Call = tuple[int | None, str | None, int | None, int | None]


def in_words(call: Call) -> str:
    """A call for people: `ALLREDUCE of 1,024 elements (SeqNum 7)`."""
    seq, op, size, _ = call
    parts = [op or "a collective"]
    parts += [f"of {size:,} {plural(size, 'element')}"] if size is not None else []
    parts += [f"(SeqNum {seq})"] if seq is not None else []
    return " ".join(parts)


class Wait(NamedTuple):
    """A rank waits for a collective.

    `group` is the name of its process group, `desc` the kind of group and `place` the rank's number
    in it, where a line tells them; `began` when the wait began (ns, on the job's clock), `row` the
    index of the event.
    """

    rank: int
    seq: int | None
    op: str | None
    size_in: int | None
    size_out: int | None
    timeout_ms: int | None
    elapsed_ms: int | None
    row: int
    group: str | None = None
    place: int | None = None
    began: int | None = None
    desc: str | None = None

    @property
    def tiny(self) -> bool:
        """A barrier, or the size exchange in front of a gather of objects."""
        return self.size_in == 1 or self.op == "BARRIER"

    @property
    def p2p(self) -> bool:
        """Whether it waits for a partner of a send or receive, whom the line does not name."""
        return self.op in P2P_OPS or (self.op == _BATCH and self.size_in is None)

    @property
    def kind(self) -> Kind:
        """What the other members have to call as well."""
        if self.op in UNEVEN_OPS or self.p2p:
            return self.op, None, None
        return self.op, self.size_in, self.size_out

    @property
    def call(self) -> Call:
        """The call: its number in its group, and its kind."""
        return (self.seq, *self.kind)


@dataclass(slots=True)
class Stall:
    """A job, or one of its process groups, that stands still.

    `shape` says how its ranks disagree. `waits` is per rank; `missing` the ranks that did not
    join (as far as known), `odd` the minority of a mismatch (empty on a tie), `proven` whether a
    line names them or the evidence leaves nobody else, `named` the former. `rows` are indices of
    the events that show it. `group`, `op` and `seq` are those of the call that most wait in.
    """

    group: str | None
    shape: Shape
    waits: dict[int, Wait] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    odd: list[int] = field(default_factory=list)
    proven: bool = False
    named: bool = False
    why: str = ""
    rows: list[int] = field(default_factory=list)
    op: str | None = None
    seq: int | None = None

    @property
    def accused(self) -> list[int]:
        """Whom the others wait for, if they wait for work that one rank does for all.

        That is rank 0, which always exists: its gap below several others tells more than another.
        """
        main_alone = self.missing == [0] and len(self.joined) >= _SEVERAL
        return self.missing if self.proven or main_alone else []

    @property
    def joined(self) -> list[int]:
        """Ranks known to wait in it."""
        return sorted(set(self.waits) - set(self.missing))

    @property
    def phrase(self) -> str:
        """The call that most wait in, for a sentence."""
        size = next((w.size_in for w in self.waits.values() if w.size_in is not None), None)
        return in_words((self.seq, self.op, size, None))

    @property
    def all_but_one(self) -> bool:
        """Whether everybody but one rank is missing, who may not say its own number."""
        if len(self.missing) < 2 or len(self.joined) != 1:
            return False
        everybody = set(range(max(self.missing) + 1))
        return self.joined[0] >= 0 or len(everybody - set(self.missing)) == 1

    @property
    def in_call(self) -> list[int]:
        """Ranks known to wait in the very call that it names, and in no other."""
        named = self.group, self.seq, self.op
        return sorted(
            rank
            for rank, wait in self.waits.items()
            if rank >= 0 and named in ((wait.group, wait.seq, wait.op), (None, wait.seq, wait.op))
        )

    @property
    def tiny(self) -> bool:
        """At least one rank waits in a barrier-like collective and none in a larger one."""
        return bool(self.waits) and all(wait.tiny for wait in self.waits.values())

    @property
    def sized(self) -> bool:
        """The log tells sizes at all (torch 2.1 and later)."""
        return any(wait.size_in is not None for wait in self.waits.values())
