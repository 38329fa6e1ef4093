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

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from diagnose.infer import waitgraph
from diagnose.infer.collective_table import Table
from diagnose.infer.misaligned import Mismatch, Streams
from diagnose.infer.standing import Standing
from diagnose.infer.waitgraph import Graph

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


def judge(table: Table) -> DumpVerdict | None:
    """The verdict on one job, None when nothing is pending in its dumps."""
    standing = Standing(table)
    if not standing.pending:
        return None
    streams = Streams(table)
    graph = waitgraph.build(standing)
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


def _blame(standing: Standing, streams: Streams, graph: Graph) -> DumpVerdict:
    """The culprits by the graph, the strongest evidence first."""
    files = standing.table.files
    device: list[int] = []
    idle: list[int] = []
    lost: list[int] = []
    cycles: list[list[int]] = []
    for sink in waitgraph.sinks(graph, standing.ranks):
        part = waitgraph.unfold(graph, sink) if len(sink) > 1 else sink
        if len(part) > 1:
            cycles.append(part)
            continue
        for rank in part:
            if rank not in files:
                lost.append(rank)
            elif rank not in standing.pending:
                idle.append(rank)
            elif waitgraph.behind(standing, graph, rank):
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
        quiet = [rank for rank in standing.ranks if rank not in standing.pending]
        if quiet and len(quiet) < len(standing.pending):
            # Whoever waits for these left no dump, yet all others wait and they do not.
            notes = [f"{ranges(lost)} left no dump, so that nobody is seen to wait for the culprit"]
            return _told(standing, graph, "stuck_host", quiet, notes)
        return _unlike(standing, streams, graph) or _told(standing, graph, "missing", lost, [])
    return _network(standing, graph)


def _alone(
    standing: Standing, streams: Streams, graph: Graph, idle: list[int]
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
    standing: Standing, streams: Streams, graph: Graph, part: list[int]
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
    went = [f"rank {r} went on to {standing.described(graph.waits[r][0])}" for r in odd[:_SHOWN]]
    why = "; ".join([*said.values()] or [*went, found.why])
    told = [(standing.table.files[rank], text) for rank, text in said.items()]
    return DumpVerdict(
        "mismatched", found.ranks, found.group, found.op, found.seq, found.joined, found.missing,
        why, (*told, *found.evidence),
    )  # fmt: skip


def _unlike(standing: Standing, streams: Streams, graph: Graph) -> DumpVerdict | None:
    """A rank whose own peers left no dump, in a call that no group of its kind makes there."""
    odd: dict[int, str] = {}
    for rank in sorted(graph.waits):
        op = graph.waits[rank][0]
        text = None if op.p2p else streams.odd_beside(rank, op.group, op.seq)
        odd.update({rank: text} if text else {})
    if not odd or 2 * len(odd) >= len(graph.waits):
        return None
    first = graph.waits[min(odd)][0]
    joined, missing = _members(standing, first.unit)
    return DumpVerdict(
        "mismatched", tuple(odd), standing.table.groups[first.group].label, first.op, first.seq,
        joined, missing, "; ".join([*odd.values()][:_SHOWN]),
        tuple((standing.table.files[rank], text) for rank, text in odd.items()),
        ("told by groups of the same kind: the peers of its own left no dump",),
    )  # fmt: skip


def _extra(
    standing: Standing, graph: Graph, joined: list[int], absent: list[int], said: dict[int, str]
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
    standing: Standing, graph: Graph, kind: Kind, ranks: list[int], notes: list[str]
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


def _began(graph: Graph) -> dict[tuple[str, bool, int], int]:
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


def _cycle(standing: Standing, graph: Graph, part: list[int]) -> DumpVerdict:
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


def _network(standing: Standing, graph: Graph) -> DumpVerdict:
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
