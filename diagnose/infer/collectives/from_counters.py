"""Dumps made of what NCCL's call lines, RAS or Inspector tell, so that one judge reads them all.

These tell what every rank launched, not what completed. A collective that a member has not
launched cannot complete, so it is pending on all others; likewise a send without its receive.
Ranks that disagree in the last call they all made wait in it. Where all members stand at the same
call nothing is known and nothing is pending: all equal is no verdict. Only a member that is gone,
or the few of a job that left no line at all, make the others' last call pending.

Inspector tells what completed, hence a rank that lacks the last call of most others is stuck in it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from diagnose.infer.collectives.communicators import Communicator, compared, members, mostly_known
from diagnose.infer.collectives.mismatch import comparable
from diagnose.infer.collectives.table import Table
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.parse.flight_recorder import COMPLETED, ENQUEUED, Call, Config, Dump
from diagnose.parse.nccl_calls import KEEP_P2P
from diagnose.parse.nccl_inits import INIT

_P2P = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})\Z")
_SEVERAL = 2  # ranks of each side that are in the order of their last calls by no chance
_UNNAMED = "collective"  # where only the number of a call is told
# That of a rank without any entry: ten thousand of them share its arrays.
_BLANK = Dump(
    "", None, None, np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64),
    np.zeros(0, bool), np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, bool),
    np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64), sites=[""],
    lines=np.zeros(0, np.int64),
)  # fmt: skip


@dataclass(slots=True)
class _Entry:
    """One operation of a rank; `line` in the source."""

    group: str
    seq: int
    call: Call
    pending: bool
    source: str
    line: int
    p2p: bool = False


@dataclass(slots=True)
class _Job:
    """What becomes of it all: entries by global rank, and groups by name."""

    entries: dict[int, list[_Entry]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)


def dumps_of(ranks: Iterable[CommRank], notes: list[str] | None = None) -> list[Dump]:
    """One dump for every rank that is known and not gone, by rank.

    `ranks` should be of one kind of source: counts of different ones do not compare. `seq` is
    theirs, groups carry the names of the communicators. `notes` grows by what was left out.
    """
    notes = [] if notes is None else notes
    units, comms = members(ranks, notes)
    present = {unit.rank for unit in units if unit.rank is not None and not unit.gone}
    gone = {unit.rank for unit in units if unit.rank is not None and unit.gone}
    most = mostly_known(units, comms)
    job = _Job()
    for comm in comms:
        few = most(comm)
        _collectives(job, comm, gone - present, few)
        _p2p(job, comm, notes)
        _inits(job, comm, few, notes)
    reported = all(one.world for unit in units for one in unit.entries)
    dead = {unit.rank for unit in units if unit.rank is not None and unit.dead}
    _waits(job, comms, dead - present, at_once=reported)
    own: dict[int, list[Config]] = defaultdict(list)
    for name, (desc, ranks_of) in job.groups.items():
        for rank in ranks_of:
            own[rank].append(Config(name, desc, ranks_of))
    sources = {unit.rank: unit.entries[0].source for unit in reversed(units)}
    open_ends = {unit.rank for unit in units if unit.open_end}
    return [
        _dump(job, rank, sources[rank], own[rank], rank in open_ends) for rank in sorted(present)
    ]


def ends_amid_round(table: Table, ends: Mapping[str, int], cut: Collection[str] = ()) -> bool:
    """Whether a log may just end amid a round of calls, all of whose ranks made the one before.

    In it first came those that have made the last one, then, several, those that have not. `ends`
    is the last line of each log: where more lines follow the last call than a round has and than
    ever were between two calls, the job made no more of them. Of logs that are `cut` inside a line
    the order does not matter. Nor are ranks absent that still make calls after all others' last.
    """
    columns = table.columns
    if len({*table.files.values()}) != 1 or not columns["line"].all():
        return False
    made = np.unique(columns["line"])
    usual = max(table.world, *np.diff(made).tolist(), 0)
    (file,) = {*table.files.values()}
    if file not in ends or ends[file] - made[-1] > usual:
        return False  # lines of a report are in no order of time
    of_group = ~columns["p2p"].astype(bool)
    names = ("group", "rank", "seq", "line")
    rows = zip(*(columns[name][of_group].tolist() for name in names), strict=True)
    lines: dict[int, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for group, rank, seq, line in rows:
        lines[group][rank][seq] = line
    several = False
    for ranks in lines.values():
        last = {rank: max(own) for rank, own in ranks.items()}
        top = max(last.values())
        if min(last.values()) == top:
            continue
        came = max(own[top] for rank, own in ranks.items() if last[rank] == top)
        if all(ranks[rank][at] > came for rank, at in last.items() if at < top):
            several = True
            continue
        before = {rank: own[top - 1] for rank, own in ranks.items() if top - 1 in own}
        joined = [before[rank] for rank in before if last[rank] == top]
        absent = [before[rank] for rank in before if last[rank] < top]
        if len(before) < len(ranks) or (file not in cut and max(joined) > min(absent)):
            return False
        several |= file in cut or len(joined) >= _SEVERAL <= len(absent)
    return several


def _collectives(job: _Job, comm: Communicator, gone: set[int], few: bool) -> None:
    """Entries of the collectives of one communicator."""
    beginning = comm.beginning
    alive = {
        place: one
        for place, one in comm.known.items()
        if comm.ranks[place] not in gone and place not in beginning
    }
    by_launches = any(one.launched is not None for one in alive.values())
    counts = {
        place: at
        for place, one in alive.items()
        if (at := one.launched if by_launches else one.completed) is not None
    }
    if not counts:
        return
    top = max(counts.values())
    stand = {place: at for place, at in counts.items() if at == top or not alive[place].truncated}
    low = min(stand.values())
    calls = {place: {c.seq: c for c in one.calls if c.op != INIT and not _P2P.match(c.op)}
             for place, one in alive.items()}  # fmt: skip
    name = _name(job, comm)
    lagging = {place for place, at in stand.items() if at < top}
    lost = any(rank in gone for rank in comm.ranks.values()) or (
        few and comm.size > len(comm.known) and comm.size == len(comm.ranks)
    )
    since = low + 1
    if by_launches and (_differ(calls, low) or (low == top and lost)):
        since = low
    for place, one in alive.items():
        rank = comm.ranks[place]
        own = {seq: call for seq, call in calls[place].items() if seq <= stand.get(place, top)}
        stuck = not by_launches and place in lagging and top == stand[place] + 1
        stuck = stuck and 2 * len(lagging) < len(stand)
        # Of whom nothing is known, nothing is to be said: as far as the others.
        last = stand[place] if by_launches and place in stand else top
        if last >= 0 and last not in own:
            own[last] = _usual(calls, last, one.line)
        for seq, call in own.items():
            pending = seq >= since if by_launches and place in stand else stuck
            job.entries[rank].append(_Entry(name, seq, _call(call), pending, one.source, call.line))


def _waits(
    job: _Job, comms: Sequence[Communicator], dead: Collection[int], *, at_once: bool
) -> None:
    """Enter the waits that follow from counts of different communicators."""
    waits = compared(comms, dead, at_once=at_once)
    if waits is None or any(wait.only for wait in waits):
        for entry in (entry for own in job.entries.values() for entry in own):
            entry.pending = False
    for wait in waits or ():
        job.groups[wait.name] = (wait.desc, wait.members)
        call = _call(CollCall(wait.seq, _UNNAMED, -1, "", wait.line))
        job.entries[wait.rank].append(
            _Entry(wait.name, wait.seq, call, True, wait.source, wait.line)
        )


def _differ(calls: dict[int, dict[int, CollCall]], seq: int) -> bool:
    """Whether ranks called different things at `seq`."""
    return len({comparable(_call(own[seq])) for own in calls.values() if seq in own}) > 1


def _usual(calls: dict[int, dict[int, CollCall]], seq: int, line: int) -> CollCall:
    """What most ranks called at `seq`, for one that does not tell."""
    counts = Counter((c.op, c.size, c.dtype) for own in calls.values() if (c := own.get(seq)))
    if not counts:
        return CollCall(seq, _UNNAMED, -1, "", line)
    op, size, dtype = min(counts, key=lambda kind: (-counts[kind], kind))
    return CollCall(seq, op, size, dtype, line)


def _call(call: CollCall, peer: int | None = None) -> Call:
    sizes = ((call.size,),) if call.size >= 0 else ()
    op = call.op.partition(" ")[0] or _UNNAMED
    return Call(op, "nccl", sizes, sizes, call.dtype, peer)


def _name(job: _Job, comm: Communicator, name: str = "", ranks: Iterable[int] = ()) -> str:
    """The name of a group, which is made if need be; by default that of the communicator."""
    named = name or comm.name
    job.groups.setdefault(named, (comm.desc, tuple(sorted(ranks or comm.ranks.values()))))
    return named


def _p2p(job: _Job, comm: Communicator, notes: list[str]) -> None:
    """Sends and receives that lack their other side, in groups of the two ranks and a direction.

    The n-th send belongs to the n-th receive. Small gaps only: many would be lost lines.
    """
    sent: dict[tuple[int, int], dict[str, list[CollCall]]] = defaultdict(lambda: defaultdict(list))
    for one in comm.known.values():
        for call in one.calls:
            found = _P2P.match(call.op)
            if found:
                own, peer = int(found[2]), int(found[3])
                pair = (own, peer) if found[1] == "send" else (peer, own)
                sent[pair][found[1]].append(call)
    odd = 0
    for (source, target), sides in sorted(sent.items()):
        ends = {"send": source, "recv": target}
        if source == target or not all(_counts(comm.known.get(place)) for place in ends.values()):
            continue
        last = {op: max((call.seq for call in sides[op]), default=-1) for op in ends}
        gap = last["send"] - last["recv"]
        if not gap:
            continue
        if abs(gap) > KEEP_P2P:
            odd += 1
            continue
        pair_ranks = sorted(comm.ranks[place] for place in ends.values())
        name = _name(job, comm, f"{comm.name} {source}->{target}", pair_ranks)
        for op, place in ends.items():
            one, rank = comm.known[place], comm.ranks[place]
            other = comm.ranks[ends["recv" if op == "send" else "send"]]
            for call in sides[op]:
                pending = call.seq > min(last.values())
                made = _call(call, pair_ranks.index(other))
                job.entries[rank].append(
                    _Entry(name, call.seq, made, pending, one.source, call.line, p2p=True)
                )
    if odd:
        notes.append(
            f"NCCL: sends and receives of {odd} pairs of ranks of {comm.name} do not match by far:"
            " lines are missing, they are left out"
        )


def _counts(one: CommRank | None) -> bool:
    """Whether the log of a rank tells all its sends."""
    return one is not None and one.launched is not None and not (one.gone or one.truncated)


def _inits(job: _Job, comm: Communicator, few: bool, notes: list[str]) -> None:
    """A communicator that some ranks began to make and did not complete."""
    began = comm.beginning
    if not began:
        return
    if comm.size > len(comm.known) and not few:
        notes.append(
            f"NCCL: {len(began)} of {comm.size} ranks of {comm.name} never completed its init; of "
            f"{comm.size - len(comm.known)} nothing is known"
        )
        return
    name = f"init of {comm.name}"
    # No group that calls something is of its kind: their first calls are not compared with it.
    job.groups.setdefault(name, (f"init of {comm.desc}", tuple(sorted(comm.ranks.values()))))
    for place, one in comm.known.items():
        line = next((call.line for call in one.calls if call.op == INIT), one.line)
        call = _call(CollCall(0, INIT, -1, "", line))
        job.entries[comm.ranks[place]].append(
            _Entry(name, 0, call, place in began, one.source, line)
        )


def _dump(job: _Job, rank: int, source: str, config: list[Config], partial: bool) -> Dump:
    """The dump of one rank, its entries in the order of their lines.

    It counts as partial if the rank may wait in a communicator that cannot be judged.
    """
    entries = sorted(job.entries.get(rank, ()), key=lambda e: (e.source, e.line, e.seq))
    if not entries:
        return replace(_BLANK, name=source, rank=rank, config=config, partial=partial)
    source = entries[-1].source
    pgs: dict[tuple[str, str], int] = {}
    calls: dict[Call, int] = {}
    pg = [pgs.setdefault((e.group, job.groups[e.group][0]), len(pgs)) for e in entries]
    call = [calls.setdefault(e.call, len(calls)) for e in entries]
    size = len(entries)
    return Dump(
        source, rank, None, np.arange(size, dtype=np.int64), np.array(pg, np.int32),
        np.array([e.seq for e in entries], np.int64), np.array([e.p2p for e in entries], bool),
        np.array(call, np.int32),
        np.array([ENQUEUED if e.pending else COMPLETED for e in entries], np.int8),
        np.array([not e.pending for e in entries], bool), np.zeros(size, np.int64),
        np.zeros(size, np.int32), np.full(size, -1, np.int64), [*pgs], [*calls], [""], config,
        partial=partial,
        lines=np.array([e.line if e.source == source else 0 for e in entries], np.int64),
    )  # fmt: skip
