"""What the evidence that is left can determine: the very rank, a set that it is one of, or nothing.

A `Sight` is what a reader can see, whatever the form. From it follows who waits for whom: a rank
that waits in a collective waits for the members of its group that are not in the same one. The
ranks at the end of these waits are the candidates: those that wait for nobody, or, where ranks wait
for each other in a circle, those without which there would be no circle. One candidate is
determined; of several the culprit is one. Where groups or ranks cannot be made out, only a rank's
silence is left: if all ranks but one show that they wait, it is that one.

The rules ask for less than an ingenious reader could do with knowledge of the program, so `group`
and `nothing` are never too strict; `rank` is claimed only where the lines show it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.hangbench.case import Determines
from benchmarks.hangbench.sim.outcome import Line, Outcome, Rank, Work

Authors = Literal["global", "local", "node", "none"]  # what a layout shows of who wrote a line

# Lines that say by themselves what happened to a rank, and how it has ended then. Victims have exit
# statuses too: they say nothing of a rank that waited, or was held up.
_STATES = {
    "raised": ("raised",), "left": ("left",), "busy": ("slow",),
    "exit": ("raised", "killed", "left", "lost"),
}  # fmt: skip


@dataclass(slots=True)
class Sight:
    """What can be seen of a job.

    heads: by rank the work in which it waits, None where it waits for nothing or in nothing that
    can be seen; ranks of which nothing shows how they stand are missing. alike: ranks that the
    culprits cannot be told from, where that is known otherwise. anonymous: that somebody waits of
    whom the evidence does not say who it is. world: that it shows how many ranks there
    are. stated: ranks whose fault the evidence states. groups: that it shows which ranks a
    collective is of. kinds: that operations can be compared, with `sizes` and `dtypes` these too.
    started: that it shows what the devices have started.
    """

    heads: dict[int, Work | None] = field(default_factory=dict)
    alike: tuple[int, ...] = ()
    anonymous: bool = False
    world: bool = True
    stated: set[int] = field(default_factory=set)
    groups: bool = False
    kinds: bool = True
    sizes: bool = True
    dtypes: bool = False
    started: bool = False


@dataclass(frozen=True, slots=True)
class Conclusion:
    """`determines`, `accepted` and `suspects` of a `Truth`."""

    determines: Determines
    accepted: tuple[tuple[int, ...], ...] = ()
    suspects: tuple[int, ...] = ()


def of_lines(
    outcome: Outcome, lines: Iterable[Line], authors: Authors, *, world: bool, sizes: bool = True
) -> Sight:
    """What is to be seen in the lines that are left, in files that show `authors`.

    sizes: that lines print how many elements a call has.
    """
    by_file = authors == "global" or (authors == "local" and outcome.nodes == 1)
    sight = Sight(world=world, sizes=sizes)
    named: set[Work] = set()  # works of which some line states the group
    seen: dict[int, list[Work]] = {}
    anonymous: set[int] = set()  # who prints a timeout that names nobody
    for line in lines:
        sight.world |= line.shows == "world"
        subject = line.rank if line.subject is None else line.subject
        known = line.names_rank or (by_file and subject == line.rank)
        if known:
            for about in line.subjects or (subject,):
                if about is not None and outcome.ranks[about].end in _STATES.get(line.shows, ()):
                    sight.stated.add(about)
        if subject is None or line.work is None:
            continue
        if known and line.names_group and not line.work.p2p:
            named.add(line.work)
        if line.shows == "waits" and known:
            seen.setdefault(subject, []).append(line.work)
        elif line.shows == "waits":
            anonymous.add(subject)
    for rank, works in seen.items():
        sight.heads[rank] = min(works, key=lambda work: work.created)
    # A rank that has named itself says the same once more when it aborts.
    sight.anonymous = not anonymous <= seen.keys()
    single = len({work.group for rank in outcome.ranks for work in rank.works}) == 1
    sight.groups = single or named.issuperset(filter(None, sight.heads.values()))
    sight.stated &= {*outcome.culprits}
    return sight


def of_dumps(outcome: Outcome, ranks: Collection[int]) -> Sight:
    """What Flight Recorder dumps of these ranks show, which name all members of every group."""
    heads = {rank: _head(outcome.ranks[rank]) for rank in ranks}
    return Sight(heads, groups=True, dtypes=True, started=outcome.timing)


def of_counts(outcome: Outcome, ranks: Collection[int]) -> Sight:
    """What the number of calls in every communicator shows (RAS reports, call lines)."""
    heads = {rank: _head(outcome.ranks[rank], collective=True) for rank in ranks}
    return Sight(heads, groups=True, kinds=False)


def of_report(outcome: Outcome, ranks: Collection[int]) -> Sight:
    """What a RAS report shows: a communicator that one of its ranks never joined is not in it."""
    callers: dict[str, set[int]] = defaultdict(set)
    for rank in outcome.ranks:
        for work in rank.works:
            callers[work.group].add(rank.rank)
    sight = of_counts(outcome, ranks)
    for rank, work in sight.heads.items():
        if work and not callers[work.group] >= {*outcome.groups[work.group].members}:
            sight.heads[rank] = None
    return sight


def of_stacks(outcome: Outcome, ranks: Collection[int]) -> Sight:
    """What stacks show: who is in a collective, not in which one with whom."""
    sight = Sight({rank: _head(outcome.ranks[rank]) for rank in ranks}, world=False)
    sites = Counter(outcome.ranks[rank].place for rank in ranks)
    few = [rank for rank in ranks if sites[outcome.ranks[rank].place] == 1]
    if len(ranks) == outcome.world > 2 and len(sites) == 2 and len(few) == 1:
        sight.stated = {*few} & {*outcome.culprits}
    places = {outcome.ranks[rank].place for rank in outcome.culprits}
    group = tuple(rank for rank in ranks if outcome.ranks[rank].place in places)
    if {*outcome.culprits} <= {*group} and len(group) < len(ranks) / 2:
        sight.alike = group
    return sight


def conclude(outcome: Outcome, sights: Sequence[Sight]) -> Conclusion:
    """What all that can be seen determines: the best that any part of it does."""
    order = ("rank", "group", "nothing")
    found = [_conclude(outcome, sight) for sight in sights]
    return min(found, key=lambda one: (order.index(one.determines), len(one.suspects)))


def _conclude(outcome: Outcome, sight: Sight) -> Conclusion:
    culprits = {*outcome.culprits}
    nothing = Conclusion("nothing", suspects=sight.alike or outcome.culprits)
    if not culprits:
        return Conclusion("nothing", suspects=outcome.crossed or _ends_of_link(outcome))
    if culprits <= sight.stated:
        return Conclusion("rank", suspects=outcome.culprits)
    if sight.anonymous or not sight.heads:
        return nothing
    unseen = {*range(outcome.world)} - {*sight.heads}
    idle = {rank for rank, work in sight.heads.items() if work is None}
    if not sight.world and max(culprits) > max(sight.heads):
        return nothing
    silent = unseen | idle
    if silent == culprits:
        return Conclusion("rank", suspects=outcome.culprits)
    if sight.groups:
        return _by_waits(outcome, sight, unseen)
    if culprits <= silent and len(silent) <= outcome.world // 2:
        return Conclusion("group", suspects=tuple(sorted(silent)))
    return Conclusion("nothing", suspects=tuple(sorted({*sight.alike, *silent, *culprits})))


def _ends_of_link(outcome: Outcome) -> tuple[int, ...]:
    """All ranks of the two nodes between which nothing passes."""
    nodes = outcome.link or ()
    return tuple(rank.rank for rank in outcome.ranks if rank.node in nodes)


def _by_waits(outcome: Outcome, sight: Sight, unseen: set[int]) -> Conclusion:
    """The candidates by who waits for whom; of ranks that cannot be seen any may be one."""
    culprits = {*outcome.culprits}
    waits = _Waits(outcome, sight)
    candidates = waits.with_companions(_ends(waits.edges())) | unseen
    if candidates == culprits:
        return Conclusion("rank", suspects=outcome.culprits)
    suspects = tuple(sorted(candidates | culprits))
    if not culprits <= candidates:
        return Conclusion("nothing", suspects=outcome.culprits)
    sides = tuple((rank,) for rank in sorted(candidates - culprits)) if len(candidates) == 2 else ()
    return Conclusion("group", sides, suspects)


class _Waits:
    """Who waits for whom by a sight."""

    def __init__(self, outcome: Outcome, sight: Sight) -> None:
        self._outcome, self._sight = outcome, sight
        units = {(work.group, work.seq) for work in sight.heads.values() if work and not work.p2p}
        self._joined: dict[tuple[str, int], dict[int, Work]] = {unit: {} for unit in units}
        for rank in outcome.ranks:
            for work in rank.works:
                if not work.p2p and (work.group, work.seq) in units:
                    self._joined[work.group, work.seq][rank.rank] = work
        self._heads = {rank.rank: _head(rank) for rank in outcome.ranks}
        self._absent: dict[tuple[object, ...], frozenset[int]] = {}

    def edges(self) -> dict[int, set[int]]:
        """By rank the ranks that it waits for."""
        return {rank: self._waited_for(work) - {rank} for rank, work in self._sight.heads.items()}

    def with_companions(self, ends: set[int]) -> set[int]:
        """The ends, and who is with one of them in a collective that all have joined.

        Any of these may be the one that does not go on, as long as nothing shows what their
        devices have started.
        """
        found = set(ends)
        for rank in ends if not self._sight.started else ():
            work = self._sight.heads.get(rank)
            if work is not None and not work.p2p and not self._waited_for(work) - {rank}:
                found |= {*self._outcome.groups[work.group].members}
        return found

    def _waited_for(self, work: Work | None) -> Set[int]:
        if work is None:
            return frozenset()
        if work.p2p:
            ends = {peer for op, peer in work.peers if not _meets(self._outcome, work, op, peer)}
            return ends | {peer for _, peer in work.peers if self._held_up(peer, work.rank)}
        key = (work.group, work.seq, work.started is None, *_kind(self._sight, work))
        if key not in self._absent:
            self._absent[key] = frozenset(
                member
                for member in self._outcome.groups[work.group].members
                if not self._is_with(member, work)
            )
        return self._absent[key]

    def _is_with(self, member: int, work: Work) -> bool:
        """Whether a member waits, or has waited, in the same operation."""
        theirs = self._joined[work.group, work.seq].get(member)
        if theirs is None or _kind(self._sight, work) != _kind(self._sight, theirs):
            return False
        if not self._sight.kinds:
            return True  # numbers of calls say nothing of what the devices wait for
        if self._sight.started:
            return theirs.started is not None or work.started is None
        return self._heads[member] is theirs  # else its device waits in something before

    def _held_up(self, peer: int, rank: int) -> bool:
        """Whether the device of a peer waits in something else than an exchange with `rank`."""
        head = self._heads[peer]
        return head is not None and all(other != rank for _, other in head.peers)


def _kind(sight: Sight, work: Work) -> tuple[object, ...]:
    """What must be equal on all members as far as it can be seen."""
    if not sight.kinds:
        return ()
    uneven = work.op.startswith("all_to_all") or not sight.sizes
    sizes = () if uneven else (work.numel_in, work.numel_out)
    return (work.op, *sizes, *([work.dtype] if sight.dtypes else []))


def _meets(outcome: Outcome, work: Work, op: str, peer: int) -> bool:
    """Whether the other side of a send or receive has been enqueued."""
    number = _exchanges(outcome.ranks[work.rank], work, op, peer, until=work)
    theirs = _exchanges(outcome.ranks[peer], work, _OTHER_SIDE[op], work.rank)
    return theirs >= number


_OTHER_SIDE = {"send": "recv", "recv": "send"}


def _exchanges(rank: Rank, like: Work, op: str, peer: int, until: Work | None = None) -> int:
    """How many sends to (receives from) a peer a rank has enqueued, up to one of its works."""
    count = 0
    for work in rank.works:
        if work.group == like.group and work.p2p:
            count += work.peers.count((op, peer))
        if work is until:
            break
    return count


def _head(rank: Rank, *, collective: bool = False) -> Work | None:
    """The oldest work in which a rank waits."""
    return next((work for work in rank.pending if not (collective and work.p2p)), None)


def _ends(edges: dict[int, set[int]]) -> set[int]:
    """The ranks at the end of all waits.

    Of a circle at the end these are the ranks without which no circle is left. Ranks that nobody
    waits for and that wait for nobody are no end of anything.
    """
    ends: set[int] = set()
    awaited = {rank for targets in edges.values() for rank in targets}
    for circle in _components(edges):
        leaves = any(target not in circle for rank in circle for target in edges.get(rank, ()))
        if leaves or not (circle & awaited):
            continue
        if len(circle) == 1:
            ends |= circle
        else:
            ends |= {rank for rank in circle if not _has_circle(edges, circle - {rank})}
    return ends


def _has_circle(edges: dict[int, set[int]], ranks: set[int]) -> bool:
    inner = {rank: edges.get(rank, set()) & ranks for rank in ranks}
    return any(len(circle) > 1 for circle in _components(inner))


def _components(edges: dict[int, set[int]]) -> list[set[int]]:
    """The strongly connected components (Tarjan's algorithm without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []
    every = {*edges} | {target for targets in edges.values() for target in targets}
    for root in sorted(every):
        if root in index:
            continue
        path: list[tuple[int, list[int]]] = [(root, sorted(edges.get(root, ())))]
        while path:
            node, rest = path[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            if rest:
                target = rest.pop()
                if target not in index:
                    path.append((target, sorted(edges.get(target, ()))))
                elif target in on_stack:
                    low[node] = min(low[node], index[target])
                continue
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[node])
            if low[node] == index[node]:
                component: set[int] = set()
                while node not in component:
                    component.add(stack.pop())
                on_stack -= component
                found.append(component)
    return found
