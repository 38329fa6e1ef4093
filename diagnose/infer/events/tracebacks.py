"""The stacks that processes printed themselves: tracebacks, and dumps of their threads.

A traceback that ends in a collective says what its rank waited for even where no watchdog line
does (gloo, blocking waits). Ranks that are in different calls disagree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
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
_MODULE = "<module>"
_DUMP_FRAME = expression(r'", line \d+ in |\.py:\d+\)\s*$')


@dataclass(frozen=True, slots=True)
class Printed:
    """The frames of one stack that a process printed, outermost first.

    `dump`: it was taken of a process that ran on, as by faulthandler; else an exception's.
    """

    frames: Sequence[Event]
    dump: bool


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
    found = {stack.frames[0].rank: stack for stack in last_printed(timeline)}
    return {
        rank: _last(rank, found[rank].frames) for rank in sorted(r for r in found if r is not None)
    }


def last_printed(timeline: Timeline) -> list[Printed]:
    """The last stack of each rank, and of each source where no line tells whose it is."""
    sources: dict[int, str] = {}
    stacks: dict[tuple[int | None, str], list[Event]] = defaultdict(list)
    for event in timeline.kind("frame"):
        source = event.source
        if event.rank is None or sources.setdefault(event.rank, source) == source:
            stacks[event.rank, source].append(event)
    return [_last_run(frames) for frames in stacks.values()]


def _last(rank: int, stack: Sequence[Event]) -> LastTraceback:
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


def _last_run(frames: list[Event]) -> Printed:
    """The last unbroken run of frames in a source; a gap of lines ends one.

    So does the outermost frame of another traceback. One of which only the installed program is
    known that Python ran, such as that of a launcher, shows no place.
    """
    runs: list[list[Event]] = []
    for event in sorted(frames, key=lambda event: event.line):
        if not runs or event.line > runs[-1][-1].line + _GAP_LINES or _is_outermost(event):
            runs.append([])
        runs[-1].append(event)
    placed = [run for run in runs if not all(map(_is_program, run))]
    run = (placed or runs)[-1]
    # Tracebacks ("line 3, in f") end with the innermost frame, dumps ("line 3 in f") begin with it.
    dump = any(_DUMP_FRAME.search(event.text) for event in run)
    return Printed(run[::-1] if dump else run, dump)


def _is_outermost(event: Event) -> bool:
    """Whether a traceback begins with this frame."""
    return event.fields.get("func") == _MODULE and not _DUMP_FRAME.search(event.text)


def _is_program(event: Event) -> bool:
    """Whether it is the line of an installed program that calls its main function."""
    file = event.fields.get("file", ".py")
    return event.fields.get("func") == _MODULE and not file.endswith((".py", ">"))


def _site(fields: Fields) -> str | None:
    path, line = fields.get("file"), fields.get("line")
    if not path or "-packages/" in path or "/lib/python" in path or path.startswith("<"):
        return None
    return f"{path.rsplit('/', 1)[-1]}:{line}" if line else None
