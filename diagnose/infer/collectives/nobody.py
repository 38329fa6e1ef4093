"""Verdicts of the wait graph that no single rank is to blame for: circles, counts, the network."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from diagnose.infer.collectives.by_table import ByTable
from diagnose.infer.collectives.divergence import kinds
from diagnose.infer.collectives.explain import SHOWN, blamed, members, of_unit, sign, waits
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.judge.wait_graph import Graph, keystones
from diagnose.text.ranks import ranks_phrase

_LATE_NS = 60 * 10**9


def circle(standing: ByTable, graph: Graph, cycles: list[list[int]]) -> Verdict:
    """The one rank that every way around leads through, if there is one; else nobody."""
    keys = {rank for part in cycles for rank in keystones(part, graph.edges)}
    if len(cycles) == 1 and len(keys) == 1 and not _sends(standing, cycles[0]):
        return _closed_by(standing, graph, cycles[0], keys.pop())
    return _open(standing, graph, cycles)


def _sends(standing: ByTable, part: list[int]) -> bool:
    """Whether somebody in it waits for a send or receive: these are posted ahead in any order."""
    return any(op.p2p for rank in part for op in standing.heads.get(rank, ()))


def _closed_by(standing: ByTable, graph: Graph, part: list[int], rank: int) -> Verdict:
    """One rank took two calls in another order than all others, who agree with each other."""
    found = blamed(standing, graph, "mismatched", [rank])
    others = [other for other in part if other != rank]
    own, theirs = standing.heads[rank][0], standing.heads[others[0]][0]
    text = (
        f"rank {rank} is waiting in {standing.described(own)} for {ranks_phrase(others)}, which "
        f"wait for it in {standing.described(theirs)}"
    )
    return replace(found, why=text, evidence=(sign(standing, rank, text, own), *found.evidence))


def _open(standing: ByTable, graph: Graph, cycles: list[list[int]]) -> Verdict:
    """Ranks that wait for each other, none of them more to blame than another."""
    part, *more = sorted(cycles)
    heads = {rank: standing.heads[rank][0] for rank in part if rank in standing.heads}
    signs = []
    for rank, op in [*heads.items()][: 2 * SHOWN]:
        ends = sorted(graph.edges.get(rank, set()) & set(part))
        text = f"rank {rank} is waiting in {standing.described(op)} for {ranks_phrase(ends)}"
        signs.append(sign(standing, rank, text, op))
    first = min(heads.values(), key=lambda op: (op.began or 0, op.rank))
    waits = "; ".join(one.text for one in signs[:SHOWN])
    found = of_unit(
        standing,
        "cycle",
        (),
        first.unit,
        f"{ranks_phrase(part)} wait for each other: {waits}",
        signs,
    )
    notes = tuple(f"{ranks_phrase(other)} also wait for each other" for other in more[:SHOWN])
    suspects = tuple(sorted(rank for ranks in cycles for rank in ranks))
    return replace(found, suspects=suspects, notes=notes)


def sides_that_differ(standing: ByTable, rank: int) -> list[int]:
    """The two sides of a send, if one has made more or fewer than a rank that is as far as it.

    Where dumps do not go back far enough to count, numbers alone tell that the peer is through
    with what `rank` waits in: wrongly so when one of the two left one out or made one too many.
    """
    op = standing.heads[rank][0]
    if not op.p2p or op.nth >= 0:
        return []
    kind = kinds(standing.table)
    made: dict[int, dict[tuple[int, bool], int]] = defaultdict(dict)
    for (member, group, p2p), seq in standing.enqueued.items():
        if (member, group) in kind:
            made[member][kind[member, group], p2p] = seq
    for side in (rank, op.peer):
        own = made[side]
        differing = [
            [key for key in own if own[key] != other[key]]
            for member, other in made.items()
            if member != side and other.keys() == own.keys()
        ]
        if [(kind[side, op.unit[0]], True)] in differing:
            return sorted((rank, op.peer))
    return []


def miscounted(standing: ByTable, graph: Graph, pair: list[int]) -> Verdict:
    """Two ranks of which one left out a send or receive, or made one too many."""
    heads = [standing.heads[rank][0] for rank in pair if rank in standing.heads]
    op = next(op for op in heads if op.p2p and op.peer in pair)
    signs = [waits(standing, rank) for rank in pair if rank in standing.heads]
    why = (
        f"{ranks_phrase(pair)} disagree on how many sends and receives they made in "
        f"{standing.table.groups[op.unit[0]].label}"
    )
    found = of_unit(standing, "mismatched", (), op.unit, why, signs)
    return replace(found, suspects=tuple(pair))


def elsewhere(standing: ByTable, graph: Graph, ends: list[int]) -> Verdict:
    """Ranks that wait by their own lines, nobody knows for whom."""
    found = blamed(standing, graph, "missing", ends)
    why = f"the others wait for {ranks_phrase(ends)}, whose own wait no dump shows"
    return replace(found, ranks=(), suspects=tuple(sorted(ends)), why=why)


def network(standing: ByTable, graph: Graph, ends: list[int]) -> Verdict:
    """Ranks that wait for nobody: all members are there, and nobody is behind."""
    units = Counter(standing.heads[rank][0].unit for rank in ends or standing.heads)
    unit = min(units, key=lambda u: (-units[u], u))
    ops = sorted(
        (ops[0] for ops in standing.heads.values() if ops[0].unit == unit), key=lambda op: op.rank
    )
    notes = []
    times = sorted((op.began, op.rank) for op in ops if op.began)
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
    signs = [waits(standing, op.rank) for op in ops[:SHOWN]]
    return of_unit(standing, "network", (), unit, why, signs, notes)
