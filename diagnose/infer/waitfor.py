"""Which rank stopped the job, from the table of collectives alone.

A rank waits in its oldest pending operation. It waits for the members that have not enqueued that
operation; when all have, for those whose own oldest pending operation is an earlier one. The sinks
of this graph, after folding cycles, hold up all others:

* a sink with nothing pending is stuck on the host (`stuck_host`), or has no dump (`missing`);
* a sink whose oldest operation other members have completed is stuck on the device;
* ranks that called something else than the majority of their group are `mismatched`;
* ranks that wait for each other in different operations form a `cycle`;
* an operation that all joined, with nobody behind, points at the `network`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal

from diagnose.infer.collective_table import Table
from diagnose.infer.misaligned import Mismatch, Streams
from diagnose.infer.standing import Op, Standing

Kind = Literal["missing", "mismatched", "stuck_host", "stuck_device", "cycle", "network"]
_SHOWN = 3  # waiting ranks quoted as evidence
_LATE_NS = 60 * 10**9


@dataclass(frozen=True, slots=True)
class DumpVerdict:
    """What dumps say about a hang. Ranks are global and sorted.

    `group`, `op`, `seq` name the operation that most ranks wait in for the culprits; `joined` and
    `missing` are the members that have and have not enqueued it, as far as known. `ranks` is empty
    for `network`. `evidence` holds (file, text).
    """

    kind: Kind
    ranks: tuple[int, ...]
    group: str | None
    op: str | None
    seq: int | None
    joined: tuple[int, ...]
    missing: tuple[int, ...]
    why: str
    evidence: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Graph:
    """Edges rank → ranks it waits for; `hard`: the other has not enqueued the operation."""

    edges: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    hard: set[tuple[int, int]] = field(default_factory=set)
    receives: set[tuple[int, int]] = field(default_factory=set)
    waits: dict[int, list[Op]] = field(default_factory=dict)


def judge(table: Table) -> DumpVerdict | None:
    """The verdict on one job, None when nothing is pending in its dumps."""
    standing = Standing(table)
    if not standing.pending:
        return None
    streams = Streams(table)
    graph = _graph(standing)
    found = _mismatched(standing, streams.mismatches())
    if found is None:
        found = _blame(standing, streams, graph)
    notes = [*table.notes, *found.notes, *_unseen(standing)]
    return DumpVerdict(
        found.kind, found.ranks, found.group, found.op, found.seq, found.joined, found.missing,
        found.why, found.evidence, tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def ranges(ranks: tuple[int, ...] | list[int]) -> str:
    """`rank 3`, `ranks 0-6, 8`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], rank]
        else:
            parts.append([rank])
    text = ", ".join("-".join(map(str, part)) for part in parts)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def _graph(standing: Standing) -> _Graph:
    graph = _Graph()
    for rank, ops in standing.pending.items():
        waits = [op for op in ops if op.unit == ops[0].unit]
        graph.waits[rank] = waits
        for op in waits:
            _wait(standing, graph, op)
        if all(op.op == "recv" for op in waits):
            # Receives are posted ahead: what the rank really waits in may be its next operation.
            later = next((op for op in ops if op.op != "recv"), None)
            if later is not None:
                _wait(standing, graph, later, only_hard=True)
    return graph


def _wait(standing: Standing, graph: _Graph, op: Op, only_hard: bool = False) -> None:
    """Add what `op` waits for."""
    hard, soft = _targets_p2p(standing, op) if op.p2p else _targets(standing, op)
    for target in hard:
        graph.edges[op.rank].add(target)
        graph.hard.add((op.rank, target))
        if op.op == "recv":
            graph.receives.add((op.rank, target))
    if not only_hard:
        graph.edges[op.rank].update(soft)


def _targets(standing: Standing, op: Op) -> tuple[list[int], list[int]]:
    absent = standing.absent(op.group, op.seq)
    if absent:
        return absent, []
    behind = [
        rank
        for rank in standing.members(op.group)
        if rank != op.rank
        and rank in standing.pending
        and not standing.completed(rank, op.group, op.seq)
        and standing.pending[rank][0].unit != op.unit
    ]
    done = any(standing.completed(rank, op.group, op.seq) for rank in standing.members(op.group))
    if behind or done:
        return [], behind
    return standing.undumped(op.group), []


def _targets_p2p(standing: Standing, op: Op) -> tuple[list[int], list[int]]:
    """A send needs the receive of its peer, the n-th pending one of the two matched."""
    peer = op.peer
    if peer == op.rank or peer < 0:
        return [], []
    if peer not in standing.table.files:
        return [peer], []
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
    pair = len(standing.members(op.group)) == 2
    if pair and standing.enqueued.get((peer, op.group, True), -1) >= op.seq:
        return [], []
    return [peer], []


def _components(nodes: list[int], edges: dict[int, set[int]]) -> list[list[int]]:
    """Strongly connected components (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
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
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target in on:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on.discard(part[-1])
                    found.append(sorted(part))
    return found


def _sinks(graph: _Graph, ranks: list[int]) -> list[list[int]]:
    """Components nobody in which waits for anybody outside."""
    targets = {target for ends in graph.edges.values() for target in ends}
    nodes = sorted({*ranks, *graph.edges, *targets})
    return [
        part
        for part in _components(nodes, graph.edges)
        if all(graph.edges.get(node, set()) <= set(part) for node in part)
        and (len(part) > 1 or part[0] in targets or part[0] in graph.waits)
    ]


def _mismatched(standing: Standing, mismatches: list[Mismatch]) -> DumpVerdict | None:
    if not mismatches:
        return None
    first = mismatches[0]
    ranks, group = first.odd, standing.table.groups[first.group]
    sides = "; ".join(
        f"{ranges(called)} called {call}" for call, called in [*first.calls.items()][:4]
    )
    if first.tie:
        why = f"a tie, no majority at seq {first.seq} of {group.label}: {sides}"
    else:
        why = "; ".join(first.said.values()) or sides
        more = len(ranks) - len(first.said)
        why += f"; and {more} more ranks" if more > 0 else ""
    joined = tuple(sorted(r for called in first.calls.values() for r in called))
    files = standing.table.files
    evidence = [(files[r], text) for r, text in first.said.items()]
    for call, called in first.calls.items():
        quoted = called[: _SHOWN if first.tie else 1]
        evidence += [(files[r], f"rank {r}: {call} at seq {first.seq}") for r in quoted]
    return DumpVerdict(
        "mismatched", ranks, group.label, first.op, first.seq, joined,
        tuple(r for r in group.members if r not in joined and r in files), why,
        tuple(dict.fromkeys(evidence)), (first.note,) if first.note else (),
    )  # fmt: skip


def _blame(standing: Standing, streams: Streams, graph: _Graph) -> DumpVerdict:
    """The culprits by the graph, the strongest evidence first."""
    files = standing.table.files
    device: list[int] = []
    idle: list[int] = []
    lost: list[int] = []
    cycles: list[list[int]] = []
    for sink in _sinks(graph, standing.ranks):
        part = _unfold(graph, sink) if len(sink) > 1 else sink
        if len(part) > 1:
            cycles.append(part)
            continue
        for rank in part:
            if rank not in files:
                lost.append(rank)
            elif rank not in standing.pending:
                idle.append(rank)
            elif _behind(standing, graph, rank):
                device.append(rank)
    if idle:
        alone = _alone(standing, streams, graph, idle)
        if alone is not None:
            return alone
    if idle or device:
        kind: Kind = "stuck_device" if len(device) > len(idle) else "stuck_host"
        notes = [f"{ranges(lost)} left no dump and may hold up others as well"] if lost else []
        if idle and device:
            notes.append(f"stuck on the host: {ranges(idle)}; on the device: {ranges(device)}")
        return _told(standing, graph, kind, sorted(idle + device), notes)
    if cycles:
        part = min(cycles)
        return _out_of_step(standing, streams, graph, part) or _cycle(standing, graph, part)
    if lost:
        return _told(standing, graph, "missing", lost, [])
    return _network(standing, graph)


def _unfold(graph: _Graph, part: list[int]) -> list[int]:
    """A cycle that only closes by receives posted ahead, or by order on the device, is none."""
    inside = set(part)
    for drop_soft in (False, True):
        kept = {
            node: {
                target
                for target in graph.edges.get(node, set()) & inside
                if (node, target) not in graph.receives
                and not (drop_soft and (node, target) not in graph.hard)
            }
            for node in part
        }
        ends = [
            found
            for found in _components(part, kept)
            if all(kept[node] <= set(found) for node in found)
        ]
        left = [node for found in ends for node in found]
        if len(ends) < len(part) and len(left) < len(part) and all(len(e) == 1 for e in ends):
            return left if len(left) == 1 else part
    return part


def _behind(standing: Standing, graph: _Graph, rank: int) -> bool:
    """Whether the device of a rank hangs in what others of its group have completed or begun."""
    for op in graph.waits[rank]:
        others = [r for r in standing.members(op.group) if r != rank]
        if op.p2p:
            pair = len(others) == 1 and others[0] in standing.table.files
            theirs = [o for o in standing.pending.get(op.peer, []) if o.p2p and o.group == op.group]
            if pair and not any(o.seq <= op.seq for o in theirs):
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


def _alone(
    standing: Standing, streams: Streams, graph: _Graph, idle: list[int]
) -> DumpVerdict | None:
    """A few ranks in a call that most others never made, or one that lost step by an earlier call.

    When more ranks are idle than wait, the ones that wait made a call too many.
    """
    waiting = sorted(standing.pending)
    units = {graph.waits[rank][0].unit for rank in waiting}
    group, p2p, seq = graph.waits[waiting[0]][0].unit
    if len(units) == 1 and not p2p:
        absent = standing.absent(group, seq)
        joined = [
            r for r in standing.members(group) if r in standing.table.files and r not in absent
        ]
        if len(absent) > len(joined) and set(absent) <= set(idle):
            said = {r: streams.shift(group, r, absent) for r in joined[:_SHOWN]}
            return _extra(standing, graph, joined, absent, {r: s for r, s in said.items() if s})
    for rank in idle:
        for name in sorted({op.group for r in waiting for op in graph.waits[r] if not op.p2p}):
            if rank not in standing.members(name):
                continue
            others = [r for r in standing.members(name) if r != rank and r in standing.pending]
            text = streams.shift(name, rank, others) if len(others) > 1 else None
            if text is not None:
                found = _told(standing, graph, "mismatched", [rank], [])
                return DumpVerdict(
                    "mismatched", (rank,), found.group, found.op, found.seq, found.joined,
                    found.missing, text, ((standing.table.files[rank], text), *found.evidence),
                )  # fmt: skip
    return None


def _out_of_step(
    standing: Standing, streams: Streams, graph: _Graph, part: list[int]
) -> DumpVerdict | None:
    """A cycle that closes because a few ranks went on to something else than their group.

    Of every collective that some have joined and others not, the smaller side is odd; the most
    lopsided one tells. Even sides leave it a cycle.
    """
    ratios: list[tuple[float, tuple[str, bool, int], list[int]]] = []
    for unit in {graph.waits[rank][0].unit for rank in part if rank in graph.waits}:
        joined, absent = _members(standing, unit)
        few, many = sorted((joined, absent), key=len)
        if not unit[1] and few and len(many) >= 2 * len(few):
            ratios.append((len(many) / len(few), unit, list(few)))
    if not ratios:
        return None
    best = max(ratio for ratio, _, _ in ratios)
    odd = min(few for ratio, _, few in ratios if ratio == best)
    blamed = {tuple(few) for ratio, _, few in ratios if ratio == best}
    if len(blamed) > 1:
        return None
    groups = sorted({unit[0] for _, unit, _ in ratios} | {graph.waits[r][0].group for r in odd})
    said: dict[int, str] = {}
    for rank in odd[:_SHOWN]:
        for group in groups:
            others = [r for r in standing.members(group) if r not in odd]
            text = streams.shift(group, rank, others) if rank in standing.members(group) else None
            said.update({rank: text} if text else {})
    found = _told(standing, graph, "mismatched", odd, [])
    waits = [f"rank {r} waits in {standing.described(graph.waits[r][0])}" for r in odd[:_SHOWN]]
    why = "; ".join([*said.values()] or [*waits, f"which its group has not come to; {found.why}"])
    told = [(standing.table.files[rank], text) for rank, text in said.items()]
    return DumpVerdict(
        "mismatched", found.ranks, found.group, found.op, found.seq, found.joined, found.missing,
        why, (*told, *found.evidence),
    )  # fmt: skip


def _extra(
    standing: Standing, graph: _Graph, joined: list[int], absent: list[int], said: dict[int, str]
) -> DumpVerdict:
    op = graph.waits[joined[0]][0]
    text = f"only {ranges(joined)} called {standing.described(op)}; {ranges(absent)} did not"
    files = standing.table.files
    evidence = [
        (files[r], f"rank {r} waits in {standing.described(graph.waits[r][0])}") for r in joined
    ]
    evidence += [(files[r], line) for r, line in said.items()]
    evidence += [(files[r], f"rank {r} has nothing pending") for r in absent[:_SHOWN]]
    return DumpVerdict(
        "mismatched", tuple(joined), standing.table.groups[op.group].label, op.op, op.seq,
        tuple(joined), tuple(absent), "; ".join([*said.values()] or [text]),
        tuple(evidence[: 3 * _SHOWN]),
    )  # fmt: skip


def _told(
    standing: Standing, graph: _Graph, kind: Kind, ranks: list[int], notes: list[str]
) -> DumpVerdict:
    """The verdict on single ranks, with the operation in which most others wait for them."""
    files, blamed = standing.table.files, set(ranks)
    direct = Counter(
        op.unit
        for rank, ops in graph.waits.items()
        if rank not in blamed and graph.edges.get(rank, set()) & blamed
        for op in ops
    )
    own = {op.unit for rank in ranks for op in graph.waits.get(rank, [])[:1]}
    began = _began(graph)
    unit = (
        min(direct, key=lambda u: (-direct[u], began[u], u)) if direct else min(own, default=None)
    )
    if kind == "stuck_device" and own:
        unit = min(own)
    if unit is None:
        return DumpVerdict(kind, tuple(ranks), None, None, None, (), (), "", (), tuple(notes))
    shown = next(op for ops in standing.pending.values() for op in ops if op.unit == unit)
    joined, missing = _members(standing, unit)
    evidence = []
    for rank in ranks[: 2 * _SHOWN]:
        if rank not in files:
            continue
        ops = graph.waits.get(rank)
        state = f"waits in {standing.described(ops[0])}" if ops else "has nothing pending"
        evidence.append((files[rank], f"rank {rank} {state}{_frontier(standing, unit, rank)}"))
    waiting = [
        r for r in sorted(graph.waits) if r not in blamed and graph.edges.get(r, set()) & blamed
    ]
    evidence += [
        (files[r], f"rank {r} waits in {standing.described(graph.waits[r][0])}")
        for r in waiting[:_SHOWN]
    ]
    who, held = ranges(ranks), len([r for r in graph.waits if r not in blamed])
    others = f"{held} other rank{'s' if held != 1 else ''} wait{'s' if held == 1 else ''}"
    one = len(ranks) == 1
    if kind == "missing":
        why = f"{who} left no dump, and {others} for {'it' if one else 'them'} to join"
    elif kind == "stuck_device":
        stuck = {graph.waits[r][0].unit: graph.waits[r][0] for r in ranks if r in graph.waits}
        where = " and ".join(
            f"{op.op} seq {op.seq} of {standing.table.groups[op.group].label}"
            for op in [*stuck.values()][:_SHOWN]
        )
        why = (
            f"{who} enqueued {where} like {'its' if one else 'their'} peers, but "
            f"{'its device has' if one else 'their devices have'} not finished what theirs have"
        )
    elif kind == "mismatched":
        why = f"{others} for {'it' if one else 'them'} in {shown.op} seq {shown.seq}"
    else:
        why = (
            f"{who} {'has' if one else 'have'} nothing pending and never enqueued what {others} for"
        )
    return DumpVerdict(
        kind, tuple(ranks), standing.table.groups[shown.group].label, shown.op, shown.seq,
        joined, missing, why, tuple(evidence), tuple(notes),
    )  # fmt: skip


def _began(graph: _Graph) -> dict[tuple[str, bool, int], int]:
    """When the first rank that waits in an operation enqueued it."""
    began: dict[tuple[str, bool, int], int] = {}
    for ops in graph.waits.values():
        for op in ops:
            began[op.unit] = min(op.created, began.get(op.unit, op.created))
    return began


def _frontier(standing: Standing, unit: tuple[str, bool, int], rank: int) -> str:
    last = standing.enqueued.get((rank, unit[0], unit[1]))
    if last is None:
        return ""
    return f"; the last it enqueued in {standing.table.groups[unit[0]].label} is seq {last}"


def _members(
    standing: Standing, unit: tuple[str, bool, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(joined, missing) of the members of an operation, those without a dump left out of both."""
    group, p2p, seq = unit
    known = [rank for rank in standing.members(group) if rank in standing.table.files]
    if p2p:
        ends = {
            end
            for ops in standing.pending.values()
            for op in ops
            if op.unit == unit
            for end in (op.rank, op.peer)
        }
        known = sorted(ends & set(known))
    joined = [r for r in known if standing.enqueued.get((r, group, p2p), -1) >= seq]
    return tuple(joined), tuple(r for r in known if r not in joined)


def _cycle(standing: Standing, graph: _Graph, part: list[int]) -> DumpVerdict:
    files = standing.table.files
    waits = {rank: graph.waits[rank][0] for rank in part if rank in graph.waits}
    evidence = []
    for rank, op in [*waits.items()][: 2 * _SHOWN]:
        ends = sorted(graph.edges.get(rank, set()) & set(part))
        text = f"rank {rank} waits in {standing.described(op)} for {ranges(ends)}"
        evidence.append((files[rank], text))
    first = min(waits.values(), key=lambda op: (op.created, op.rank))
    joined, missing = _members(standing, first.unit)
    return DumpVerdict(
        "cycle", tuple(part), standing.table.groups[first.group].label, first.op, first.seq,
        joined, missing,
        f"{ranges(part)} wait for each other: " + "; ".join(t for _, t in evidence[:_SHOWN]),
        tuple(evidence),
    )  # fmt: skip


def _network(standing: Standing, graph: _Graph) -> DumpVerdict:
    """All that wait have all their members there, and nobody is behind."""
    units = Counter(ops[0].unit for ops in graph.waits.values())
    unit = min(units, key=lambda u: (-units[u], u))
    ops = sorted(
        (ops[0] for ops in graph.waits.values() if ops[0].unit == unit), key=lambda op: op.rank
    )
    joined, missing = _members(standing, unit)
    files, first = standing.table.files, ops[0]
    notes = []
    times = sorted((op.created, op.rank) for op in ops if op.created > 0)
    if times and times[-1][0] - times[0][0] > _LATE_NS:
        late = [rank for when, rank in times if when - times[0][0] > _LATE_NS]
        seconds = (times[-1][0] - times[0][0]) // 10**9
        notes.append(f"{ranges(late)} joined late, up to {seconds:,} s after the first")
    return DumpVerdict(
        "network", (), standing.table.groups[first.group].label, first.op, first.seq, joined,
        missing,
        f"all {len(joined)} members enqueued {first.op} seq {first.seq} alike and none finished it:"
        " suspect the network or a device",
        tuple(
            (files[op.rank], f"rank {op.rank} waits in {standing.described(op)}")
            for op in ops[:_SHOWN]
        ),
        tuple(notes),
    )  # fmt: skip


def _unseen(standing: Standing) -> list[str]:
    """Ranks of the job that left no dump."""
    lost = [rank for rank in range(standing.table.world) if rank not in standing.table.files]
    return [f"no dump of {ranges(lost)}"] if lost else []
