"""Ranks that wait for each other in a circle: the one that closes it, else nobody, in words."""

from __future__ import annotations

from dataclasses import replace

from diagnose.infer.collectives.explain import SHOWN, blamed, of_unit, sign
from diagnose.infer.collectives.progress import Standing
from diagnose.infer.collectives.verdict import DumpVerdict
from diagnose.infer.collectives.wait_graph import Graph
from diagnose.infer.judge.graph import keystones
from diagnose.text.ranks import ranks_phrase


def circle(standing: Standing, graph: Graph, cycles: list[list[int]]) -> DumpVerdict:
    """The one rank that every way around leads through, if there is one; else nobody."""
    keys = {rank for part in cycles for rank in keystones(part, graph.edges)}
    if len(cycles) == 1 and len(keys) == 1 and not _sends(graph, cycles[0]):
        return _closed_by(standing, graph, cycles[0], keys.pop())
    return _open(standing, graph, cycles)


def _sends(graph: Graph, part: list[int]) -> bool:
    """Whether somebody in it waits for a send or receive: these are posted ahead in any order."""
    return any(op.p2p for rank in part for op in graph.waits.get(rank, ()))


def _closed_by(standing: Standing, graph: Graph, part: list[int], rank: int) -> DumpVerdict:
    """One rank took two calls in another order than all others, who agree with each other."""
    found = blamed(standing, graph, "mismatched", [rank])
    others = [other for other in part if other != rank]
    own, theirs = graph.waits[rank][0], graph.waits[others[0]][0]
    text = (
        f"rank {rank} is waiting in {standing.described(own)} for {ranks_phrase(others)}, which "
        f"wait for it in {standing.described(theirs)}"
    )
    return replace(found, why=text, evidence=(sign(standing, rank, text, own), *found.evidence))


def _open(standing: Standing, graph: Graph, cycles: list[list[int]]) -> DumpVerdict:
    """Ranks that wait for each other, none of them more to blame than another."""
    part, *more = sorted(cycles)
    heads = {rank: graph.waits[rank][0] for rank in part if rank in graph.waits}
    signs = []
    for rank, op in [*heads.items()][: 2 * SHOWN]:
        ends = sorted(graph.edges.get(rank, set()) & set(part))
        text = f"rank {rank} is waiting in {standing.described(op)} for {ranks_phrase(ends)}"
        signs.append(sign(standing, rank, text, op))
    first = min(heads.values(), key=lambda op: (op.created, op.rank))
    told = "; ".join(one.text for one in signs[:SHOWN])
    found = of_unit(
        standing,
        "cycle",
        (),
        first.unit,
        f"{ranks_phrase(part)} wait for each other: {told}",
        signs,
    )
    notes = tuple(f"{ranks_phrase(other)} also wait for each other" for other in more[:SHOWN])
    suspects = tuple(sorted(rank for ranks in cycles for rank in ranks))
    return replace(found, tie=True, suspects=suspects, notes=notes)
