"""Operations that ranks enqueued and have not completed, by whoever tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

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
Kind = tuple[str | None, int | None, int | None]
Call = tuple[int | None, str | None, int | None, int | None]
# What is waited for as one: group, of sends and receives?, number.
Unit = tuple[str, bool, int]
_Made = TypeVar("_Made")


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
    def kind(self) -> Kind:
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


def gathered_size(kinds: Iterable[Kind]) -> int | None:
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
