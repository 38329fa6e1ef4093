"""Who waits for whom: the graph over all groups, its ends, and devices that lag behind.

Of a circle the ranks are found without which it is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from diagnose.infer.judge.standing import Standing
from diagnose.infer.judge.verdict import Op, Unit

Edges = Mapping[int, Set[int]]

_CIRCLE = 512  # ranks of a circle that is looked into


class _Shared(NamedTuple):
    """A set of ranks that several wait for."""

    id: int


_Node = int | _Shared
_Targets = tuple[Collection[int], Collection[int]]


def components(nodes: Iterable[int], edges: Edges) -> list[list[int]]:
    """Strongly connected components (Tarjan, without recursion), the ends of paths first.

    A set that several ranks wait for is a node between these and its members, known by its `id`.
    """
    shared = Counter(map(id, edges.values()))
    sets = {_Shared(id(one)): one for one in edges.values() if shared[id(one)] > 1}

    def after(node: _Node) -> Iterator[_Node]:
        targets = sets[node] if isinstance(node, _Shared) else edges.get(node, frozenset())
        between = _Shared(id(targets))
        return iter((between,) if between in sets and node != between else sorted(targets))

    index: dict[_Node, int] = {}
    low: dict[_Node, int] = {}
    on: set[_Node] = set()
    stack: list[_Node] = []
    found: list[list[int]] = []
    for root in nodes:
        if root in index:
            continue
        work = [(cast("_Node", root), after(root))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on.add(target)
                    work.append((target, after(target)))
                    break
                if target in on:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[_Node] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on.discard(part[-1])
                    if ranks := sorted(one for one in part if not isinstance(one, _Shared)):
                        found.append(ranks)
    return found


def ends(nodes: Iterable[int], edges: Edges) -> list[list[int]]:
    """Where the waits end: components nobody in which waits for anybody outside, by their ranks."""
    return sorted(
        part
        for part in components(sorted({*nodes, *awaited(edges)}), edges)
        if all(edges.get(node, frozenset()) <= set(part) for node in part)
    )


def awaited(edges: Edges) -> set[int]:
    """The ranks that somebody waits for."""
    different = {id(targets): targets for targets in edges.values()}
    return {target for targets in different.values() for target in targets}


def keystones(circle: Iterable[int], edges: Edges) -> list[int]:
    """The ranks of a circle that every way around leads through: without one of them it is none."""
    inside = set(circle)
    if len(inside) > _CIRCLE:
        return []
    own = {node: edges.get(node, frozenset()) & inside for node in inside}
    return [node for node in _way_around(own) if not _has_circle(own, inside - {node})]


def _way_around(edges: Edges) -> list[int]:
    """The ranks of one way around, which all candidates are on."""
    node = min(edges)
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = min(edges[node])
    return sorted(path[seen[node] :])


def _has_circle(edges: Edges, nodes: Set[int]) -> bool:
    inner = {node: edges[node] & nodes for node in nodes}
    return any(len(part) > 1 for part in components(sorted(nodes), inner))


class Wait(NamedTuple):
    """What an operation lacks: `hard` have not enqueued it, `soft` stand in something before it."""

    op: Op
    hard: frozenset[int]
    soft: frozenset[int]


@dataclass(slots=True)
class Graph:
    """Edges rank → ranks it waits for, by its `waits`.

    The members of a collective wait for the same ranks and share one set of them: half of ten
    thousand ranks may wait for the other half.
    """

    waits: dict[int, list[Wait]] = field(default_factory=dict)
    edges: dict[int, Set[int]] = field(default_factory=dict)

    def hard(self, rank: int, target: int, op: str | None = None) -> bool:
        """Whether `target` has not enqueued what a rank waits in, some operation or an `op`."""
        waits = self.waits.get(rank, ())
        return any(target in one.hard and op in (None, one.op.op) for one in waits)

    def op(self, rank: int, target: int) -> Op:
        """The operation of an edge."""
        return next(one.op for one in self.waits[rank] if target in one.hard or target in one.soft)


def build(standing: Standing) -> Graph:
    """The graph of all ranks that have something pending."""
    graph = Graph()
    alike: dict[Unit, Wait] = {}
    for rank, heads in standing.heads.items():
        waits = [_wait(standing, op, alike) for op in heads]
        if all(op.op == "recv" for op in heads):
            # Receives are posted ahead: what the rank really waits in may be its next operation.
            later = next((op for op in standing.pending[rank] if op.op != "recv"), None)
            if later is not None:
                waits.append(_wait(standing, later, alike)._replace(soft=frozenset()))
        ends = [one for wait in waits for one in (wait.hard, wait.soft) if one]
        graph.waits[rank] = waits
        graph.edges[rank] = ends[0] if len(ends) == 1 else frozenset[int]().union(*ends)
    return graph


def _wait(standing: Standing, op: Op, alike: dict[Unit, Wait]) -> Wait:
    """What `op` waits for; `alike` has what the members of a collective all wait for."""
    if op.p2p:
        return Wait(op, *map(frozenset, _targets_p2p(standing, op)))
    if op.unit not in alike:
        alike[op.unit] = Wait(op, *map(frozenset, targets(standing, op)))
    return alike[op.unit]._replace(op=op)


def targets(standing: Standing, op: Op) -> _Targets:
    """The ranks that keep a collective from being complete: they have not enqueued it, else they
    stand in something before it, else nothing tells of them.
    """
    group, p2p, seq = op.unit
    if p2p or op.group is None:
        return [], []
    absent = standing.absent(group, seq)
    if absent:
        return absent, []
    earlier = [
        rank
        for rank in standing.members(group)
        if rank in standing.heads
        and not standing.completed(rank, group, seq)
        and op.unit not in (other.unit for other in standing.heads[rank])
    ]
    done = any(standing.completed(rank, group, seq) for rank in standing.members(group))
    if earlier or done:
        return [], earlier
    return standing.unseen(group), []


def _targets_p2p(standing: Standing, op: Op) -> _Targets:
    """A send needs the receive of its peer, the n-th pending one of the two matched."""
    peer = op.peer
    if peer == op.rank or peer < 0:
        return [], []
    if peer not in standing.recorded:
        return [peer], []  # its lines count no sends
    side = standing.other_side(op)
    if side is not None:
        made, theirs_open = side
        if theirs_open is None:
            return ([], []) if made else ([peer], [])
        same = standing.heads[peer][0].unit == theirs_open.unit
        return [], [] if same else [peer]
    mine = [
        o for o in standing.pending[op.rank] if (o.group, o.op, o.peer) == (op.group, op.op, peer)
    ]
    other = "recv" if op.op == "send" else "send"
    theirs = [
        o
        for o in standing.pending.get(peer, [])
        if (o.group, o.op, o.peer) == (op.group, other, op.rank)
    ]
    place = mine.index(op)
    if place < len(theirs):
        first = standing.heads[peer][0]
        return [], [] if first.unit == theirs[place].unit else [peer]
    group, _, seq = op.unit
    alike = _lags(standing, peer, op)
    pair = len(standing.members(group)) == 2  # only then the numbers of both sides agree
    if pair and not alike and standing.enqueued.get((peer, group, True), -1) >= seq:
        return [], []
    return [peer], []


def _lags(standing: Standing, peer: int, op: Op) -> bool:
    """Whether a peer has a send or receive pending of a number that is not beyond that of `op`."""
    units = (other.unit for other in standing.pending.get(peer, []) if other.p2p)
    return any(one[0] == op.group and one <= op.unit for one in units)


@dataclass(slots=True)
class Ends:
    """Where the waits end: ranks that are `idle`, that nothing tells of (`lost`), that wait in a
    group nobody knows (`elsewhere`), whose `device` lags behind its peers', that wait in a circle
    (`cycles`), and all others (`waiting`).
    """

    idle: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    elsewhere: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    cycles: list[list[int]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


def ends_of(standing: Standing, graph: Graph) -> Ends:
    """Where the waits end, without ranks that nobody waits for and that wait for nobody."""
    found = Ends()
    for sink in ends(standing.heads, graph.edges):
        rank = _unfold(graph, sink) if len(sink) > 1 else sink[0]
        if rank is None:
            found.cycles.append(sink)
        elif standing.idle(rank):
            found.idle.append(rank)
        elif rank in standing.elsewhere:
            found.elsewhere.append(rank)
        elif rank not in standing.pending:
            found.lost.append(rank)
        elif _device_hangs(standing, rank):
            found.device.append(rank)
        elif len(sink) > 1:
            found.cycles.append(sink)
        else:
            found.waiting.append(rank)
    return found


def _unfold(graph: Graph, part: list[int]) -> int | None:
    """The rank a cycle really waits for, None when it is one.

    It is none where it only closes by receives posted ahead, or by order on the device. A receive
    does not keep a host from enqueuing what others miss; where they only wait for the device, it
    does.
    """
    inside = set(part)
    waits = (wait for node in part for wait in graph.waits.get(node, ()))
    missed = frozenset[int]().union(*(wait.hard for wait in waits))
    for drop_soft in (False, True):
        kept = {
            node: {
                target
                for target in graph.edges.get(node, set()) & inside
                if not (node in missed and graph.hard(node, target, "recv"))
                and not (drop_soft and not graph.hard(node, target))
            }
            for node in part
        }
        last = ends(part, kept)
        left = [node for found in last for node in found]
        if len(last) < len(part) and len(left) < len(part) and all(len(e) == 1 for e in last):
            return left[0] if len(left) == 1 else None
    return None


def _device_hangs(standing: Standing, rank: int) -> bool:
    """Whether the device of a rank hangs in what others of its group have completed or begun."""
    sides = [standing.other_side(op) for op in standing.heads[rank] if op.p2p]
    if any(side is not None and not side[0] for side in sides):
        return False  # one of a batch still lacks its other side
    for op in standing.heads[rank]:
        group, _, seq = op.unit
        others = [r for r in standing.members(group) if r != rank]
        if op.p2p:
            side = standing.other_side(op)
            if side is not None:
                if side == (True, None):
                    return True
                continue
            pair = len(others) == 1 and others[0] in standing.recorded
            made = standing.enqueued.get((op.peer, group, True), -1) >= seq
            if pair and made and not _lags(standing, op.peer, op):
                return True
            continue
        if any(standing.completed(r, group, seq) for r in others):
            return True
        begun = [
            any(o.unit == op.unit and o.started for o in standing.pending.get(r, []))
            for r in others
            if r in standing.recorded
        ]
        if not op.started and begun and sum(begun) * 2 > len(begun):
            return True
    return False
