"""Where the ranks of a job stand in collectives: rank × group × number, by whatever witness.

Dumps, counters and lines are entered with what they know, and with gaps where they know nothing.
Who waits for whom follows from this alone (`wait_graph`).

Which ranks are in which group is worked out of what single ranks say. A line tells the name of a
group and the number that its rank has there. Groups of a grid take their ranks at equal distances,
so that two members and their numbers give all the others, as far as the size is known: by a gather,
whose output is its input once for each member, else by where the next group of the same distance
begins, and because all of them make up the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import comb

from diagnose.infer.judge.verdict import Op, gathered_size

WORLD = ("0", "default_pg")  # names of the group of all ranks
_MOST_MEMBERS = 100_000  # members
USUAL_NODE = 8  # ranks
# The most collectives by which a rank runs ahead of its peers: a GPU's queue of launched kernels
# holds 1,024, and each waits for the one before it.
AHEAD = 1_024
_UNLIKELY = 10  # times as many other choices as nodes, at least, of ranks left out at random
_UNSEEN = 4096  # ranks of which nothing tells that one operation waits for
_NEVER = -2  # before any call, also one whose number nobody tells


@dataclass(slots=True)
class Members:
    """The members of a group by their number in it, and all of them as far as they are known.

    `size` is None where nothing tells it, `certain` whether it can be no other; `desc` the kind of
    the group.
    """

    places: dict[int, int] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    size: int | None = None
    certain: bool = False
    desc: str | None = None

    @property
    def known(self) -> bool:
        """Whether all of its members are known."""
        return self.certain and self.size is not None and len(self.ranks) >= self.size


def members_of(waits: Sequence[Op], world: int | None) -> dict[str, Members]:
    """Group → its members, as far as the waits in it tell; `world` ranks are in the job."""
    groups: dict[str, Members] = {}
    named: dict[str, list[Op]] = defaultdict(list)
    for wait in waits:
        if wait.group is not None:
            named[wait.group].append(wait)
    for name, own in named.items():
        size = gathered_size(wait.kind for wait in own)
        group = groups[name] = Members(size=size, certain=size is not None)
        for wait in own:
            group.ranks.add(wait.rank)
            group.desc = group.desc or wait.desc
            if wait.place is not None:
                group.places.setdefault(wait.place, wait.rank)
        if name in WORLD and world is not None and world <= _MOST_MEMBERS:
            group.size, group.certain, group.ranks = world, True, set(range(world))
        elif name in WORLD:
            group.ranks |= {wait.rank for wait in waits}  # whoever waits is of the job
    parallel = [group for name, group in groups.items() if name not in WORLD]
    _complete_by_distance(parallel, world)
    _complete_by_first(parallel, world)
    return groups


def _complete_by_distance(groups: Iterable[Members], world: int | None) -> None:
    """Add the members at equal distances from those that are known."""
    strides: dict[tuple[int, str | None], list[tuple[Members, int]]] = defaultdict(list)
    for group in groups:
        line = line_through(group.places)
        if line is not None:
            strides[line[1], group.desc].append((group, line[0]))
    for (stride, _), alike in strides.items():
        size, certain = _common_size(alike, stride, world)
        for group, first in alike if size else ():
            _fill(group, first, stride, size, world, certain)


def _complete_by_first(groups: Iterable[Members], world: int | None) -> None:
    """Add the members of groups of which only the first is known, if these are all of one kind.

    Of a grid the first ranks of its groups at a distance d are 0 to d - 1.
    """
    kinds: dict[str, list[tuple[int, Members]]] = defaultdict(list)
    for group in groups:
        if group.desc and group.size is None and [*group.places] == [0]:
            kinds[group.desc].append((group.places[0], group))
    for alike in kinds.values():
        firsts = sorted(first for first, _ in alike)
        if world is None or firsts != [*range(len(firsts))] or world % len(firsts):
            continue
        for first, group in alike:
            _fill(group, first, len(firsts), world // len(firsts), world, True)


def _fill(
    group: Members, first: int, stride: int, size: int, world: int | None, certain: bool
) -> None:
    found = {first + stride * place for place in range(size)}
    if min(found) >= 0 and (world is None or max(found) < world):
        group.size, group.certain = size, group.certain or certain
        group.ranks |= found


def _common_size(
    alike: Sequence[tuple[Members, int]], stride: int, world: int | None
) -> tuple[int, bool]:
    """The least size that all groups of a kind can have, and whether it is the only one.

    A group begins where the one before it ends, and all together make up the job. 0 for none.
    """
    gathered = {group.size for group, _ in alike if group.certain}
    highest = max(max(group.places) for group, _ in alike) + 1
    blocks = [first // stride for _, first in alike]
    most = min([block for block in blocks if block] or [(world or 0) // stride])
    sizes = [
        size
        for size in (
            gathered if len(gathered) == 1 else range(highest, min(most, _MOST_MEMBERS) + 1)
        )
        if size is not None and size >= highest and all(block % size == 0 for block in blocks)
        if world is None or world % (size * stride) == 0
    ]
    return (sizes[0], len(sizes) == 1) if sizes else (0, False)


def line_through(places: Mapping[int, int]) -> tuple[int, int] | None:
    """The rank at number 0 and the distance of the ranks; None where there is no such line."""
    known = sorted(places.items())
    if len(known) < 2:
        return None
    (place, rank), (other, last) = known[0], known[-1]
    stride, rest = divmod(last - rank, other - place)
    first = rank - stride * place
    if rest or stride < 1 or any(first + stride * at != one for at, one in known):
        return None
    return first, stride


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
