"""What lines tell beside dumps: ranks that wait by their own watchdog, and ranks that are silent.

A rank without a dump that prints its timeouts is not missing: it waits, in a call of a group that
its dumped fellows know. So its waits are entered into the one standing, with gaps where its lines
tell nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from diagnose.infer.collectives.by_table import ByTable
from diagnose.infer.collectives.table import Table
from diagnose.infer.judge.ops import Kind, Op, plain
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.judge.witnesses import Frontier, heads_of, witnessed
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Timeline
from diagnose.timeline.readings import IDLE, PENDING

# By group and number what ranks with a dump call there.
_Called = Mapping[tuple[str, bool, int], set[Kind]]


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
    found: dict[tuple[str, bool, int], set[Kind]] = defaultdict(set)
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


def _agree(wait: Op, kind: Kind) -> bool:
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
    return verdict.kind == "mismatched" and other.kind in ("mismatched", "conditional")
