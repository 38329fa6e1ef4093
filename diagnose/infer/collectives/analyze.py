"""Which rank stopped the job, from the table of collectives and what lines tell beside it.

A rank waits in its oldest pending operation. It waits for the members that have not enqueued that
operation; when all have, for those whose own oldest pending operation is an earlier one. The sinks
of this graph, after folding cycles, hold up all others:

* a sink with nothing pending is stuck on the host (`stuck_host`), or has no dump (`missing`);
* a sink whose oldest operation other members have completed is stuck on the device;
* ranks that called something else than the majority of their group are `mismatched`, as are those
  that left the way of their fellows through the program (`order`);
* ranks that wait for each other form a `cycle`, in calls of different groups a `deadlock`;
* an operation that all joined, with nobody behind, points at the `network`.

A rank without a dump that prints its timeouts is not missing: it waits, in a call of a group that
its dumped fellows know. So its waits are entered into the one standing, with gaps where its lines
tell nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from diagnose.infer.collectives import explain as telling
from diagnose.infer.collectives.by_table import ByTable
from diagnose.infer.collectives.divergence import Stray, kinds, strays
from diagnose.infer.collectives.explain import SHOWN, sign
from diagnose.infer.collectives.mismatch import Streams
from diagnose.infer.collectives.table import Table
from diagnose.infer.judge.standing import whole_node
from diagnose.infer.judge.verdict import ROOTED_OPS, CallKind, Kind, Op, Verdict, plain
from diagnose.infer.judge.wait_graph import Ends, Graph, build, ends_of
from diagnose.infer.judge.witnesses import Frontier, heads_of, witnessed
from diagnose.parse.nccl_inits import INIT
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Timeline
from diagnose.timeline.readings import IDLE, PENDING

# By group and number what ranks with a dump call there.
_Called = Mapping[tuple[str, bool, int], set[CallKind]]
_FEW = 4  # of so many members one is few


@dataclass(frozen=True, slots=True)
class Lines:
    """What lines tell.

    `waits` are those that each rank may really stand in, `frontiers` how far it got by rank and
    name of the group, `places` where the lines of the waits are, by row. `verdicts` are what lines
    alone show, `rows` the event of the timeline that shows what a rank stood in by its dump.
    """

    waits: Mapping[int, Sequence[Op]] = field(default_factory=dict)
    frontiers: Mapping[tuple[int, str | None], Frontier] = field(default_factory=dict)
    places: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    verdicts: Sequence[Verdict] = ()
    rows: Mapping[int, int] = field(default_factory=dict)

    @property
    def silence(self) -> Verdict:
        """The verdict on ranks of which lines prove that they wait nowhere, if there is one."""
        proven = (one for one in self.verdicts if one.kind == "missing" and one.sure)
        return next(proven, Verdict("missing"))


NO_LINES = Lines()


def lines_beside(timeline: Timeline, verdicts: Sequence[Verdict]) -> Lines:
    """What the lines of a job tell that has dumps too; `verdicts` are how it stands by lines."""
    found = witnessed(timeline)
    heads = {rank: heads_of(found.started(own)) for rank, own in found.waits.items()}
    rows: dict[int, int] = {}
    for event in timeline.signalling(PENDING, IDLE):
        if event.rank is not None:
            rows.setdefault(event.rank, event.index)
    places = {wait.row: timeline.at(wait.row).place for waits in heads.values() for wait in waits}
    return Lines(heads, found.frontiers, places, verdicts, rows)


def combined(table: Table, lines: Lines, *, alive: bool) -> ByTable:
    """Where all ranks stand, by dumps and lines.

    Who writes a dump was there to write it. Counters (`alive` is False) are the last that is told
    of a rank: where lines prove who is silent, whose own watchdog prints a timeout is not idle.
    Their numbers are not those of the lines.
    """
    standing = ByTable(table)
    own: dict[int, dict[str, str]] = {rank: {} for rank in lines.waits}
    for key, group in table.groups.items() if own else ():
        for rank in own.keys() & set(group.members):
            own[rank][group.name] = key
    called = _called(standing) if alive else {}
    for rank in lines.waits:
        if rank not in table.files and 0 <= rank < table.world:
            _enter(standing, lines, rank, own[rank], called)
        elif not alive and lines.silence.ranks and rank not in standing.pending:
            standing.elsewhere.add(rank)
    return standing


def _called(standing: ByTable) -> _Called:
    found: dict[tuple[str, bool, int], set[CallKind]] = defaultdict(set)
    for op in (op for ops in standing.pending.values() for op in ops if not op.p2p):
        found[op.unit].add((op.op, op.size_in, op.size_out))
    return found


def _enter(
    standing: ByTable, lines: Lines, rank: int, own: Mapping[str, str], called: _Called
) -> None:
    """Enter one rank without a dump; `own`: its groups by name."""
    standing.known.add(rank)
    standing.unplaced.discard(rank)
    for name, key in own.items():
        status = lines.frontiers.get((rank, name))
        if status is not None and key not in standing.mixed:
            standing.enqueued[rank, key, False] = status.enqueued
            standing.last_completed[rank, key] = status.completed
    waits = lines.waits[rank]
    fits = [fit for wait in waits for fit in _fits(wait, own, called)]
    if len(fits) == len(waits) == 1:
        source, line = lines.places[waits[0].row]
        op = fits[0]._replace(source=source, line=line)
        standing.pending[rank] = standing.heads[rank] = [op]
        standing.enqueue(op)
    else:
        standing.elsewhere.add(rank)
    standing.unknown |= {
        (rank, key) for key in own.values() if (rank, key, False) not in standing.enqueued
    }


def _fits(wait: Op, own: Mapping[str, str], called: _Called) -> Iterable[Op]:
    """The wait as an operation of each of the groups of its rank that a line can be of.

    Those in which ranks with a dump are in the same call; where a line names the group, it may be
    that none of its members left a dump.
    """
    for name, key in own.items() if wait.seq is not None and not wait.p2p else ():
        op = wait._replace(group=key)
        alike = called.get(op.unit, set()) if wait.group in (None, name) else None
        same = sorted(str(kind[0]) for kind in alike or () if _agree(wait, kind))
        if same or (alike == set() and wait.group and called):
            word = [*same, (wait.op or "").lower()][0]
            yield op._replace(op=word, text=word)


def _agree(wait: Op, kind: CallKind) -> bool:
    """Whether a line and a dump tell of one call: `ALLREDUCE` is `all_reduce`."""
    printed = (plain(wait.op), wait.size_in, wait.size_out)
    recorded = (plain(kind[0]), *kind[1:])
    pairs = zip(printed, recorded, strict=True)
    return all(one is None or other is None or one == other for one, other in pairs)


def settled(standing: ByTable, lines: Lines, verdict: Verdict, *, alive: bool) -> Verdict:
    """The verdict with the ranks that lines prove silent, where dumps choose among several.

    Of a node that is gone counters tell which ranks stopped first, and lines that all of it is. One
    rank of which neither counters nor lines show that it waits, as some of all others, is missing.
    """
    absent = {rank for one in lines.verdicts for rank in one.absent} - standing.pending.keys()
    if not alive and verdict.tie and len(absent) == 1 and absent == set(verdict.suspects):
        who = ranks_phrase(absent)
        why = f"neither calls nor a timeout show that {who} waits, as they do of all others"
        return replace(verdict, kind="missing", ranks=verdict.suspects, suspects=(), why=why)
    silence, open_to = lines.silence, set(verdict.suspects)
    silent = set(silence.ranks)
    blamed = set() if alive else open_to or set(verdict.ranks)
    others_wait = verdict.tie and open_to - silent <= lines.waits.keys()
    lost = others_wait and (not alive or silent.isdisjoint(standing.known))
    if not silent or not (silent <= open_to or silent > blamed > set() or lost):
        return verdict
    why = f"{silence.why}, and by the calls {verdict.why}"
    return replace(verdict, kind="missing", ranks=silence.ranks, suspects=(), why=why)


def compared(verdict: Verdict, lines: Lines, *, alive: bool) -> Verdict:
    """The verdict, surer where lines prove the same, with a note where they blame others.

    A rank that counters show idle and that printed no timeout never came; nothing says why. One
    that wrote a dump (`alive`) was there, and its host did not go on.
    """
    proven = [one for one in lines.verdicts if one.sure and one.ranks]
    same = next((one for one in proven if _same(verdict, one)), None)
    if same is not None:
        found = replace(verdict, sure=True, rows=(*same.rows, *verdict.rows))
        why = f"{same.why}, and by the calls {verdict.why}"
        kind = verdict.kind if alive else "missing"
        return replace(found, kind=kind, why=why) if verdict.absent else found
    for one in proven if verdict.ranks else ():
        if not {*one.ranks} & {*verdict.ranks}:
            note = (
                f"the logs and the dumps disagree: according to the logs, {one.why}; "
                f"according to the dumps, {verdict.why}"
            )
            return replace(verdict, notes=(*verdict.notes, note))
    return verdict


def _same(verdict: Verdict, other: Verdict) -> bool:
    """Whether both blame the same ranks, in the same way."""
    if verdict.ranks != other.ranks:
        return False
    if verdict.absent:
        return bool(other.absent)
    differ = ("mismatched", "deadlock")
    return verdict.kind in differ and other.kind in (*differ, "conditional")


def judge(table: Table, lines: Lines = NO_LINES, *, alive: bool = True) -> Verdict | None:
    """The verdict on one job, None when nothing is pending in its dumps.

    `alive`: ranks of which dumps tell were alive then.
    """
    if table.empty or not (standing := combined(table, lines, alive=alive)).pending:
        return None
    streams, graph, lone = Streams(table), build(standing), strays(table)
    found = _differing(standing, streams, graph, lone) or _blame(standing, streams, graph, lone)
    found = telling.between_groups(standing, graph, found)
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
        standing, "mismatched", odd, standing.heads[min(odd)][0].unit,
        "; ".join([*odd.values()][:SHOWN]), signs,
        ["inferred from groups of the same kind: its own peers left no dump"],
    )  # fmt: skip


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
