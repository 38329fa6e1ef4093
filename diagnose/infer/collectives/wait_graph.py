"""Who waits for whom: the graph over all groups, its sinks, and devices that lag behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from diagnose.infer.collectives.progress import Op, Standing, Unit
from diagnose.infer.judge.graph import awaited, ends


@dataclass(slots=True)
class Graph:
    """Edges rank → ranks it waits for; `hard`: the other has not enqueued the operation.

    `ops` has the operation of every edge, `waits` those a rank waits in (one, or a batch).
    """

    edges: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    ops: dict[tuple[int, int], Op] = field(default_factory=dict)
    hard: set[tuple[int, int]] = field(default_factory=set)
    receives: set[tuple[int, int]] = field(default_factory=set)
    waits: dict[int, list[Op]] = field(default_factory=dict)


_Targets = tuple[list[int], list[int]]


def build(standing: Standing) -> Graph:
    """The graph of all ranks that have something pending."""
    graph = Graph()
    known: dict[Unit, _Targets] = {}
    for rank, ops in standing.pending.items():
        waits = [op for op in ops if op.unit == ops[0].unit]
        graph.waits[rank] = waits
        for op in waits:
            _wait(standing, graph, op, known)
        if all(op.op == "recv" for op in waits):
            # Receives are posted ahead: what the rank really waits in may be its next operation.
            later = next((op for op in ops if op.op != "recv"), None)
            if later is not None:
                _wait(standing, graph, later, known, only_hard=True)
    return graph


def _wait(
    standing: Standing,
    graph: Graph,
    op: Op,
    known: dict[Unit, _Targets],
    only_hard: bool = False,
) -> None:
    """Add what `op` waits for; `known` keeps what its members wait for all alike."""
    if op.p2p:
        hard, soft = _targets_p2p(standing, op)
    else:
        if op.unit not in known:
            known[op.unit] = _targets(standing, op)
        hard, soft = known[op.unit]
    for target in hard:
        graph.edges[op.rank].add(target)
        graph.hard.add((op.rank, target))
        graph.ops.setdefault((op.rank, target), op)
        if op.op == "recv":
            graph.receives.add((op.rank, target))
    if not only_hard:
        graph.edges[op.rank].update(soft)
        for target in soft:
            graph.ops.setdefault((op.rank, target), op)


def _targets(standing: Standing, op: Op) -> _Targets:
    absent = standing.absent(op.group, op.seq)
    if absent:
        return absent, []
    earlier = [
        rank
        for rank in standing.members(op.group)
        if rank in standing.pending
        and not standing.completed(rank, op.group, op.seq)
        and standing.pending[rank][0].unit != op.unit
    ]
    done = any(standing.completed(rank, op.group, op.seq) for rank in standing.members(op.group))
    if earlier or done:
        return [], earlier
    return standing.undumped(op.group), []


def _targets_p2p(standing: Standing, op: Op) -> _Targets:
    """A send needs the receive of its peer, the n-th pending one of the two matched."""
    peer = op.peer
    if peer == op.rank or peer < 0:
        return [], []
    if peer not in standing.table.files:
        return [peer], []  # its lines count no sends
    side = standing.other_side(op)
    if side is not None:
        made, theirs_open = side
        if theirs_open is None:
            return ([], []) if made else ([peer], [])
        same = standing.pending[peer][0].unit == theirs_open.unit
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
        first = standing.pending[peer][0]
        return [], [] if first.unit == theirs[place].unit else [peer]
    alike = any(
        o.p2p and o.group == op.group and o.seq <= op.seq for o in standing.pending.get(peer, [])
    )
    pair = len(standing.members(op.group)) == 2  # only then the numbers of both sides agree
    if pair and not alike and standing.enqueued.get((peer, op.group, True), -1) >= op.seq:
        return [], []
    return [peer], []


def sinks(graph: Graph, ranks: Iterable[int]) -> list[list[int]]:
    """Where the waits end, without ranks that nobody waits for and that wait for nobody."""
    inside = awaited(graph.edges) | graph.waits.keys()
    parts = ends({*ranks, *graph.edges}, graph.edges)
    return [part for part in parts if len(part) > 1 or part[0] in inside]


def unfold(graph: Graph, part: list[int]) -> int | None:
    """The rank a cycle really waits for, None when it is one.

    It is none where it only closes by receives posted ahead, or by order on the device. A receive
    does not keep a host from enqueuing what others miss; where they only wait for the device, it
    does.
    """
    inside = set(part)
    missed = {target for node, target in graph.hard if node in inside}
    for drop_soft in (False, True):
        kept = {
            node: {
                target
                for target in graph.edges.get(node, set()) & inside
                if not (node in missed and (node, target) in graph.receives)
                and not (drop_soft and (node, target) not in graph.hard)
            }
            for node in part
        }
        last = ends(part, kept)
        left = [node for found in last for node in found]
        if len(last) < len(part) and len(left) < len(part) and all(len(e) == 1 for e in last):
            return left[0] if len(left) == 1 else None
    return None


def behind(standing: Standing, graph: Graph, rank: int) -> bool:
    """Whether the device of a rank hangs in what others of its group have completed or begun."""
    sides = [standing.other_side(op) for op in graph.waits[rank] if op.p2p]
    if any(side is not None and not side[0] for side in sides):
        return False  # one of a batch still lacks its other side
    for op in graph.waits[rank]:
        others = [r for r in standing.members(op.group) if r != rank]
        if op.p2p:
            side = standing.other_side(op)
            if side is not None:
                if side == (True, None):
                    return True
                continue
            pair = len(others) == 1 and others[0] in standing.table.files
            theirs = [o for o in standing.pending.get(op.peer, []) if o.p2p and o.group == op.group]
            made = standing.enqueued.get((op.peer, op.group, True), -1) >= op.seq
            if pair and made and not any(o.seq <= op.seq for o in theirs):
                return True
            continue
        if any(standing.completed(r, op.group, op.seq) for r in others):
            return True
        begun = [
            any(o.unit == op.unit and o.started for o in standing.pending.get(r, []))
            for r in others
            if r in standing.table.files
        ]
        if not op.started and begun and sum(begun) * 2 > len(begun):
            return True
    return False
