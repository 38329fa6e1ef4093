"""Verdicts on dumps, in words: the operation it is about, who joined, why, and the evidence.

Of some of the wait graph no single rank is to blame: circles, counts, the network.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from diagnose.infer.collectives.by_table import ByTable
from diagnose.infer.collectives.divergence import Stray, kinds
from diagnose.infer.collectives.mismatch import Mismatch
from diagnose.infer.judge.deadlock import crossing
from diagnose.infer.judge.verdict import Kind, Op, Role, Sign, Unit, Verdict
from diagnose.infer.judge.wait_graph import Graph, awaited, ends_of, keystones
from diagnose.text.ranks import plural, ranks_phrase

MAX_EDGES = 4096  # of a verdict
SHOWN = 3  # waiting ranks quoted as evidence
_SIDES = 4
_AWAITED = 32  # ranks that called something else, to each of which an edge leads
_ROWS = 8
_LATE_NS = 60 * 10**9


def sign(standing: ByTable, rank: int, text: str, op: Op | None = None) -> Sign:
    """Evidence from the source of one rank, at `op` or at the last it tells."""
    line = op.line if op is not None else standing.last_line(rank)
    source = op.source if op is not None else ""
    return Sign(source or standing.table.files[rank], line, rank, text)


def waits(standing: ByTable, rank: int) -> Sign:
    """What a rank waits in."""
    op = standing.heads[rank][0]
    return sign(standing, rank, f"rank {rank} is waiting in {standing.described(op)}", op)


def finished(standing: ByTable, graph: Graph, verdict: Verdict, rows: Mapping[int, int]) -> Verdict:
    """The verdict with what holds for all kinds; `rows` are the events that show single ranks."""
    shown = [*verdict.ranks, *(one.rank for one in verdict.evidence), *verdict.joined]
    table = standing.table
    lost = [rank for rank in range(table.world) if rank not in table.files]
    unseen = [f"no dump from {ranks_phrase(lost)}"] if lost else []
    notes = tuple(dict.fromkeys([*table.notes, *verdict.notes, *unseen]))
    return replace(
        verdict,
        notes=notes,
        sure=verdict.sure and not lost and not table.partial,
        by_dumps=True,
        waits={rank: ops[0] for rank, ops in standing.heads.items()},
        rows=tuple(rows[rank] for rank in dict.fromkeys(shown) if rank in rows)[:_ROWS],
        edges=_edges(standing, graph, verdict),
        roles=_roles(standing, graph, set(verdict.ranks)),
    )


def _edges(standing: ByTable, graph: Graph, verdict: Verdict) -> tuple[tuple[int, int, str], ...]:
    """Who waits for whom, first for ranks that have not joined or called something else."""
    differing = _unjoined(standing, verdict)
    pairs = {(rank, target) for rank, ends in graph.edges.items() for target in ends}
    later = {pair for pair in pairs if pair not in differing and not graph.hard(*pair)}
    chosen = sorted(pairs | differing.keys(), key=lambda pair: (pair in later, pair))[:MAX_EDGES]
    return tuple((*pair, standing.brief(differing.get(pair) or graph.op(*pair))) for pair in chosen)


def _unjoined(standing: ByTable, verdict: Verdict) -> dict[tuple[int, int], Op]:
    """(rank, culprit) where the rank waits in the call that the culprit made a different one of."""
    if verdict.kind != "mismatched":
        return {}
    groups, culprits = standing.table.groups, set(verdict.ranks)
    return {
        (rank, odd): ops[0]
        for rank, ops in standing.pending.items()
        if rank not in culprits
        and (groups[ops[0].unit[0]].label, ops[0].unit[2]) == (verdict.group, verdict.seq)
        for odd in verdict.ranks[:_AWAITED]
    }


def _roles(standing: ByTable, graph: Graph, culprits: set[int]) -> dict[int, Role]:
    waited_for = awaited(graph.edges)
    roles: dict[int, Role] = {}
    for rank in range(standing.table.world):
        if rank in culprits:
            roles[rank] = "culprit"
        elif rank not in standing.known:
            roles[rank] = "no dump"
        elif rank in standing.pending or rank in standing.elsewhere:
            roles[rank] = "waiting"
        else:
            roles[rank] = "idle" if rank in waited_for else "done"
    return roles


def differing(standing: ByTable, mismatch: Mismatch) -> Verdict:
    """Ranks that called something else than their group, or the sides of a tie."""
    group, seq = standing.table.groups[mismatch.group], mismatch.seq
    sides = "; ".join(
        f"{ranks_phrase(called)} called {call}"
        for call, called in [*mismatch.calls.items()][:_SIDES]
    )
    if mismatch.tie:
        why = f"no majority at seq {seq} of {group.label}: {sides}"
    else:
        why = "; ".join(mismatch.texts.values()) or sides
        more = len(mismatch.odd) - len(mismatch.texts)
        why += f"; and {more} more {plural(more, 'rank')}" if more > 0 else ""
    joined = tuple(sorted(rank for called in mismatch.calls.values() for rank in called))
    files = standing.table.files
    signs = [
        Sign(files[rank], mismatch.lines[rank], rank, text) for rank, text in mismatch.texts.items()
    ]
    for call, called in mismatch.calls.items():
        signs += [
            Sign(files[rank], mismatch.lines[rank], rank, f"rank {rank}: {call} at seq {seq}")
            for rank in called[: SHOWN if mismatch.tie else 1]
        ]
    return Verdict(
        "mismatched", () if mismatch.tie else mismatch.odd, group.label, mismatch.op, seq, joined,
        tuple(rank for rank in group.members if rank not in joined and rank in files), why,
        tuple(dict.fromkeys(signs)), (mismatch.note,) if mismatch.note else (),
        mismatch.site or None, mismatch.odd if mismatch.tie else (),
        not mismatch.tie and not mismatch.note,
    )  # fmt: skip


def astray(standing: ByTable, graph: Graph, lone: list[Stray]) -> Verdict:
    """Ranks that left the way of the others."""
    found = blamed(standing, graph, "mismatched", [stray.rank for stray in lone])
    lines, signs = standing.table.columns["line"], []
    for stray in lone[: 2 * SHOWN]:
        before, own, usual = (
            standing.called(place) for place in (stray.before, stray.own, stray.usual)
        )
        text = (
            f"rank {stray.rank} called {own} after {before}, where {stray.votes} other ranks "
            f"called {usual}"
        )
        line = int(lines[stray.own])
        signs.append(Sign(standing.table.files[stray.rank], line, stray.rank, text))
    return replace(
        found,
        why="; ".join(one.text for one in signs[:SHOWN]),
        evidence=(*signs, *found.evidence),
        sure=all(stray.proven for stray in lone),
    )


def blamed(
    standing: ByTable, graph: Graph, kind: Kind, ranks: list[int], notes: Iterable[str] = ()
) -> Verdict:
    """The verdict on single ranks, with the operation in which most others wait for them."""
    guilty = set(ranks)
    direct = Counter(
        op.unit
        for rank, ops in standing.heads.items()
        if rank not in guilty and graph.edges.get(rank, set()) & guilty
        for op in ops
    )
    own = {op.unit for rank in ranks for op in standing.heads.get(rank, [])[:1]}
    began = _began(standing)
    unit = (
        min(direct, key=lambda u: (-direct[u], began[u], u)) if direct else min(own, default=None)
    )
    if kind == "stuck_device" and own:
        unit = min(own)
    if unit is None:
        return Verdict(kind, tuple(ranks), notes=tuple(notes))
    op = first_of(standing, unit)
    signs = []
    for rank in ranks[: 2 * SHOWN]:
        if rank in standing.table.files or rank in standing.heads:
            mine = standing.heads.get(rank, [None])[0]
            state = f"is waiting in {standing.described(mine)}" if mine else "is idle"
            last = _frontier(standing, unit, rank)
            signs.append(sign(standing, rank, f"rank {rank} {state}{last}", mine))
    waiting = [
        rank
        for rank in sorted(standing.heads)
        if rank not in guilty and graph.edges.get(rank, set()) & guilty
    ]
    signs += [waits(standing, rank) for rank in waiting[:SHOWN]]
    return of_unit(standing, kind, ranks, unit, _why(standing, kind, ranks, op), signs, notes)


def of_unit(
    standing: ByTable,
    kind: Kind,
    ranks: Iterable[int],
    unit: Unit,
    why: str,
    signs: Iterable[Sign],
    notes: Iterable[str] = (),
) -> Verdict:
    """A verdict about one operation."""
    joined, missing = members(standing, unit)
    return Verdict(
        kind, tuple(ranks), standing.table.groups[unit[0]].label, first_of(standing, unit).op,
        unit[2], joined, missing, why, tuple(dict.fromkeys(signs)), tuple(notes),
        _site(standing, unit),
    )  # fmt: skip


def first_of(standing: ByTable, unit: Unit) -> Op:
    """The pending operation of the lowest rank in a unit."""
    return next(
        op for rank in sorted(standing.pending) for op in standing.pending[rank] if op.unit == unit
    )


def _site(standing: ByTable, unit: Unit) -> str | None:
    sites = Counter(
        op.site for ops in standing.pending.values() for op in ops if op.unit == unit and op.site
    )
    return min(sites, key=lambda site: (-sites[site], site)) if sites else None


def _why(standing: ByTable, kind: Kind, ranks: list[int], op: Op) -> str:
    who, one = ranks_phrase(ranks), len(ranks) == 1
    held = len([rank for rank in standing.heads if rank not in ranks])
    others = f"{held} other {plural(held, 'rank')} {plural(held, 'is', 'are')} waiting"
    if kind == "missing":
        dump = "complete dump" if any(rank in standing.table.files for rank in ranks) else "dump"
        return f"{who} left no {dump}, and {others} for {'it' if one else 'them'}"
    if kind == "stuck_device":
        stuck = {
            standing.heads[r][0].unit: standing.heads[r][0] for r in ranks if r in standing.heads
        }
        where = " and ".join(standing.brief(op) for op in [*stuck.values()][:SHOWN])
        return (
            f"{who} launched {where} like {'its' if one else 'their'} peers, but only "
            f"{'its device has' if one else 'their devices have'} not finished it"
        )
    if kind == "mismatched":
        return f"{others} for {'it' if one else 'them'} in {op.op} seq {op.seq}"
    what = "operation" if op.p2p else "collective"
    return (
        f"{who} {'is' if one else 'are'} idle: {'it' if one else 'they'} never launched the "
        f"{what} that {held} {plural(held, 'rank')} {plural(held, 'is', 'are')} waiting on"
    )


def _began(standing: ByTable) -> dict[Unit, int]:
    """When the first rank that waits in an operation enqueued it."""
    began: dict[Unit, int] = {}
    for ops in standing.heads.values():
        for op in ops:
            since = op.began or 0
            began[op.unit] = min(since, began.get(op.unit, since))
    return began


def _frontier(standing: ByTable, unit: Unit, rank: int) -> str:
    last = standing.enqueued.get((rank, unit[0], unit[1]))
    if last is None:
        return ""
    return f"; it last launched seq {last} in {standing.table.groups[unit[0]].label}"


def members(standing: ByTable, unit: Unit) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(joined, missing) of the members of an operation, those without a dump left out of both."""
    group, p2p, seq = unit
    known = [
        rank
        for rank in standing.members(group)
        if rank in standing.table.files
        or (rank in standing.known and (rank, group) not in standing.unknown)
    ]
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


def between_groups(standing: ByTable, graph: Graph, found: Verdict) -> Verdict:
    """The verdict on ranks that wait for each other, as one on groups if they wait in several.

    Not where one rank is odd: a call that it left out looks like one that it would make later.
    """
    if found.kind != "cycle":
        return found
    for part in ends_of(standing, graph).cycles:
        crossed = crossing(standing.heads, part) if {*found.ranks} <= {*part} else None
        if crossed is not None:
            why = crossed.in_words(standing.described)
            return replace(found, kind="deadlock", why=why)
    return found


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
