"""The exception of an event and where it was raised, and the stacks that processes printed last.

A traceback that ends in a collective says what its rank waited for even where no watchdog line
does (gloo, blocking waits). Ranks that are in different calls disagree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from diagnose.catalog.entries import is_word
from diagnose.diagnosis import CodeFrame, PythonException
from diagnose.lazy import expression
from diagnose.parse.prefix import Prefix, peel
from diagnose.parse.tracebacks import PythonFrame, RaisedText, frames_in, library_path, raised_in
from diagnose.timeline.ends import Raised
from diagnose.timeline.event import Event, Fields, Timeline

if TYPE_CHECKING:
    from diagnose.job.model import Job


_MESSAGE = 400  # characters
_SHORT = 160  # of them in one sentence
_LINES = 300  # of a traceback that are read again
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
_FUNC = "func"  # the heading of a thread names none
_DUMP_FRAME = expression(r'", line \d+ in |\.py:\d+\)\s*$')


def exception_of(event: Event, raised: Raised) -> PythonException | None:
    """The exception that an event tells, with the frames that are events; None where it is none.

    A line is one where a traceback ends in it, where it holds a traceback, or where it is of the
    form `Type: text` and the catalog takes it for an exception, or knows a word of it. Of one that
    passes on another, as a data loader does of its worker's, the other.
    """
    event = raised.wrapped.get(event.index, event)
    stack = raised.stacks.get(event.index)
    prefix = peel(event.text)
    named = event.signal == "exception" or (is_word(event.signature) and "type" in event.fields)
    if stack is None and prefix.traceback is None and not named:
        return None
    if prefix.traceback is not None:
        frames = frames_in(prefix.traceback.splitlines())
    else:
        lines = {one.place: one.text for one in stack.frames} if stack else {}
        frames = frames_in(peel(text).message for text in lines.values())
    captured = RaisedText(event.fields.get("type", ""), event.fields.get("message", ""))
    first = stack.header.line if stack else event.line
    return _exception(raised_in(prefix.message) or captured, event, first, frames)


def fullest(events: Iterable[Event], raised: Raised) -> PythonException | None:
    """Of the exceptions that lines tell the first whose traceback leads into the program's code.

    Else the first with a traceback, with a text, or any. A launcher's table names again what a
    process printed in full.
    """
    found = [one for event in events if (one := exception_of(event, raised)) is not None]
    named = [one for one in found if one.type]
    return min(named, key=_lacks, default=None)


def _lacks(found: PythonException) -> tuple[bool, bool, bool]:
    """What is not known of an exception; the least is the fullest."""
    return found.where is None, not found.frames, not found.message


def with_code(found: PythonException, job: Job) -> PythonException:
    """The same with all frames and their code, where the lines of the log can be read again.

    Of lines that several processes wrote by turns those of the one that raised.
    """
    if found.first_line >= found.line or found.line - found.first_line > _LINES:
        return found
    place = found.source, found.line
    above = found.line - found.first_line
    lines = job.lines_around([place], above, 0).get(place, {})
    if found.first_line not in lines:
        return found
    peeled = [peel(lines[number]) for number in sorted(lines)]
    who = [*map(_author, peeled)]
    own = [one.message for one, author in zip(peeled, who, strict=True) if author == who[0]]
    frames = [_shown(frame) for frame in frames_in(own)]
    if len(frames) < len(found.frames):
        return found
    return replace(found, where=_where(frames), frames=frames)


def reread(header: Event, job: Job) -> PythonException | None:
    """The exception of a traceback that begins here, of which no entry knows the line.

    Python sets the lines of frames in; the first line of its author that is not ends them. Where
    the log breaks off before it, there is no type.
    """
    around = job.lines_around([header.place], 0, _LINES).get(header.place, {})
    own: list[str] = []
    number = header.line
    for number in sorted(around):
        prefix = peel(around[number])
        if _author(prefix) != _author(peel(around[header.line])):
            continue
        if not own or prefix.message[:1].isspace():
            own.append(prefix.message)
            continue
        text = raised_in(prefix.message)
        last = replace(header, line=number)
        return text and _exception(text, last, header.line, frames_in(own))
    frames, last = frames_in(own), replace(header, line=number)
    return _exception(RaisedText("", ""), last, header.line, frames) if frames else None


def in_words(found: PythonException) -> str:
    """`KeyError: 'text' in data.py:77 (__iter__)`."""
    message = found.message.rstrip(".:")
    message = message if len(message) <= _SHORT else f"{message[:_SHORT]} …"
    named = str(RaisedText(found.type, message)) if found.type else "An exception"
    placed = f"{named} in {place_of(found.where)}" if found.where else named
    return placed if found.type else f"{placed} that the log does not name"


def place_of(frame: CodeFrame) -> str:
    """`data.py:77 (__iter__)`."""
    file = frame.file.replace("\\", "/").rpartition("/")[2]
    return f"{file}:{frame.line} ({frame.function})"


def _exception(
    text: RaisedText, event: Event, first: int, frames: Sequence[PythonFrame]
) -> PythonException:
    shown = [_shown(frame) for frame in frames]
    message = " ".join(text.message.split())
    message = message if len(message) <= _MESSAGE else f"{message[:_MESSAGE]} …"
    return PythonException(
        text.type, message, event.rank, _where(shown), shown, event.source, first, event.line
    )


def _author(prefix: Prefix) -> tuple[int | str | None, ...]:
    return prefix.rank, prefix.local_rank, prefix.host, prefix.pid, prefix.task


def _shown(frame: PythonFrame) -> CodeFrame:
    own = library_path(frame.file) is None
    return CodeFrame(frame.file, frame.line, frame.function, own, frame.code)


def _where(frames: Sequence[CodeFrame]) -> CodeFrame | None:
    """The innermost frame of the program itself."""
    return next((frame for frame in reversed(frames) if frame.own), None)


class Printed(NamedTuple):
    """The frames of one stack that a process printed, outermost first.

    `dump`: it was taken of a process that ran on, as by faulthandler; else an exception's.
    """

    frames: Sequence[Event]
    dump: bool


class LastTraceback(NamedTuple):
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
    return [_last_run(stack) for stack in stacks.values() if any(_FUNC in e.fields for e in stack)]


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

    So does the outermost frame of another traceback, and the heading of another thread. One of
    which only the installed program is known that Python ran, such as that of a launcher, shows no
    place.
    """
    runs: list[list[Event]] = []
    for event in sorted(frames, key=lambda event: event.line):
        apart = not runs or not runs[-1] or event.line > runs[-1][-1].line + _GAP_LINES
        if apart or _is_outermost(event) or _FUNC not in event.fields:
            runs.append([])
        if _FUNC in event.fields:
            runs[-1].append(event)
    placed = [run for run in runs if not all(map(_is_program, run))]
    run = (placed or [run for run in runs if run])[-1]
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
