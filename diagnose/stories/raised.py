"""Exceptions that nobody caught: the last words of the process that prints them.

Who catches an exception and prints it shows the stack from the catching function on. So a traceback
whose outermost frame is one in which Python begins to run a program is the end of its process, and
so is one that torch's excepthook signs, which only runs for such exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from diagnose.parse.prefix import peel
from diagnose.stories.story import author_of
from diagnose.timeline.ends import OUTERMOST, TRACEBACK, outermost
from diagnose.timeline.event import Event, Timeline

_SIGNED = re.compile(r"\[rank\d+\]: ?Traceback \(most recent call last\)")
# As Python prints an exception: by its name, with which no launcher begins a line.
_EXCEPTION = re.compile(r"(?:\w+\.)*(?:[A-Z]\w*|(?<=\.)\w+)(?::|\s*$)")
_SPAWNED = "_bootstrap"  # of multiprocessing; threads begin with another function
_MESSAGE_LINES = 20  # that an exception's text may have
_BLOCK_LINES = 300  # of one traceback
_FUNCTION = re.compile(r", in ([\w<>]+)")
_OPTIONAL = ("ImportError", "ModuleNotFoundError")
_WORK = ("progress", "phase")


@dataclass(slots=True)
class _Block:
    """A traceback as far as it was read: its first line, whether torch's excepthook printed it,
    whether it is the end of its process.
    """

    header: Event
    signed: bool
    uncaught: bool
    frames: int = 0
    optional: bool = False  # the import of a module that may do without
    raised: int | None = None  # the line of its exception

    def holds(self, event: Event) -> bool:
        """Whether a line is still a part of it."""
        if self.raised is not None:
            return event.line <= self.raised + _MESSAGE_LINES
        return event.line <= self.header.line + _BLOCK_LINES


@dataclass(slots=True)
class Raised:
    """Events of tracebacks, by their indices: of those that nobody caught, that torch's excepthook
    printed, and that somebody caught; `nameless` are the first lines of those that nobody caught
    and of whose exception no entry knows the line.
    """

    uncaught: set[int] = field(default_factory=set)
    signed: set[int] = field(default_factory=set)
    caught: set[int] = field(default_factory=set)
    nameless: set[int] = field(default_factory=set)

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


def tracebacks(timeline: Timeline) -> Raised:
    """What the events of tracebacks and their exceptions are."""
    found = Raised()
    errors = timeline.where(lambda one: one.role in ("cause", "effect") or one.tells == "trouble")
    if any(TRACEBACK in event.text for event in errors):
        events = [event for event in timeline if event.kind != "edge"]
        edges = timeline.kind("edge")
        ends = {one.source: one.line for one in edges if not one.text.startswith((" ", "\t"))}
        events.sort(key=attrgetter("source"))
        for _, own in groupby(events, attrgetter("source")):
            _read(sorted(own, key=attrgetter("line")), found, ends)
    return found


def _embedded(event: Event) -> bool | None:
    """Whether nobody caught the exception of a traceback that one line holds; None without one."""
    _, header, frames = event.text.partition(TRACEBACK)
    outer = _FUNCTION.search(frames) if header else None
    return outer[1] in OUTERMOST if outer else None


def _read(events: Iterable[Event], found: Raised, ends: Mapping[str, int]) -> None:
    blocks: dict[object, _Block] = {}
    for event in events:
        author = author_of(event)
        if TRACEBACK in event.text and event.role == "aftermath":
            signed = _SIGNED.search(event.text) is not None
            blocks[author] = _Block(event, signed, signed)
            found.add(event.index, blocks[author])
        elif event.role in ("cause", "effect") and (alone := _embedded(event)) is not None:
            (found.uncaught if alone else found.caught).add(event.index)
            continue
        block = blocks.get(author)
        if block is None:
            continue
        if event.kind in _WORK or not block.holds(event):
            del blocks[author]
            continue
        if event.tells == "frame":
            block.frames += 1
            if block.frames == 1:
                block.uncaught = _begins_program(event)
                found.add(block.header.index, block)
            if block.uncaught and event.line + 1 < ends.get(event.source, 0):
                found.nameless.add(block.header.index)
            else:  # the text breaks off before what was raised
                found.nameless.discard(block.header.index)
            continue
        if _EXCEPTION.match(peel(event.text).message):
            found.nameless.discard(block.header.index)
        if event.role in ("cause", "effect"):
            if block.raised is None:
                block.optional = block.uncaught and _is_optional(event, block)
                block.uncaught &= not block.optional
                found.add(block.header.index, block)
                block.raised = event.line
            found.add(event.index, block)


def _is_optional(event: Event, block: _Block) -> bool:
    """Whether a module may do without what it failed to import: no other module waits for it."""
    kind = event.fields.get("type", "").rpartition(".")[2]
    return not block.signed and block.frames == 1 and kind in _OPTIONAL


def _begins_program(frame: Event) -> bool:
    return outermost(frame) or (
        frame.fields.get("func") == _SPAWNED and "multiprocessing" in frame.fields.get("file", "")
    )
