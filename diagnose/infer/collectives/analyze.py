"""Which rank stopped the job, from the table of collectives alone.

A rank waits in its oldest pending operation. It waits for the members that have not enqueued that
operation; when all have, for those whose own oldest pending operation is an earlier one. The sinks
of this graph, after folding cycles, hold up all others:

* a sink with nothing pending is stuck on the host (`stuck_host`), or has no dump (`missing`);
* a sink whose oldest operation other members have completed is stuck on the device;
* ranks that called something else than the majority of their group are `mismatched`, as are those
  that left the way of their fellows through the program (`order`);
* ranks that wait for each other in different operations form a `cycle`;
* an operation that all joined, with nobody behind, points at the `network`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from diagnose.infer.collectives import explain as telling
from diagnose.infer.collectives import nobody
from diagnose.infer.collectives import wait_graph as waitgraph
from diagnose.infer.collectives.beside import NO_LINES, Lines, standing_of, with_silent
from diagnose.infer.collectives.divergence import Stray, kinds, strays
from diagnose.infer.collectives.explain import SHOWN, sign
from diagnose.infer.collectives.mismatch import Streams
from diagnose.infer.collectives.progress import Standing
from diagnose.infer.collectives.table import Table
from diagnose.infer.collectives.verdict import DumpVerdict, Kind, Sign
from diagnose.infer.collectives.wait_graph import Graph
from diagnose.infer.judge.standing import whole_node
from diagnose.text.ranks import ranks_phrase

__all__ = ["DumpVerdict", "Kind", "Sign", "judge"]


def judge(table: Table, lines: Lines = NO_LINES, *, alive: bool = True) -> DumpVerdict | None:
    """The verdict on one job, None when nothing is pending in its dumps.

    `alive`: ranks of which dumps tell were alive then.
    """
    if table.empty or not (standing := standing_of(table, lines, alive=alive)).pending:
        return None
    streams, graph, lone = Streams(table), waitgraph.build(standing), strays(table)
    found = _differing(standing, streams, graph, lone) or _blame(standing, streams, graph, lone)
    return telling.finished(standing, graph, with_silent(standing, lines, found, alive=alive))


def _differing(
    standing: Standing, streams: Streams, graph: Graph, lone: list[Stray]
) -> DumpVerdict | None:
    """Ranks whose calls differ from those of the others."""
    mismatch = next(iter(streams.mismatches()), None)
    proven = [stray for stray in lone if stray.proven]
    if mismatch is None or mismatch.tie:
        if proven and 2 * len(proven) < len(standing.ranks):
            return telling.astray(standing, graph, proven)
        side = _among(lone, mismatch.odd) if mismatch else []
        if side:
            return telling.astray(standing, graph, side)
    return telling.differing(standing, mismatch) if mismatch else None


def _among(lone: list[Stray], ranks: Iterable[int]) -> list[Stray]:
    """Strays among `ranks`, if they are few of them."""
    inside = set(ranks)
    found = [stray for stray in lone if stray.rank in inside]
    return found if 2 * len(found) <= len(inside) else []


@dataclass(slots=True)
class _Ends:
    """Where the waits end: ranks that are `idle`, that left no dump (`lost`), that wait in a group
    nobody knows (`elsewhere`), whose `device` lags behind its peers', that wait in a circle
    (`cycles`), and all others (`waiting`).
    """

    idle: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    elsewhere: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    cycles: list[list[int]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


def _ends(standing: Standing, graph: Graph) -> _Ends:
    found = _Ends()
    for sink in waitgraph.sinks(graph, standing.ranks):
        rank = waitgraph.unfold(graph, sink) if len(sink) > 1 else sink[0]
        if rank is None:
            found.cycles.append(sink)
        elif standing.idle(rank):
            found.idle.append(rank)
        elif rank in standing.elsewhere:
            found.elsewhere.append(rank)
        elif rank not in standing.pending:
            found.lost.append(rank)
        elif waitgraph.behind(standing, graph, rank):
            found.device.append(rank)
        elif len(sink) > 1:
            found.cycles.append(sink)
        else:
            found.waiting.append(rank)
    return found


def _blame(standing: Standing, streams: Streams, graph: Graph, lone: list[Stray]) -> DumpVerdict:
    """The culprits by the graph, the strongest evidence first."""
    ends = _ends(standing, graph)
    died = _dead_peers(standing, ends.idle + ends.device)
    if died:
        notes = ["Gloo: inferred from failed operations"]
        return telling.blamed(standing, graph, "missing", died, notes)
    alone = _alone(standing, streams, graph, ends.idle) if ends.idle else None
    if alone is not None:
        return alone
    for rank in () if ends.idle else ends.device:
        pair = nobody.sides_that_differ(standing, graph, rank)
        if pair:
            return nobody.miscounted(standing, graph, pair)
    if ends.idle or ends.device:
        return _stuck(standing, graph, ends)
    if ends.cycles:
        odd = _among(lone, [rank for part in ends.cycles for rank in part])
        if odd:
            return telling.astray(standing, graph, odd)
        return nobody.circle(standing, graph, ends.cycles)
    if ends.lost:
        return _without_dump(standing, streams, graph, ends.lost)
    if ends.elsewhere:
        return nobody.elsewhere(standing, graph, ends.elsewhere)
    return nobody.network(standing, graph, ends.waiting)


def _stuck(standing: Standing, graph: Graph, ends: _Ends) -> DumpVerdict:
    """Ranks that are idle while others wait for them, or whose device did not finish."""
    idle, device, lost = ends.idle, ends.device, ends.lost
    kind: Kind = "stuck_device" if len(device) > len(idle) else "stuck_host"
    notes = [f"no dump from {ranks_phrase(lost)}, which may block ranks too"] * bool(lost)
    if idle and device:
        notes.append(f"idle: {ranks_phrase(idle)}; device did not finish: {ranks_phrase(device)}")
    found = telling.blamed(standing, graph, kind, sorted(idle + device), notes)
    # Numbers of sends and receives differ between the sides: without a count it is a guess. So
    # is blaming those that are idle when as many wait: they may have made a call too many.
    few = 2 * len(found.ranks) < len(standing.ranks)
    counted = all(op.nth >= 0 or not op.p2p for rank in device for op in graph.waits[rank])
    return replace(found, sure=few and counted)


def _without_dump(
    standing: Standing, streams: Streams, graph: Graph, lost: list[int]
) -> DumpVerdict:
    """All waits end at ranks that left no dump."""
    quiet = _behind(standing, [rank for rank in standing.ranks if standing.idle(rank)])
    if quiet and len(quiet) < len(standing.pending):
        # Whoever waits for these left no dump, yet all others wait and they do not.
        notes = [f"no dump from {ranks_phrase(lost)}, so no rank is seen waiting for the culprit"]
        return telling.blamed(standing, graph, "stuck_host", quiet, notes)
    return _unlike(standing, streams, graph) or _missing(standing, graph, lost)


def _dead_peers(standing: Standing, ends: list[int]) -> list[int]:
    """Ranks without a dump that were in the last operation of all ranks others wait for, in gloo.

    Its recorder shows an operation that failed (its peer died) like one that finished. So when
    several ranks seem idle, or slower than their peers (gloo has no device that could lag), and
    one lost rank was in what each of them did last, their connections to it broke. Where more
    are lost than that explains, dumps may be missing for any reason.
    """
    if len(ends) < 2 or any(call.backend != "gloo" for call in standing.table.calls):
        return []
    groups = standing.last_groups()
    lost = [set(standing.undumped(groups[rank])) for rank in ends if rank in groups]
    died = set.intersection(*lost) if len(lost) == len(ends) else set()
    return sorted(died) if 2 * len(died) <= len(ends) else []


def _behind(standing: Standing, idle: list[int]) -> list[int]:
    """Idle ranks that got less far in some kind of group than a rank that waits."""
    kind = kinds(standing.table) if idle else {}
    furthest: dict[int, int] = {}
    for (rank, group, p2p), seq in standing.enqueued.items():
        if not p2p and rank in standing.pending and (rank, group) in kind:
            number = kind[rank, group]
            furthest[number] = max(seq, furthest.get(number, -1))
    return [
        rank
        for rank in idle
        if any(
            standing.enqueued.get((rank, group, False), -1) < furthest.get(number, -1)
            and (rank, group) not in standing.unknown
            for (member, group), number in kind.items()
            if member == rank
        )
    ]


def _missing(standing: Standing, graph: Graph, lost: list[int]) -> DumpVerdict:
    """Ranks without a dump that hold up the others: a node, or each one alone explains a wait.

    Dumps get lost for other reasons too. Where several ranks left none and not each of them is the
    only one that an operation waits for, any of them may be the culprit; likewise one whose dump
    was cut off, for it lived to write it.
    """
    table = standing.table
    unseen = [rank for rank in range(table.world) if rank not in standing.known]
    alone = {next(iter(ends)) for ends in graph.edges.values() if len(ends) == 1}
    found = telling.blamed(standing, graph, "missing", lost)
    whole = unseen == lost and whole_node(lost, len(standing.pending))
    if whole or (set(unseen) <= alone and set(lost) <= set(unseen)):
        return found
    why = f"{found.why}; the other dumps do not show which of them, if any, is to blame"
    return replace(found, ranks=(), tie=True, suspects=tuple(sorted(lost)), why=why)


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
            said = {r: streams.shift(group, r, absent) for r in joined[:SHOWN]}
            return _extra(standing, graph, joined, absent, {r: s for r, s in said.items() if s})
    for rank in idle:
        for name in sorted({op.group for r in waiting for op in graph.waits[r] if not op.p2p}):
            if rank not in standing.members(name):
                continue
            others = [r for r in standing.members(name) if r != rank and r in standing.pending]
            text = streams.shift(name, rank, others) if len(others) > 1 else None
            if text is not None:
                found = telling.blamed(standing, graph, "mismatched", [rank])
                told = sign(standing, rank, text)
                return replace(found, why=text, evidence=(told, *found.evidence))
    return None


def _unlike(standing: Standing, streams: Streams, graph: Graph) -> DumpVerdict | None:
    """A rank whose own peers left no dump, in a call that no group of its kind makes there."""
    odd: dict[int, str] = {}
    for rank in sorted(graph.waits):
        op = graph.waits[rank][0]
        text = None if op.p2p else streams.odd_beside(rank, op.group, op.seq)
        odd.update({rank: text} if text else {})
    if not odd or 2 * len(odd) >= len(graph.waits):
        return None
    signs = [sign(standing, rank, text, graph.waits[rank][0]) for rank, text in odd.items()]
    return telling.of_unit(
        standing,
        "mismatched",
        odd,
        graph.waits[min(odd)][0].unit,
        "; ".join([*odd.values()][:SHOWN]),
        signs,
        ["inferred from groups of the same kind: its own peers left no dump"],
    )


def _extra(
    standing: Standing, graph: Graph, joined: list[int], absent: list[int], said: dict[int, str]
) -> DumpVerdict:
    op = graph.waits[joined[0]][0]
    text = (
        f"only {ranks_phrase(joined)} called {standing.described(op)}; "
        f"{ranks_phrase(absent)} did not"
    )
    signs = [telling.waits(standing, graph, rank) for rank in joined]
    signs += [sign(standing, rank, line) for rank, line in said.items()]
    signs += [sign(standing, rank, f"rank {rank} is idle") for rank in absent[:SHOWN]]
    why = "; ".join([*said.values()] or [text])
    found = telling.of_unit(standing, "mismatched", joined, op.unit, why, signs[: 3 * SHOWN])
    return replace(found, sure=True)
