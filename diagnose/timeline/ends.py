"""What lines tell of the end of a process, or of a whole job.

Who catches an exception and prints it shows the stack from the catching function on, a thread from
the place where threads begin. So a traceback whose outermost frame is one in which Python begins to
run a program is the last word of its process, apart from what its libraries say while it ends, and
so is one that torch's excepthook signs, which only runs for such exceptions. A launcher reports who
exited, a scheduler whom it cancels, a shell or a user sends a signal.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple

from diagnose.formats import table
from diagnose.lazy import expression
from diagnose.parse.prefix import peel
from diagnose.parse.tracebacks import TRACEBACK
from diagnose.timeline.event import Author, Event, Fields, Meaning, Timeline, author_of

OUTERMOST = ("<module>", "_run_module_as_main")  # functions: of a script, of `python -m`
_SIGNED = expression(table.read().match_of("rank") + re.escape(TRACEBACK))
# As Python prints an exception: by its name, with which no launcher begins a line.
_EXCEPTION = re.compile(r"(?:\w+\.)*(?:[A-Z]\w*|(?<=\.)\w+)(?::|\s*$)")
# Where a process of multiprocessing begins, or of its twin that pickles more.
_SPAWNED, _PROCESSES = "_bootstrap", ("multiprocessing/process.py", "multiprocess/process.py")
_CHAIN_LINES = 2  # from the sentence between two tracebacks of one exception to the second one
_MESSAGE_LINES = 20  # that an exception's text may have
_BLOCK_LINES = 300  # of one traceback
_FUNCTION = re.compile(r", in ([\w<>]+)")
_OPTIONAL = ("ImportError", "ModuleNotFoundError")
_WORK = ("progress", "phase")
_ERRORS = ("cause", "effect")
_REPORTS = ("quits", "teardown", "stopping")  # what who dies, or a launcher, says of an end
# Whose end it is: a process's, that of all that started together, or of these with their work done.
Whose = Literal["process", "job", "done"]
_SIGNAL_WORDS = {
    "killed": signal.SIGKILL, "segmentation fault": signal.SIGSEGV, "aborted": signal.SIGABRT,
    "bus error": signal.SIGBUS, "terminated": signal.SIGTERM, "interrupt": signal.SIGINT,
    "hangup": signal.SIGHUP, "illegal instruction": signal.SIGILL,
    "floating point exception": signal.SIGFPE, "out of memory": signal.SIGKILL,
    "terminate": signal.SIGABRT,  # what std::terminate ends the process with
}  # fmt: skip
_MAX_CODE = 2**32  # Windows prints NTSTATUS values
_NEXT_LINES = 2  # of a block that names who ended, and then how


class Stack(NamedTuple):
    """A traceback: its first line, and those of its frames that the catalog knows."""

    header: Event
    frames: list[Event]


@dataclass(slots=True)
class _Block:
    """A traceback as far as it was read: its first line, whether torch's excepthook printed it,
    whether it is the end of its process.
    """

    header: Event
    signed: bool
    uncaught: bool
    begins: int  # the first line of those that are chained to it
    frames: list[Event] = field(default_factory=list)
    optional: bool = False  # the import of a module that may do without
    raised: Event | None = None  # its exception
    inner: list[Event] = field(default_factory=list)  # frames in the text of its exception
    spawned: bool = False  # of a process that another one of the program began
    mixed: bool = False  # lines of another process's, which nothing tells from its own

    def opening(self, event: Event) -> bool:
        """Whether a line stands where its frames begin: a bar that another thread draws there."""
        return not self.frames and event.line <= self.header.line + 1

    def open_at(self, line: int) -> bool:
        """Whether its next frame, or what was raised, is still to come on a line."""
        before = self.frames[-1].line if self.frames else self.header.line
        return self.raised is None and line == before + 1

    def holds(self, event: Event) -> bool:
        """Whether a line is still a part of it."""
        if self.raised is not None:
            return event.line <= self.raised.line + _MESSAGE_LINES
        return event.line <= self.header.line + _BLOCK_LINES


@dataclass(slots=True)
class Raised:
    """Events of tracebacks, by their indices: of those that nobody caught, of these such as torch's
    excepthook printed and such of a process that another one of its program began, and of those
    that somebody caught; `nameless` are the first lines of those that nobody caught and of whose
    exception no entry knows the line. `ends`: each exception that ended a process, and the line on
    which its tracebacks begin; of those raised while another one was handled, the last. `stacks`:
    each exception, or the first line of a nameless one → its own traceback. `wrapped`: an exception
    → the one whose traceback its text holds, as of a data loader's worker. `mixed`: exceptions of
    processes that wrote their tracebacks at once, of which nobody knows whose frames are whose.
    `code`: lines of the program that a frame shows; what stands in one was written down, and did
    not happen.
    """

    uncaught: set[int] = field(default_factory=set)
    signed: set[int] = field(default_factory=set)
    spawned: set[int] = field(default_factory=set)
    caught: set[int] = field(default_factory=set)
    nameless: set[int] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)
    stacks: dict[int, Stack] = field(default_factory=dict)
    wrapped: dict[int, Event] = field(default_factory=dict)
    mixed: set[int] = field(default_factory=set)
    code: set[int] = field(default_factory=set)

    def add(self, index: int, block: _Block) -> None:
        """Take an event of a traceback."""
        if block.uncaught:
            self.uncaught.add(index)
        else:
            self.uncaught.discard(index)
            if block.frames and not block.optional:
                self.caught.add(index)
        if block.uncaught and block.signed:
            self.signed.add(index)
        if block.uncaught and block.spawned:
            self.spawned.add(index)


def outermost(event: Event) -> bool:
    """Whether it is a frame in which Python begins to run a program."""
    return event.signal == "frame" and event.fields.get("func") in OUTERMOST


def tracebacks(timeline: Timeline) -> Raised:
    """What the events of tracebacks and their exceptions are."""
    errors = timeline.where(_may_hold)
    return tracebacks_in(timeline) if any(TRACEBACK in one.text for one in errors) else Raised()


def tracebacks_in(events: Iterable[Event]) -> Raised:
    """The same of events of which no index tells whether any are of a traceback."""
    found, lines = Raised(), []
    ends: dict[str, int] = {}
    for event in events:
        if event.meaning.kind != "edge":
            lines.append(event)
        elif not event.text.startswith((" ", "\t")):
            ends[event.source] = event.line
    lines.sort(key=attrgetter("source"))
    for source, own in groupby(lines, attrgetter("source")):
        reader = _Reader(found, ends.get(source, 0))
        for event in sorted(own, key=attrgetter("line")):
            reader.read(event)
    return found


def _may_hold(meaning: Meaning) -> bool:
    """Whether the text of lines that mean this may hold a traceback or begin one."""
    return meaning.role in _ERRORS or meaning.signal == "trouble"


def _embedded(event: Event) -> bool | None:
    """Whether nobody caught the exception of a traceback that one line holds; None without one."""
    _, header, frames = event.text.partition(TRACEBACK)
    outer = _FUNCTION.search(frames) if header else None
    return outer[1] in OUTERMOST if outer else None


class _Reader:
    """Reads the events of one source in the order of their lines; `last` is its last line."""

    def __init__(self, found: Raised, last: int) -> None:
        self._found, self._last = found, last
        self._blocks: dict[Author, _Block] = {}
        self._chained: dict[Author, int] = {}  # the last line that ties two tracebacks

    def read(self, event: Event) -> None:
        """Take the next event."""
        author = author_of(event)
        block = self._blocks.get(author)
        if event.signal == "chained":
            self._chained[author] = event.line
        if TRACEBACK in event.text and event.role == "aftermath":
            self._blocks[author] = self._begun(author, event, block)
        elif event.role in _ERRORS and (alone := _embedded(event)) is not None:
            (self._found.uncaught if alone else self._found.caught).add(event.index)
            if alone:
                self._found.ends[event.index] = event.line
        elif block is None or (event.kind in _WORK and block.opening(event)):
            pass
        elif event.kind in _WORK or not block.holds(event):
            del self._blocks[author]
        elif event.signal == "frame":
            self._add_frame(event, block)
        else:
            self._add_line(event, block)

    def _begun(self, author: Author, header: Event, before: _Block | None) -> _Block:
        """The traceback that begins here; it may be one of the exception of the one `before`."""
        signed = _SIGNED.search(header.text) is not None
        block = _Block(header, signed, signed, header.line)
        chained = self._chained.get(author, -_CHAIN_LINES - 1)
        if before is not None and header.line <= chained + _CHAIN_LINES:
            block.begins = before.begins
            if before.raised is not None:
                self._found.ends.pop(before.raised.index, None)
        elif before is not None and author.kind == "source":
            block.mixed = before.open_at(header.line)
            if block.mixed:
                block.frames, block.uncaught = [*before.frames], before.uncaught
        self._found.add(header.index, block)
        return block

    def _add_frame(self, event: Event, block: _Block) -> None:
        if block.raised is not None:
            block.inner.append(event)
            return
        block.frames.append(event)
        if len(block.frames) == 1:
            block.spawned = _begins_process(event)
            block.uncaught = block.spawned or outermost(event)
            self._found.add(block.header.index, block)
        if block.uncaught and event.line + 1 < self._last:
            self._found.nameless.add(block.header.index)
            self._found.stacks[block.header.index] = _stack_of(block.header, block)
        else:  # the text breaks off before what was raised
            self._found.nameless.discard(block.header.index)

    def _add_line(self, event: Event, block: _Block) -> None:
        # What an entry takes for no failure by itself ended the process all the same.
        harmless = event.role == "context" and event.kind != "fact"
        message = peel(event.text).message
        if not harmless and _EXCEPTION.match(message):
            self._found.nameless.discard(block.header.index)
        if event.role not in _ERRORS:
            return
        # The line of a program that a frame shows: what is raised is not set in.
        if block.raised is None and message[:1].isspace():
            self._found.code.add(event.index)
        elif block.raised is None:
            block.optional = block.uncaught and _is_optional(event, block)
            block.uncaught &= not block.optional
            block.raised = event
            self._found.add(block.header.index, block)
            self._found.stacks[event.index] = _stack_of(event, block)
            if block.uncaught:
                self._found.ends[event.index] = block.begins
        elif block.inner and event.line > block.inner[-1].line:
            self._found.stacks[event.index] = Stack(block.raised, block.inner)
            self._found.wrapped.setdefault(block.raised.index, event)
        self._found.add(event.index, block)
        if block.mixed:
            self._found.mixed.add(event.index)


def _stack_of(event: Event, block: _Block) -> Stack:
    """The traceback of what an event tells; none where it is mixed with one of another place."""
    if block.mixed:
        lines = {frame.line: frame.text for frame in block.frames}
        counts = {*Counter(lines.values()).values()}
        if len(counts) > 1 or counts == {1}:
            return Stack(event, [])
    return Stack(block.header, block.frames)


def _is_optional(event: Event, block: _Block) -> bool:
    """Whether a module may do without what it failed to import: no other module waits for it."""
    kind = event.fields.get("type", "").rpartition(".")[2]
    return not block.signed and len(block.frames) == 1 and kind in _OPTIONAL


def _begins_process(frame: Event) -> bool:
    file = frame.fields.get("file", "").replace("\\", "/")
    return frame.fields.get("func") == _SPAWNED and file.endswith(_PROCESSES)


class End(NamedTuple):
    """The line on which the last words begin, and the event that reports the end.

    `uncaught`: it is an exception that nobody caught. `external`: somebody ended the job from
    outside.
    """

    line: int
    event: Event
    whose: Whose = "process"
    uncaught: bool = False
    external: bool = False


def exit_failed(end: Event) -> bool:
    """Whether the event of an exit says that the process ended otherwise than well."""
    return end.fields.get("exitcode") not in ("0", "+0") or "signal" in end.fields


def _stops_job(meaning: Meaning, external_ends: Collection[str]) -> bool:
    """Whether a line that means this states that somebody ended the job from outside."""
    return meaning.role == "cause" and meaning.cause in external_ends


def may_end(meaning: Meaning, external_ends: Collection[str]) -> bool:
    """Whether a line that means this may report an end, or be part of such a report."""
    reports = meaning.kind in ("exit", "frame") or meaning.signal in ("finished", *_REPORTS)
    return reports or _stops_job(meaning, external_ends)


def ends_of(events: Sequence[Event], external_ends: Collection[str]) -> dict[int, End]:
    """The ends that a source reports, by the identity of the event, in the order of its lines.

    `external_ends` are the cause classes of those who end a job from outside.
    """
    raised = any(TRACEBACK in event.text for event in events)
    exceptions = tracebacks_in(events).ends if raised else {}
    found = {
        id(event): End(exceptions[event.index], event, uncaught=True)
        for event in events
        if event.index in exceptions
    }
    for event in events:
        if id(event) not in found and (whose := _reported(event, external_ends)) is not None:
            external = _stops_job(event.meaning, external_ends)
            found[id(event)] = End(event.line, event, whose, external=external)
    return found


def _reported(event: Event, external_ends: Collection[str]) -> Whose | None:
    """Whose end a line reports by itself."""
    meaning = event.meaning
    if meaning.signal == "finished":
        return "done" if event.rank is None else None
    if _stops_job(meaning, external_ends):
        return "job"
    if meaning.kind == "exit":
        ended = exit_failed(event)
    else:
        ended = meaning.signal in _REPORTS and (
            meaning.role == "aftermath" or meaning.signal == "quits"
        )
    if not ended:
        return None
    of_one = (event.rank, event.task, event.local_rank, event.fields.get("pid")) != (None,) * 4
    return "process" if of_one or meaning.signal == "quits" else "job"


def endings(timeline: Timeline) -> list[Event]:
    """The lines that say that the job, or a rank, finished."""
    found = timeline.where(lambda one: one.kind == "phase" or one.signal == "finished")
    return [event for event in found if is_end(event)]


def is_end(event: Event) -> bool:
    """Whether it says that the job finished."""
    return event.signal == "finished" or (event.kind == "phase" and event.phase == "shutdown")


def is_implied(end: Event) -> bool:
    """Whether a rank only says something as it exits, well or not, and claims no success."""
    return end.signal == "finished" and end.role == "context" and end.rank is not None


def exit_code(fields: Fields) -> int | None:
    """The exit code of captures; negative is a signal (also 128+N as shells report it)."""
    named = fields.get("signal")
    if named:
        if named.isdigit():
            return -int(named) if named.isascii() and len(named) < 4 else None
        member = getattr(signal, f"SIG{named.upper().removeprefix('SIG')}", None)
        if member is None:
            member = _SIGNAL_WORDS.get(named.lower())
        if member is not None:
            return -int(member)
    try:
        code = int(fields["exitcode"])
    except (KeyError, ValueError):
        return None
    if not -_MAX_CODE < code < _MAX_CODE:
        return None
    return 128 - code if 128 < code < 128 + 65 else code


def exits_named(exits: Sequence[Event]) -> Iterator[Event]:
    """These ends; one whose line has the code only is that of the rank named on the line above."""
    before: Event | None = None
    for event in exits:
        if event.rank is None and before is not None and _right_above(before, event):
            event = replace(event, rank=before.rank, host=before.host)  # noqa: PLW2901
        yield event
        before = event


def _right_above(named: Event, coded: Event) -> bool:
    """Whether one line names a rank that ended, and the next one how."""
    apart = coded.line - named.line if coded.source == named.source else 0
    return 0 < apart <= _NEXT_LINES and named.rank is not None and exit_code(named.fields) is None


def killed_by_launcher(timeline: Timeline) -> Callable[[Event], bool]:
    """Whether an event is the end of a process by SIGKILL that its launcher sent.

    That is so after a launcher says that it stops what is left, where a process had ended by itself
    before or the line gives the reason, and of each process that it says it killed.
    """
    stopping, killed = _stopped_from(timeline), _killed_pids(timeline)

    def sent(event: Event) -> bool:
        return exit_code(event.fields) == -signal.SIGKILL and (
            event.line > stopping.get(event.source, event.line) or event.fields.get("pid") in killed
        )

    return sent


def _stopped_from(timeline: Timeline) -> dict[str, int]:
    """Source → the line from which a launcher kills the rest, because a process ended by itself."""
    ended: dict[str, int] = {}
    for event in timeline.kind("exit"):
        if event.role != "aftermath" and exit_code(event.fields) not in (0, None, -signal.SIGKILL):
            ended[event.source] = min(event.line, ended.get(event.source, event.line))
    lines: dict[str, int] = {}
    for event in timeline.signalling("stopping"):
        if "reason" in event.fields or event.line > ended.get(event.source, event.line):
            lines[event.source] = min(event.line, lines.get(event.source, event.line))
    return lines


def _killed_pids(timeline: Timeline) -> set[str]:
    """The processes which a launcher says that it killed, as they did not end when told to."""
    return {
        event.fields["pid"]
        for event in timeline.signalling("teardown")
        if "pid" in event.fields and exit_code(event.fields) == -signal.SIGKILL
    }
