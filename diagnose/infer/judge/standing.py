"""Where the ranks of a job stand in collectives: rank × group × number, by whatever witness.

Dumps, counters and lines are entered with what they know, and with gaps where they know nothing.
Who waits for whom follows from this alone (`wait_graph`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import comb

from diagnose.infer.judge.groups import Members
from diagnose.infer.judge.ops import Op

USUAL_NODE = 8  # ranks
_UNLIKELY = 10  # times as many other choices as nodes, at least, of ranks left out at random
_UNSEEN = 4096  # ranks of which nothing tells that one operation waits for
_NEVER = -2  # before any call, also one whose number nobody tells


@dataclass
class Standing:
    """Frontiers and pending operations of every rank of which a witness tells.

    `size` is the number of ranks. `pending` has the operations of each rank, the oldest first, and
    `heads` those of them in which it may really stand. `enqueued` (by rank, group and whether it is
    of sends and receives) and `last_completed` (by rank and group) are the last numbers; `sent`
    counts the sends and receives of the ranks `counted`, by rank, group, operation and peer.

    `known` are the ranks of which anything tells, `recorded` those whose wait would be known if
    they had one, but for those whose record is `cut`. Of those `entire` what is not pending is
    completed. `elsewhere` are ranks that wait nobody knows in which group. What is not known of a
    rank in a group is in `unknown`; `unplaced` ranks may be in groups that no witness tells.
    """

    size: int
    groups: Mapping[str, Members] = field(default_factory=dict)
    pending: dict[int, list[Op]] = field(default_factory=dict)
    heads: dict[int, list[Op]] = field(default_factory=dict)
    enqueued: dict[tuple[int, str, bool], int] = field(default_factory=dict)
    last_completed: dict[tuple[int, str], int] = field(default_factory=dict)
    sent: Mapping[tuple[int, str, str, int], int] = field(default_factory=dict)
    counted: Collection[int] = ()
    known: set[int] = field(default_factory=set)
    recorded: Collection[int] = ()
    cut: Collection[int] = ()
    entire: Collection[int] = ()
    elsewhere: set[int] = field(default_factory=set)
    unknown: set[tuple[int, str]] = field(default_factory=set)
    unplaced: set[int] = field(default_factory=set)

    @cached_property
    def first_open(self) -> dict[tuple[int, str], int]:
        """(rank, group) → its first collective that is pending."""
        found: dict[tuple[int, str], int] = {}
        for rank, ops in self.pending.items():
            for op in ops:
                group, p2p, seq = op.unit
                if not p2p:
                    found[rank, group] = min(seq, found.get((rank, group), seq))
        return found

    @cached_property
    def _members(self) -> dict[str, list[int]]:
        return {name: sorted(group.ranks) for name, group in self.groups.items()}

    def members(self, group: str) -> list[int]:
        """The ranks of a group, as far as known."""
        return self._members.get(group, [])

    def enqueue(self, op: Op) -> None:
        """Enter that a rank has come as far as this operation, at least."""
        group, p2p, seq = op.unit
        self.enqueued[op.rank, group, p2p] = max(
            seq, self.enqueued.get((op.rank, group, p2p), _NEVER)
        )

    def idle(self, rank: int) -> bool:
        """Whether a rank waits nowhere, by a witness that would tell."""
        waits = rank in self.pending or rank in self.elsewhere
        return rank in self.recorded and not waits and rank not in self.cut

    def absent(self, group: str, seq: int) -> list[int]:
        """Members that have not enqueued collective `seq`, as far as known."""
        return [
            rank
            for rank in self.members(group)
            if rank in self.known
            and self.enqueued.get((rank, group, False), _NEVER) < seq
            and (rank, group) not in self.unknown
        ]

    def completed(self, rank: int, group: str, seq: int) -> bool:
        """Whether `rank` enqueued collective `seq` and its device finished it."""
        if self.enqueued.get((rank, group, False), _NEVER) < seq:
            return False
        if rank in self.entire:
            return self.first_open.get((rank, group), seq + 1) > seq
        return self.last_completed.get((rank, group), _NEVER) >= seq

    def unseen(self, group: str) -> list[int]:
        """Ranks that are, or may be, members of a group, of which nothing tells what they wait in.

        No witness tells of them, or one that was cut off, or of another group or of nobody knows
        which; of very many the first.
        """
        members = self.groups.get(group, Members())
        open_here = {
            rank
            for rank in members.ranks
            if rank in self.elsewhere
            or ((rank, group) in self.unknown and rank not in self.recorded)
            or (rank in self.cut and rank not in self.pending)
        }
        lost = members.ranks - self.known if members.known else self.unplaced
        return sorted(lost | open_here)[:_UNSEEN]

    def other_side(self, op: Op) -> tuple[bool, Op | None] | None:
        """Whether the peer of a send or receive has enqueued the other side, and it if pending.

        None where no witness goes back far enough to count.
        """
        if op.nth < 0 or op.peer not in self.counted:
            return None
        other = "recv" if op.op == "send" else "send"
        if self.sent.get((op.peer, op.unit[0], other, op.rank), 0) <= op.nth:
            return False, None
        key = (op.group, other, op.rank, op.nth)
        pending = self.pending.get(op.peer, [])
        return True, next((o for o in pending if (o.group, o.op, o.peer, o.nth) == key), None)


def whole_node(ranks: Collection[int], others: int, per_node: int = USUAL_NODE) -> bool:
    """Whether these are the ranks of one node, and no half of a job whose other half was lost."""
    if per_node < 2 or len(ranks) != per_node or 2 * len(ranks) > others:
        return False
    return max(ranks) - min(ranks) + 1 == per_node and min(ranks) % per_node == 0


def no_chance(ranks: Collection[int], world: int) -> bool:
    """Whether as many ranks left out at random are hardly ever all of one node of their number."""
    size = len(ranks)
    return world % size == 0 and _UNLIKELY * world < size * comb(world, size)
