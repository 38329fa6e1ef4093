"""Exceptions that nobody caught: the last words of the process that prints them.

Who catches an exception and prints it shows the stack from the catching function on. So a traceback
whose outermost frame is one in which Python begins to run a program is the end of its process, and
so is one that torch's excepthook signs, which only runs for such exceptions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from diagnose.parse.prefix import peel
from diagnose.parse.tracebacks import TRACEBACK
from diagnose.timeline.event import Author, Event, Meaning, Timeline, author_of

OUTERMOST = ("<module>", "_run_module_as_main")  # functions: of a script, of `python -m`
_SIGNED = re.compile(r"\[rank\d+\]: ?Traceback \(most recent call last\)")
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
            self._found.stacks[block.header.index] = _stack(block.header, block)
        else:  # the text breaks off before what was raised
            self._found.nameless.discard(block.header.index)

    def _add_line(self, event: Event, block: _Block) -> None:
        # What an entry takes for no failure by itself ended the process all the same.
        harmless = event.role == "context" and event.kind != "fact"
        if not harmless and _EXCEPTION.match(peel(event.text).message):
            self._found.nameless.discard(block.header.index)
        if event.role not in _ERRORS:
            return
        if block.raised is None and _is_code(event):
            self._found.code.add(event.index)
        elif block.raised is None:
            block.optional = block.uncaught and _is_optional(event, block)
            block.uncaught &= not block.optional
            block.raised = event
            self._found.add(block.header.index, block)
            self._found.stacks[event.index] = _stack(event, block)
            if block.uncaught:
                self._found.ends[event.index] = block.begins
        elif block.inner and event.line > block.inner[-1].line:
            self._found.stacks[event.index] = Stack(block.raised, block.inner)
            self._found.wrapped.setdefault(block.raised.index, event)
        self._found.add(event.index, block)
        if block.mixed:
            self._found.mixed.add(event.index)


def _stack(event: Event, block: _Block) -> Stack:
    """The traceback of what an event tells; none where it is mixed with one of another place."""
    if block.mixed:
        lines = {frame.line: frame.text for frame in block.frames}
        counts = {*Counter(lines.values()).values()}
        if len(counts) > 1 or counts == {1}:
            return Stack(event, [])
    return Stack(block.header, block.frames)


def _is_code(event: Event) -> bool:
    """Whether it is the line of a program that a frame shows: what is raised is not set in."""
    return peel(event.text).message[:1].isspace()


def _is_optional(event: Event, block: _Block) -> bool:
    """Whether a module may do without what it failed to import: no other module waits for it."""
    kind = event.fields.get("type", "").rpartition(".")[2]
    return not block.signed and len(block.frames) == 1 and kind in _OPTIONAL


def _begins_process(frame: Event) -> bool:
    file = frame.fields.get("file", "").replace("\\", "/")
    return frame.fields.get("func") == _SPAWNED and file.endswith(_PROCESSES)
