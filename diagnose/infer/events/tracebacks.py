"""Where each rank was when it stopped, from the stack frames it printed.

A traceback that ends in a collective says what its rank waited for even where no watchdog line
does (gloo, blocking waits). Ranks that are in different calls disagree.
"""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.lazy import expression
from diagnose.timeline.event import Event, Fields, Timeline

# Python entry points of torch.distributed and the operation they issue.
OP_OF_CALL = {
    "all_reduce": "ALLREDUCE", "all_reduce_coalesced": "ALLREDUCE_COALESCED",
    "broadcast": "BROADCAST", "broadcast_object_list": "BROADCAST", "reduce": "REDUCE",
    "all_gather": "ALLGATHER", "all_gather_object": "ALLGATHER",
    "all_gather_into_tensor": "_ALLGATHER_BASE", "_all_gather_base": "_ALLGATHER_BASE",
    "gather": "GATHER", "gather_object": "GATHER", "scatter": "SCATTER",
    "scatter_object_list": "SCATTER", "reduce_scatter": "REDUCE_SCATTER",
    "reduce_scatter_tensor": "_REDUCE_SCATTER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE", "all_to_all": "ALLTOALL",
    "all_to_all_single": "ALLTOALL_BASE", "barrier": "BARRIER", "monitored_barrier": "BARRIER",
    "send": "SEND", "recv": "RECV", "isend": "SEND", "irecv": "RECV",
    "send_object_list": "SEND", "recv_object_list": "RECV", "batch_isend_irecv": "SEND",
    "_engine_run_backward": "ALLREDUCE",
}  # fmt: skip


_GAP_LINES = 40
_DUMP_FRAME = expression(r'", line \d+ in |\.py:\d+\)\s*$')


@dataclass(frozen=True, slots=True)
class LastTraceback:
    """A rank's last stack: the collective call, the user's call site, the phase it shows.

    `row` is the index of the event of that call, else of its innermost frame.
    """

    rank: int
    op: str | None
    site: str | None
    phase: str | None
    row: int


def last_tracebacks(timeline: Timeline) -> dict[int, LastTraceback]:
    """Rank → where its last traceback ended."""
    sources: dict[int, str] = {}
    stacks: dict[int, list[Event]] = {}
    for event in timeline.kind("frame"):
        if event.rank is None:
            continue
        if sources.setdefault(event.rank, event.source) == event.source:
            stacks.setdefault(event.rank, []).append(event)
    return {rank: _last(rank, _last_stack(stacks[rank])) for rank in sorted(stacks)}


def _last(rank: int, stack: list[Event]) -> LastTraceback:
    calls = [event for event in stack if event.fields.get("func") in OP_OF_CALL]
    sites = [site for event in stack if (site := _site(event.fields)) is not None]
    phases = [event.phase for event in stack if event.phase is not None]
    return LastTraceback(
        rank,
        OP_OF_CALL[calls[-1].fields["func"]] if calls else None,
        sites[-1] if sites else None,
        phases[-1] if phases else None,
        (calls or stack)[-1].index,
    )


def dumped(timeline: Timeline) -> list[Event]:
    """Frames of stack dumps (faulthandler, py-spy): taken of a process that still ran."""
    return [event for event in timeline.kind("frame") if _DUMP_FRAME.search(event.text)]


def _last_stack(frames: list[Event]) -> list[Event]:
    """The last unbroken run of frames in a source (a gap of lines ends one), outermost first."""
    run: list[Event] = []
    for event in sorted(frames, key=lambda event: event.line):
        if run and event.line > run[-1].line + _GAP_LINES:
            run = []
        run.append(event)
    # Tracebacks ("line 3, in f") end with the innermost frame, dumps ("line 3 in f") begin with it.
    dump = any(_DUMP_FRAME.search(event.text) for event in run)
    return run[::-1] if dump else run


def _site(fields: Fields) -> str | None:
    path, line = fields.get("file"), fields.get("line")
    if not path or "-packages/" in path or "/lib/python" in path or path.startswith("<"):
        return None
    return f"{path.rsplit('/', 1)[-1]}:{line}" if line else None
