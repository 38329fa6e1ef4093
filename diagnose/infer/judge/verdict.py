"""The verdict on ranks that stopped, and the operations they wait in, by whatever witness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from diagnose.text.ranks import plural

P2P_OPS = frozenset({"SEND", "RECV", "RECVANYSOURCE"})
# Operations whose sizes may differ between ranks of one correct call.
UNEVEN_OPS = frozenset({"ALLTOALL", "ALLTOALL_BASE", "GATHER", "SCATTER", *P2P_OPS, "UNKNOWN"})
# Those in which the larger side has that of each member: how many there are.
_GATHERS = frozenset({"allgather", "allgatherbase", "allgatherintotensor"})
_SCATTERS = frozenset({"reducescatter", "reducescatterbase", "reducescattertensor"})
# Calls, as `plain` writes them, of which one member may be through before the others.
ROOTED_OPS = frozenset({"broadcast", "reduce", "gather", "scatter"})
_BATCH = "COALESCED"  # several operations in one; a batch of sends and receives has no size

# What must be equal on all members of a correct call: operation, elements in and out.
CallKind = tuple[str | None, int | None, int | None]
Call = tuple[int | None, str | None, int | None, int | None]
# What is waited for as one: group, of sends and receives?, number.
Unit = tuple[str, bool, int]
_Made = TypeVar("_Made")
Kind = Literal[
    "missing",  # ranks that did not join
    "mismatched",  # ranks in another call than their group
    "conditional",  # the same by a branch: some are in a barrier
    "shifted",  # ranks at different numbers of one operation
    "stuck_host",  # ranks that were alive, had nothing pending and did not join
    "stuck_device",  # ranks that joined, and only their devices did not finish
    "cycle",  # ranks that wait for each other
    "deadlock",  # the same in different groups, which they entered in different orders
    "network",  # all joined, and dumps show that nobody lags
    "all_joined",  # all joined as far as lines show
    "unclear",
]
Role = Literal["culprit", "waiting", "idle", "done", "no dump"]
DIFFER: tuple[Kind, ...] = ("mismatched", "conditional", "shifted", "cycle", "deadlock")
_ABSENT: tuple[Kind, ...] = ("missing", "stuck_host")
_SEVERAL = 3  # ranks that wait, so that the gap below them tells something


def in_words(call: Call) -> str:
    """A call for people: `ALLREDUCE of 1,024 elements (SeqNum 7)`."""
    seq, op, size, _ = call
    parts = [op or "a collective"]
    parts += [f"of {size:,} {plural(size, 'element')}"] if size is not None else []
    parts += [f"(SeqNum {seq})"] if seq is not None else []
    return " ".join(parts)


class Op(NamedTuple):
    """An operation that a rank has pending.

    `group` is its process group where one is known, `desc` the kind of group and `place` the rank's
    number in it; `began` when the wait began (ns, on the job's clock), `row` the index of the event
    that shows it, -1 where none does.

    Dumps and counters tell the call as it is shown (`text`), its `site` (`file:line`), whether the
    device has `started` it, and of a send or receive the `peer` (global rank, else -1) and that it
    is the `nth` between the two (-1: not counted). `record` orders those of one rank, `line` is
    that of a `source`; "": the dump of the rank.
    """

    rank: int
    seq: int | None
    op: str | None
    size_in: int | None = None
    size_out: int | None = None
    timeout_ms: int | None = None
    elapsed_ms: int | None = None
    row: int = -1
    group: str | None = None
    place: int | None = None
    began: int | None = None
    desc: str | None = None
    p2p: bool = False
    text: str = ""
    site: str = ""
    started: bool = True
    peer: int = -1
    nth: int = -1
    record: int = 0
    source: str = ""
    line: int = 0

    @property
    def tiny(self) -> bool:
        """A barrier, or the size exchange in front of a gather of objects."""
        return self.size_in == 1 or self.op in ("BARRIER", "barrier")

    @property
    def kind(self) -> CallKind:
        """What the other members have to call as well."""
        if self.op in UNEVEN_OPS or self.p2p:
            return self.op, None, None
        return self.op, self.size_in, self.size_out

    @property
    def call(self) -> Call:
        """The call: its number in its group, and its kind."""
        return (self.seq, *self.kind)

    @property
    def unit(self) -> Unit:
        """The collective, or the batch of sends and receives, that it belongs to."""
        return self.group or "", self.p2p, -1 if self.seq is None else self.seq


def plain(op: str | None) -> str | None:
    """The name of an operation as lines and dumps have it alike: `ALLREDUCE` is `all_reduce`."""
    return None if op is None else op.lower().replace("_", "")


def gathered_size(kinds: Iterable[CallKind]) -> int | None:
    """How many ranks a group has by the sizes of a gather or scatter; None where no call tells."""
    for op, size_in, size_out in kinds:
        name = plain(op)
        small, large = (size_out, size_in) if name in _SCATTERS else (size_in, size_out)
        if name not in _SCATTERS | _GATHERS:
            continue
        if small and large and large % small == 0 and large > small:
            return large // small
    return None


def majority_of(votes: Mapping[_Made, int]) -> _Made | None:
    """The call that most ranks made; None where it does not tell who is odd.

    That is where another is as frequent, or where more than two meet of which none is that of more
    than half: then the most frequent one may be as odd as the others.
    """
    calls = sorted(votes, key=lambda call: -votes[call])
    tie = len(calls) > 1 and votes[calls[0]] == votes[calls[1]]
    split = len(calls) > 2 and 2 * votes[calls[0]] <= sum(votes.values())
    return calls[0] if calls and not tie and not split else None


def is_p2p(op: str | None, size_in: int | None) -> bool:
    """Whether who waits in it waits for a partner, whom the line does not name."""
    return op in P2P_OPS or (op == _BATCH and size_in is None)


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
    though others wait for it, `done` has nothing pending and nobody waits. `amid_round`: a log may
    just end while ranks make a call one after the other.
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
    amid_round: bool = False

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
