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
from dataclasses import replace

from diagnose.infer.collectives import explain as telling
from diagnose.infer.collectives.beside import NO_LINES, Lines, combined, compared, settled
from diagnose.infer.collectives.by_table import ByTable
from diagnose.infer.collectives.divergence import Stray, kinds, strays
from diagnose.infer.collectives.explain import SHOWN, sign
from diagnose.infer.collectives.mismatch import Streams
from diagnose.infer.collectives.table import Table
from diagnose.infer.judge.standing import whole_node
from diagnose.infer.judge.verdict import ROOTED_OPS, Kind, Verdict, plain
from diagnose.infer.judge.wait_graph import Ends, Graph, build, ends_of
from diagnose.parse.nccl_inits import INIT
from diagnose.text.ranks import ranks_phrase

_FEW = 4  # of so many members one is few


def judge(table: Table, lines: Lines = NO_LINES, *, alive: bool = True) -> Verdict | None:
    """The verdict on one job, None when nothing is pending in its dumps.

    `alive`: ranks of which dumps tell were alive then.
    """
    if table.empty or not (standing := combined(table, lines, alive=alive)).pending:
        return None
    streams, graph, lone = Streams(table), build(standing), strays(table)
    found = _differing(standing, streams, graph, lone) or _blame(standing, streams, graph, lone)
    found = settled(standing, lines, found, alive=alive)
    return compared(telling.finished(standing, graph, found, lines.rows), lines, alive=alive)


def _differing(
    standing: ByTable, streams: Streams, graph: Graph, lone: list[Stray]
) -> Verdict | None:
    """Ranks whose calls differ from those of the others."""
    mismatch = next(iter(streams.mismatches()), None)
    proven = [stray for stray in lone if stray.proven]
    if mismatch is None or mismatch.tie:
        if proven and 2 * len(proven) < len(standing.recorded):
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


def _blame(standing: ByTable, streams: Streams, graph: Graph, lone: list[Stray]) -> Verdict:
    """The culprits by the graph, the strongest evidence first."""
    ends = ends_of(standing, graph)
    died = _dead_peers(standing, ends.idle + ends.device)
    if died:
        notes = ["Gloo: inferred from failed operations"]
        return telling.blamed(standing, graph, "missing", died, notes)
    alone = _alone(standing, streams, graph, ends.idle) if ends.idle else None
    if alone is not None:
        return alone
    for rank in () if ends.idle else ends.device:
        pair = telling.sides_that_differ(standing, rank)
        if pair:
            return telling.miscounted(standing, graph, pair)
    if ends.idle or ends.device:
        return _stuck(standing, graph, ends)
    if ends.cycles:
        odd = _among(lone, [rank for part in ends.cycles for rank in part])
        if odd:
            return telling.astray(standing, graph, odd)
        return telling.circle(standing, graph, ends.cycles)
    if ends.lost:
        return _without_dump(standing, streams, graph, ends.lost)
    if ends.elsewhere:
        return telling.elsewhere(standing, graph, ends.elsewhere)
    return telling.network(standing, graph, ends.waiting)


def _stuck(standing: ByTable, graph: Graph, ends: Ends) -> Verdict:
    """Ranks that are idle while others wait for them, or whose device did not finish."""
    idle, device, lost = ends.idle, ends.device, ends.lost
    kind: Kind = "stuck_device" if len(device) > len(idle) else "stuck_host"
    notes = [f"no dump from {ranks_phrase(lost)}, which may block ranks too"] * bool(lost)
    if idle and device:
        notes.append(f"idle: {ranks_phrase(idle)}; device did not finish: {ranks_phrase(device)}")
    found = telling.blamed(standing, graph, kind, sorted(idle + device), notes)
    if kind == "stuck_device" and found.op == INIT:
        return _half_made(found)
    done = _completed(standing, device[0], found.joined) if kind == "stuck_device" else []
    if 0 < len(done) <= len(found.joined) // _FEW and plain(found.op) not in ROOTED_OPS:
        return _done_alone(found, done)
    # Numbers of sends and receives differ between the sides: without a count it is a guess. So
    # is blaming those that are idle when as many wait: they may have made a call too many.
    few = 2 * len(found.ranks) < len(standing.recorded)
    counted = all(op.nth >= 0 or not op.p2p for rank in device for op in standing.heads[rank])
    return replace(found, sure=few and counted)


def _half_made(found: Verdict) -> Verdict:
    """A communicator that only some have finished to make: the others connect, on no device."""
    why = (
        f"{ranks_phrase(found.ranks)} have not finished to make {found.group}, which others have: "
        "they connect to their peers, so check the network between the nodes"
    )
    return replace(found, kind="network", ranks=(), suspects=found.ranks, why=why)


def _completed(standing: ByTable, rank: int, joined: Iterable[int]) -> list[int]:
    """Those of `joined` whose devices finished what the one of `rank` has not."""
    group, _, seq = standing.heads[rank][0].unit
    return [other for other in joined if standing.completed(other, group, seq)]


def _done_alone(found: Verdict, done: list[int]) -> Verdict:
    """Few members have completed a call that is not complete: with others than their fellows."""
    who, left = ranks_phrase(done), len(found.joined) - len(done)
    why = (
        f"{who} completed {found.op} seq {found.seq} of {found.group}, which {left} others have not"
    )
    one = tuple(done) if len(done) == 1 else ()
    return replace(
        found, kind="mismatched", ranks=one, suspects=() if one else tuple(done), why=why
    )


def _without_dump(standing: ByTable, streams: Streams, graph: Graph, lost: list[int]) -> Verdict:
    """All waits end at ranks that left no dump."""
    quiet = _lagging(standing, [rank for rank in standing.recorded if standing.idle(rank)])
    if quiet and len(quiet) < len(standing.pending):
        # Whoever waits for these left no dump, yet all others wait and they do not.
        notes = [f"no dump from {ranks_phrase(lost)}, so no rank is seen waiting for the culprit"]
        return telling.blamed(standing, graph, "stuck_host", quiet, notes)
    return _unlike(standing, streams) or _missing(standing, graph, lost)


def _dead_peers(standing: ByTable, ends: list[int]) -> list[int]:
    """Ranks without a dump that were in the last operation of all ranks others wait for, in gloo.

    Its recorder shows an operation that failed (its peer died) like one that finished. So when
    several ranks seem idle, or slower than their peers (gloo has no device that could lag), and
    one lost rank was in what each of them did last, their connections to it broke. Where more
    are lost than that explains, dumps may be missing for any reason.
    """
    if len(ends) < 2 or any(call.backend != "gloo" for call in standing.table.calls):
        return []
    groups = standing.last_groups()
    lost = [set(standing.unseen(groups[rank])) for rank in ends if rank in groups]
    died = set.intersection(*lost) if len(lost) == len(ends) else set()
    return sorted(died) if 2 * len(died) <= len(ends) else []


def _lagging(standing: ByTable, idle: list[int]) -> list[int]:
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


def _missing(standing: ByTable, graph: Graph, lost: list[int]) -> Verdict:
    """Ranks without a dump that hold up the others: a node, or each one alone explains a wait.

    Dumps get lost for other reasons too. Where several ranks left none and not each of them is the
    only one that an operation waits for, any of them may be the culprit; likewise one whose dump
    was cut off, for it lived to write it.
    """
    unseen = sorted(standing.unplaced)
    alone = {next(iter(ends)) for ends in graph.edges.values() if len(ends) == 1}
    found = telling.blamed(standing, graph, "missing", lost)
    whole = unseen == lost and whole_node(lost, len(standing.pending))
    if whole or (set(unseen) <= alone and set(lost) <= set(unseen)):
        return found
    why = f"{found.why}; the other dumps do not show which of them, if any, is to blame"
    return replace(found, ranks=(), suspects=tuple(sorted(lost)), why=why)


def _alone(standing: ByTable, streams: Streams, graph: Graph, idle: list[int]) -> Verdict | None:
    """A few ranks in a call that most others never made, or one that lost step by an earlier call.

    When more ranks are idle than wait, the ones that wait made a call too many.
    """
    waiting = sorted(standing.pending)
    units = {standing.heads[rank][0].unit for rank in waiting}
    group, p2p, seq = standing.heads[waiting[0]][0].unit
    if len(units) == 1 and not p2p:
        absent = standing.absent(group, seq)
        joined = [
            r for r in standing.members(group) if r in standing.table.files and r not in absent
        ]
        if len(absent) > len(joined) and set(absent) <= set(idle):
            texts = {r: streams.shift(group, r, absent) for r in joined[:SHOWN]}
            return _extra(standing, graph, joined, absent, {r: s for r, s in texts.items() if s})
    for rank in idle:
        for name in sorted({op.unit[0] for r in waiting for op in standing.heads[r] if not op.p2p}):
            if rank not in standing.members(name):
                continue
            others = [r for r in standing.members(name) if r != rank and r in standing.pending]
            text = streams.shift(name, rank, others) if len(others) > 1 else None
            if text is not None:
                found = telling.blamed(standing, graph, "mismatched", [rank])
                evidence = sign(standing, rank, text)
                return replace(found, why=text, evidence=(evidence, *found.evidence))
    return None


def _unlike(standing: ByTable, streams: Streams) -> Verdict | None:
    """A rank whose own peers left no dump, in a call that no group of its kind makes there."""
    odd: dict[int, str] = {}
    for rank in sorted(standing.heads):
        group, p2p, seq = standing.heads[rank][0].unit
        text = None if p2p else streams.odd_beside(rank, group, seq)
        odd.update({rank: text} if text else {})
    if not odd or 2 * len(odd) >= len(standing.heads):
        return None
    signs = [sign(standing, rank, text, standing.heads[rank][0]) for rank, text in odd.items()]
    return telling.of_unit(
        standing,
        "mismatched",
        odd,
        standing.heads[min(odd)][0].unit,
        "; ".join([*odd.values()][:SHOWN]),
        signs,
        ["inferred from groups of the same kind: its own peers left no dump"],
    )


def _extra(
    standing: ByTable, graph: Graph, joined: list[int], absent: list[int], texts: dict[int, str]
) -> Verdict:
    op = standing.heads[joined[0]][0]
    text = (
        f"only {ranks_phrase(joined)} called {standing.described(op)}; "
        f"{ranks_phrase(absent)} did not"
    )
    signs = [telling.waits(standing, rank) for rank in joined]
    signs += [sign(standing, rank, line) for rank, line in texts.items()]
    signs += [sign(standing, rank, f"rank {rank} is idle") for rank in absent[:SHOWN]]
    why = "; ".join([*texts.values()] or [text])
    found = telling.of_unit(standing, "mismatched", joined, op.unit, why, signs[: 3 * SHOWN])
    return replace(found, sure=True)
