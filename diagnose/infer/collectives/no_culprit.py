"""Verdicts of the wait graph that no single rank is to blame for, in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from diagnose.infer.collectives.explain import SHOWN, members, of_unit, waits
from diagnose.infer.collectives.progress import Standing
from diagnose.infer.collectives.verdict import DumpVerdict
from diagnose.infer.collectives.wait_graph import Graph
from diagnose.text.ranks import ranks_phrase

_LATE_NS = 60 * 10**9


def miscounted(standing: Standing, graph: Graph, pair: list[int]) -> DumpVerdict:
    """Two ranks of which one left out a send or receive, or made one too many."""
    heads = [graph.waits[rank][0] for rank in pair if rank in graph.waits]
    op = next(op for op in heads if op.p2p and op.peer in pair)
    signs = [waits(standing, graph, rank) for rank in pair if rank in graph.waits]
    why = (
        f"{ranks_phrase(pair)} disagree on how many sends and receives they made in "
        f"{standing.table.groups[op.group].label}"
    )
    found = of_unit(standing, "mismatched", (), op.unit, why, signs)
    return replace(found, tie=True, suspects=tuple(pair))


def network(standing: Standing, graph: Graph, ends: list[int]) -> DumpVerdict:
    """Ranks that wait for nobody: all members are there, and nobody is behind."""
    units = Counter(graph.waits[rank][0].unit for rank in ends or graph.waits)
    unit = min(units, key=lambda u: (-units[u], u))
    ops = sorted(
        (ops[0] for ops in graph.waits.values() if ops[0].unit == unit), key=lambda op: op.rank
    )
    notes = []
    times = sorted((op.created, op.rank) for op in ops if op.created > 0)
    if times and times[-1][0] - times[0][0] > _LATE_NS:
        late = [rank for when, rank in times if when - times[0][0] > _LATE_NS]
        seconds = (times[-1][0] - times[0][0]) // 10**9
        notes.append(f"{ranks_phrase(late)} joined late, up to {seconds:,} s after the first")
    first, joined = ops[0], members(standing, unit)[0]
    if first.p2p:
        who = ranks_phrase({end for op in ops for end in (op.rank, op.peer)})
        why = f"{who} launched both sides of {first.op} and none finished it"
    else:
        why = f"all {len(joined)} members launched {first.op} seq {first.seq} and none finished it"
    why += ": check the network and the devices"
    signs = [waits(standing, graph, op.rank) for op in ops[:SHOWN]]
    return of_unit(standing, "network", (), unit, why, signs, notes)
