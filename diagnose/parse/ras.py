"""NCCL's RAS reports (`ncclras`): how many collectives every rank of a communicator has launched.

Formats: text of NCCL 2.24 on (2.24 and 2.25 count all collectives together, later ones each
operation by itself), JSON (`-f json`, 2.28.7 on), the events of monitor mode in both, and files to
which a loop appended one report after the other.

How far a rank got is the sum of its counts: all ranks of a communicator issue its collectives in
one order, so the sum is a place in that order, and a rank with the smaller sum is behind. Text
lists only operations whose counts differ; the others are alike on all ranks and shift all sums by
the same. Where a rank has more of one operation and less of another than the majority, it has
called something else: that cannot pass by itself. RAS counts launches, never completions: ranks
that hang on the device, all calls launched, look healthy. Sends and receives are not counted.

A difference of one may be in passing: ranks are asked one after the other. So the last report is
compared to one before, at least MIN_SECONDS older if times are known. A rank that moved in between
is not stuck and is told as far as all that moved have come; one that stood still and is behind
keeps its place.

Files of the same job have a communicator in common. JSON counts every operation, and text only
those that differ, so the two do not compare: JSON is taken where there is any. Reports without a
time (text has none of its own) are in the order of the files' names.

Of NCCL's asynchronous errors only one says why: "invalid usage" is what its transports give for a
message of another size than was posted (nccl: src/transport/net_socket.cc "Message truncated",
net_ib/p2p.cc "size mismatch"), so the ranks called different things.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from diagnose.parse.comm_rank import MAX_COMM, MAX_SEQ, CollCall, CommRank
from diagnose.parse.probes import Sign
from diagnose.parse.ras_reports import (
    BEGIN,
    CTIME,
    ISO,
    JSON_BEGIN,
    Comm,
    Found,
    Rank,
    RasComm,
    RasError,
    RasProcess,
    Snapshot,
    read_json,
    read_text,
    spread,
)

__all__ = [
    "RasComm", "RasError", "RasProcess", "RasReport", "is_ras", "read_ras", "report_of",
    "seconds_of",
]  # fmt: skip

MAX_BYTES = 64 << 20
MIN_SECONDS = 5
_MAX_CALLS = 8
_OPS = {
    "AllGather": "all_gather",
    "AllReduce": "all_reduce",
    "AlltoAll": "all_to_all",
    "Broadcast": "broadcast",
    "Gather": "gather",
    "Reduce": "reduce",
    "ReduceScatter": "reduce_scatter",
    "Scatter": "scatter",
    "collective": "",  # 2.24 and 2.25 do not tell them apart
}
_HEAD = re.compile(
    rb"(?:\A|\n)NCCL version \S{1,40} compiled with [^\n]{1,40}\n+CUDA runtime version \d"
    rb"|(?:\A|\n)\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] PEER_[A-Z_]{2,30}: "
    rb'|(?:\A|\n)\{\s*"nccl_version"\s*:\s*"[^"\n]{0,40}",\s*"cuda_runtime_version"'
    rb'|(?:\A|\n)\{\s*"timestamp"\s*:\s*"[^"\n]{0,40}",\s*"group"\s*:\s*"[A-Z]{1,20}",'
    rb'\s*"event"\s*:\s*"PEER_'
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

Vector = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class RasReport:
    """The last whole report of a file, weighed against one before.

    `dead`: processes that are considered dead; `missing`: others that gave no data. `ranks` holds
    every rank of the communicators told, those without data with `launched` None and `gone` where
    they do not answer; a dead process of no known rank is there with `comm` "". `errors`: (1-based
    line, text). `moving`: whether any rank moved between two reports; None if there is only one,
    or nothing to compare. `found`: what all that was made of, for a comparison with other files.
    """

    timestamp: str | None = None
    json: bool = False
    snapshots: int = 0
    moving: bool | None = None
    communicators: list[RasComm] = field(default_factory=list)
    ranks: list[CommRank] = field(default_factory=list)
    dead: list[RasProcess] = field(default_factory=list)
    missing: list[RasProcess] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    found: Found = field(default_factory=Found, compare=False, repr=False)


def is_ras(head: bytes) -> bool:
    """Whether a file that begins with `head` (4 KiB) is a RAS report or a log of its events.

    To be asked before `flight_recorder.is_dump`, which knows the key `nccl_version` as well.
    """
    return _HEAD.search(head[:4096].replace(b"\r", b"")) is not None


def read_ras(data: bytes, name: str) -> RasReport:
    """Read the RAS reports in the file `name`. Raises RasError if there is none that can be."""
    if len(data) > MAX_BYTES:
        raise RasError(f"{name}: refused: {len(data):,} bytes of RAS reports")
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    begin, as_text = JSON_BEGIN.search(text), BEGIN.search(text)
    as_json = begin is not None and (as_text is None or begin.start() < as_text.start())
    found = read_json(text, name) if as_json else read_text(text)
    if not found.snapshots and not found.events:
        raise RasError(f"{name}: no RAS report in it, or not a whole part of one")
    return report_of(found, name, as_json)


def report_of(found: Found, name: str, as_json: bool) -> RasReport:
    """What the reports of a file come to, or those of several files that tell of one job."""
    whole = [one for one in found.snapshots if not one.cut] or [*found.snapshots]
    last = whole[-1] if whole else Snapshot(0)
    notes: list[str] = []
    before = _before(whole, notes)
    for comm in last.comms.values():
        _bound(comm)
    for snapshot in (last, before):
        if snapshot is not None and not as_json:
            spread(snapshot)
    kept = Found(
        deque([before, last] if before else [last]), found.dead, found.events, found.errors
    )
    report = RasReport(last.stamp, as_json, len(found.snapshots), notes=notes, found=kept)
    notes += last.notes
    if last.cut:
        notes.append("the report is cut off: its last ranks are missing")
    moves = []
    for comm in last.comms.values():
        report.communicators.append(RasComm(comm.hash, comm.size))
        ranks, moved = _ranks(comm, before.comms.get(comm.hash) if before else None, name, notes)
        _of_the_job(ranks, comm, last)
        report.ranks += ranks
        moves.append(moved)
    if before and last.healthy and before.comms.keys() - last.comms.keys():
        moves.append(True)  # text no longer lists a communicator whose ranks differed
    report.communicators += last.healthy
    known = [moved for moved in moves if moved is not None]
    report.moving = any(known) if known else None
    report.dead = [*dict.fromkeys([*last.dead, *found.dead])]
    report.missing = [one for one in dict.fromkeys(last.missing) if one not in report.dead]
    report.errors = [*last.errors, *found.errors]
    if last.line and not report.communicators:
        notes.append("RAS knows of no communicator: no rank is through with NCCL's initialization")
    if report.moving is False and len({rank.launched for rank in report.ranks}) == 1:
        notes.append(
            "all ranks have launched as many collectives, and none launched any between two reports"
        )
    if before is None and any(rank.launched is not None for rank in report.ranks):
        notes.append(
            "only one RAS report: a difference of one may be in passing; take another one "
            f"{MIN_SECONDS} s later"
        )
    _bury(report, found, last, name)
    world = max([last.nodes * last.per_node, *(comm.size or 0 for comm in report.communicators)])
    for rank in report.ranks:
        rank.world = world or None
    return report


def _bound(comm: Comm) -> None:
    """Leave out what no communicator has: such numbers are damaged."""
    if comm.size is not None and comm.size > MAX_COMM:
        comm.size = None
    comm.ranks = {number: rank for number, rank in comm.ranks.items() if number < MAX_COMM}


def _of_the_job(ranks: Iterable[CommRank], comm: Comm, last: Snapshot) -> None:
    """Set the global ranks of processes in a communicator that spans all nodes.

    As the numbers in it go from node to node, they tell the node, and the device is that of the
    local rank.
    """
    if not last.nodes or comm.nodes != last.nodes or not comm.size or comm.size % last.nodes:
        return
    each = comm.size // last.nodes
    for one in ranks:
        if one.device is not None and one.comm_rank is not None and one.device < last.per_node:
            one.rank = one.comm_rank // each * last.per_node + one.device


def _bury(report: RasReport, found: Found, last: Snapshot, name: str) -> None:
    """Mark the ranks of dead processes; those of no known rank stand for themselves."""
    dead = {(process.host, process.pid): process for process in report.dead}
    known = set()
    for rank in report.ranks:
        if rank.host is not None and rank.pid is not None:
            known.add((rank.host, rank.pid))
            rank.dead = (rank.host, rank.pid) in dead
            rank.gone |= rank.dead
        else:
            rank.dead = rank.gone and bool(dead) and not report.missing
    for key, process in dead.items():
        if key not in known:
            line = found.dead.get(process, last.line)
            alone = CommRank(name, line, "", None, None, gone=True, dead=True)
            _place(alone, process)
            report.ranks.append(alone)


def _place(rank: CommRank, process: RasProcess) -> None:
    rank.host, rank.pid = process.host, process.pid
    rank.device = process.devices[0] if len(process.devices) == 1 else None


def _before(whole: Sequence[Snapshot], notes: list[str]) -> Snapshot | None:
    """The report to compare the last one to."""
    if len(whole) < 2:
        return None
    end = seconds_of(whole[-1].stamp)
    for one in reversed(whole[:-1]):
        begin = seconds_of(one.stamp)
        if begin is None or end is None or end - begin >= MIN_SECONDS:
            return one
    notes.append(
        f"the RAS reports lie less than {MIN_SECONDS} s apart: differences may be in passing"
    )
    return whole[0]


def seconds_of(stamp: str | None) -> float | None:
    """When a report was made; None where it does not say."""
    found = ISO.search(stamp or "")
    try:
        if found:
            return datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00").timestamp()
        if found := CTIME.search(stamp or ""):
            form = "%b %d %I:%M:%S %p %Y %z" if found[4] else "%b %d %H:%M:%S %Y %z"
            printed = " ".join(part for part in (*found.groups(), "+0000") if part)
            return datetime.strptime(printed, form).timestamp()
    except ValueError:
        pass
    return None


def _ranks(
    comm: Comm, before: Comm | None, name: str, notes: list[str]
) -> tuple[list[CommRank], bool | None]:
    """The ranks of one communicator, and whether any of them moved since `before`."""
    sums = {
        n: sum(rank.counts.values()) for n, rank in comm.ranks.items() if rank.counts is not None
    }
    stand = {number: at for number, at in sums.items() if at < MAX_SEQ}
    known = {number: comm.ranks[number] for number in stand}
    calls = _calls(comm, known, stand, notes)
    moving = None
    if before is not None and not known and comm.unnamed and before.unnamed:
        moving = comm.unnamed != before.unnamed  # nobody says whose counts, but all of them
    if before is not None and known:
        moved = {number for number in known if _moved(known[number], before.ranks.get(number))}
        moving = bool(moved)
        top = max(stand.values())
        floor = min(at for number, at in stand.items() if at == top or number in moved)
        stand = {number: min(at, floor) for number, at in stand.items()}
    found = []
    for number, rank in sorted(comm.ranks.items()):
        one = CommRank(name, rank.line, comm.hash, number, comm.size, gone=rank.gone)
        if rank.process is not None:
            _place(one, rank.process)
        one.launched = stand.get(number)
        if one.launched == 0:
            one.launched = -1  # the first call is number 1: it has made none
        if one.launched is not None:
            one.calls = [
                CollCall(seq, _OPS.get(op, op.lower()), -1, "", rank.line)
                for seq, op in sorted(calls.get(number, {}).items())
                if seq <= one.launched
            ]
        found.append(one)
    return found, moving


def _moved(rank: Rank, before: Rank | None) -> bool:
    old = (before.counts if before else None) or {}
    return any(old.get(op, count) != count for op, count in (rank.counts or {}).items())


def _calls(
    comm: Comm, known: Mapping[int, Rank], stand: Mapping[int, int], notes: list[str]
) -> dict[int, dict[int, str]]:
    """Rank → sequence number → operation, as far as the counts prove it.

    Ranks behind lack the last calls of the others: if they lack one operation only, those calls
    are of that. A rank that has more of one and less of another has called the one for the other,
    somewhere; it is put at the last call that both made, as a mismatch lets nobody get further.
    """
    if not known:
        return {}
    top = max(stand.values())
    vectors = Counter(_vector(rank) for number, rank in known.items() if stand[number] == top)
    usual = dict(min(vectors.items(), key=lambda found: (-found[1], found[0]))[0])
    lacking: dict[str, int] = {}  # operation → least place of the ranks that lack only it
    crossed: dict[tuple[str, str], list[int]] = defaultdict(list)
    calls: dict[int, dict[int, str]] = {}
    usual_calls: dict[int, str] = {}
    for number, rank in sorted(known.items()):
        counts = rank.counts or {}
        less = [op for op in sorted(usual) if counts.get(op, 0) < usual[op]]
        more = [op for op in sorted(counts) if counts[op] > usual.get(op, 0)]
        if not more:
            calls[number] = usual_calls  # filled below
            if len(less) == 1:
                lacking[less[0]] = min(lacking.get(less[0], top), stand[number])
            continue
        crossed[", ".join(more), ", ".join(less)].append(number)
        if len(more) == len(less) == 1:
            calls[number] = {stand[number]: more[0]}
            usual_calls.setdefault(stand[number], less[0])
    for (more_ops, less_ops), numbers in crossed.items():
        shown = ", ".join(map(str, numbers[:16])) + (", …" if len(numbers) > 16 else "")
        notes.append(
            f"communicator {comm.hash}: not the same calls on all ranks: {shown} launched more "
            f"{more_ops} and less {less_ops} than the others"
        )
    if len(lacking) == 1:
        ((op, low),) = lacking.items()
        for seq in range(max(low, top - _MAX_CALLS) + 1, top + 1):
            usual_calls.setdefault(seq, op)
    return calls


def _vector(rank: Rank) -> Vector:
    return tuple(sorted((rank.counts or {}).items()))


# --- several files of one job ---------------------------------------------------------------------

_Named = tuple[str, Snapshot]

_DIGITS = re.compile(r"(\d+)")


@dataclass(slots=True)
class _Same:
    """Files that tell of one job, by name, and the communicators that they tell of."""

    files: list[tuple[str, RasReport]] = field(default_factory=list)
    comms: set[str] = field(default_factory=set)


def joined(reports: Iterable[tuple[str, RasReport]]) -> list[tuple[str, RasReport]]:
    """One report a job, with the name of the file whose lines it tells."""
    several = sorted(reports, key=lambda one: _natural(one[0]))
    if len(several) < 2:
        return several
    return [_one(same.files) for same in _jobs(several)]


def _jobs(reports: Sequence[tuple[str, RasReport]]) -> list[_Same]:
    """The files by job; one that names no communicator belongs to the only job there is."""
    jobs: list[_Same] = []
    silent = []
    for name, report in reports:
        own = {hash_ for one in report.found.snapshots for hash_ in one.comms}
        if not own:
            silent.append((name, report))
            continue
        same = [job for job in jobs if job.comms & own]
        whole = _Same([file for job in same for file in job.files] + [(name, report)], own)
        whole.comms |= {hash_ for job in same for hash_ in job.comms}
        jobs = [job for job in jobs if job not in same] + [whole]
    if len(jobs) == 1:
        jobs[0].files += silent
    else:
        jobs += [_Same([file]) for file in silent]
    return jobs


def _one(files: list[tuple[str, RasReport]]) -> tuple[str, RasReport]:
    """What the files of one job say together."""
    if len(files) == 1:
        return files[0]
    as_json = any(report.json and report.found.snapshots for _, report in files)
    whole = Found()
    snapshots: list[_Named] = []
    for name, report in files:
        whole.dead |= report.found.dead
        whole.events += report.found.events
        whole.errors += report.found.errors
        if report.json == as_json:
            snapshots += [(name, one) for one in report.found.snapshots]
    times = [seconds_of(one.stamp) for _, one in snapshots]
    if None not in times:
        order = sorted(range(len(snapshots)), key=lambda n: (times[n] or 0.0, n))
        snapshots = _fullest_last([snapshots[n] for n in order], [times[n] or 0.0 for n in order])
    whole.snapshots = deque(one for _, one in snapshots)
    name = snapshots[-1][0] if snapshots else files[-1][0]
    report = report_of(whole, name, as_json)
    report.notes = [*dict.fromkeys(report.notes)]
    return name, report


def _fullest_last(snapshots: list[_Named], times: Sequence[float]) -> list[_Named]:
    """Of the last reports, asked for at about the same time, only the one of the most ranks.

    A node that the others cannot reach sees only itself.
    """
    since = next(n for n, time in enumerate(times) if times[-1] - time < MIN_SECONDS)
    return [*snapshots[:since], max(snapshots[since:], key=lambda one: _counted(one[1]))]


def _counted(snapshot: Snapshot) -> int:
    ranks = (rank for comm in snapshot.comms.values() for rank in comm.ranks.values())
    return sum(rank.counts is not None for rank in ranks)


def _natural(name: str) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(name)]


# --- what is said of single ranks -----------------------------------------------------------------

_ERROR = re.compile(
    r"(?i:rank) (\d{1,9}) (?:reported (Invalid usage)"
    r"|of (0x[0-9a-f]{1,16}\S{0,40}): (?:init_state \d+, )?async_error 5\b)"
)


def signs_of_death(report: RasReport, source: str) -> Iterator[Sign]:
    """One for each rank of the whole job that is dead, else for each process of no known rank.

    Without those of which only an event says so: these are claims of `formats.detectors`.
    """
    largest, text = _largest(report), "its process is considered dead"
    dead = [one for one in report.ranks if one.dead]
    ranks = [one for one in dead if one.size == largest]
    events = {(process.host, process.pid) for process in report.found.dead}
    dead = [one for one in dead if (one.host, one.pid) not in events]
    for one in ranks or dead:
        rank = one.comm_rank if ranks else None
        what = f"process {one.pid}" if rank is None else f"rank {rank}"
        yield Sign(source, one.host, "dead", what, text, rank=rank, line=one.line)


def signs_of_lateness(report: RasReport, source: str) -> Iterator[Sign]:
    """The one process that has launched fewer calls than the others, where none has moved.

    Of several the one that lacks more than each of them.
    """
    top: dict[str, int] = defaultdict(int)
    for one in report.ranks:
        top[one.comm] = max(top[one.comm], one.launched or 0)
    lacks: dict[tuple[str | None, int], int] = defaultdict(int)
    first: dict[tuple[str | None, int], CommRank] = {}
    for one in sorted(report.ranks, key=lambda one: one.rank is None):
        if one.pid is not None and one.launched is not None:
            lacks[one.host, one.pid] += top[one.comm] - one.launched
            first.setdefault((one.host, one.pid), one)
    most = max(lacks.values(), default=0)
    late = [first[who] for who, lack in lacks.items() if lack == most > 0]
    if report.moving is False and len(late) == 1:
        yield Sign(
            source, late[0].host, "late", f"process {late[0].pid}",
            f"it has launched {most} calls fewer than the others", rank=late[0].rank,
            line=late[0].line,
        )  # fmt: skip


def _largest(report: RasReport) -> int:
    return max((one.size or 0 for one in report.communicators), default=0)


def signs_of_errors(report: RasReport, source: str) -> Iterator[Sign]:
    """One for each rank that reported such an error."""
    largest = _largest(report)
    sizes = {one.hash: one.size for one in report.communicators}
    for line, text in report.errors:
        if not (found := _ERROR.search(text)):
            continue
        # Text has the name of the communicator in another line, and mostly but one.
        world = sizes.get(found[3]) == largest if found[3] else len(sizes) == 1
        rank = int(found[1])
        yield Sign(
            source, None, "nccl_error", f"rank {rank}" if world else f"rank {rank} of a group",
            "NCCL's asynchronous error is Invalid usage", rank=rank if world else None, line=line,
        )  # fmt: skip
