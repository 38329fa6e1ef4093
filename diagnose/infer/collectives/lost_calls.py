"""Logs that lack calls which their process made, by what watchdogs of others show.

A collective completes only when every member of its communicator has launched it. A watchdog prints
the oldest call that its rank has pending, so all calls that this rank launched before are complete.
A log of another member that ends before these ends before its process did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from diagnose.catalog.schema import Signature
from diagnose.infer.judge.verdict import plain
from diagnose.match.scanner import SourceScan
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.timeline.event import Work
from diagnose.timeline.readings import events_of_scans

_BARRIER = "barrier"  # of torch: an all-reduce of NCCL


def sources_cut(scans: Sequence[SourceScan], signatures: Sequence[Signature]) -> frozenset[str]:
    """The names of sources of one process each that end before calls that others saw complete."""
    of_one = [scan for scan in scans if len({(one.host, one.pid) for one in scan.comm_ranks}) == 1]
    completed: dict[str, int] = {}
    for scan in of_one if len(of_one) > 1 else ():
        calls = [(one.comm, call) for one in scan.comm_ranks for call in one.calls]
        waits = [at for work in _waits(scan, signatures) for at in _lines_of(work, scan.comm_ranks)]
        for comm, call in calls if waits else ():
            if call.line < min(waits) and _counted(call):
                completed[comm] = max(call.seq, completed.get(comm, call.seq))
    return frozenset(
        scan.source.name
        for scan in of_one
        for one in scan.comm_ranks
        if one.comm and one.launched is not None and one.launched < completed.get(one.comm, -1)
    )


def _waits(scan: SourceScan, signatures: Sequence[Signature]) -> Iterator[Work]:
    """The calls in which the process of a source waits, by its watchdog."""
    if not any(signatures[number].signal == "timeout" for number in scan.counts):
        return  # its lines become events anyway: not here, where none is asked for
    for event in events_of_scans([scan], signatures):
        if event.signal == "timeout" and event.seq is not None and event.op is not None:
            yield event.work


def _lines_of(work: Work, own: Iterable[CommRank]) -> Iterator[int]:
    """The lines in which the process made this call: torch counts from 1, NCCL from 0."""
    name, sizes = plain(work.op) or "", (work.size_in, work.size_out)
    name = "allreduce" if name == _BARRIER else name
    for call in (call for one in own for call in one.calls):
        same = _counted(call) and name.startswith(plain(call.op) or "?")
        if same and work.seq == call.seq + 1 and (sizes == (None, None) or call.size in sizes):
            yield call.line


def _counted(call: CollCall) -> bool:
    """Whether it is a collective: of sends and receives each pair has numbers of its own."""
    return call.seq >= 0 and not call.op.startswith(("send ", "recv "))
