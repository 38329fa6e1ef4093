"""Exceptions that ended a process: the traceback of its main thread begins at its script.

Who catches an exception and prints it shows the stack from the catching function on, a thread from
the place where threads begin. So a traceback whose outermost frame is the module of the script is
the last word of a process, apart from what its libraries say while it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diagnose.timeline.event import Event

TRACEBACK = "Traceback (most recent call last)"
_MODULE = "<module>"
_CHAIN_LINES = 2  # from the sentence between two tracebacks of one exception to the second one
_ENDS = ("cause", "effect")


@dataclass(frozen=True, slots=True)
class Death:
    """The line on which the traceback begins, and the event of its exception."""

    begins: int
    said: Event


def outermost(event: Event) -> bool:
    """Whether it is a frame of a script's own module."""
    return event.tells == "frame" and event.fields.get("func") == _MODULE


def deaths(events: Iterable[Event]) -> Iterator[Death]:
    """What ended processes, of events of one author in the order of their lines.

    Of an exception that was raised while another one was handled, the last one counts.
    """
    begins = first = chained = -1
    main, last = False, None
    for event in events:
        if event.tells == "chained":
            chained = event.line
        elif TRACEBACK in event.text and event.role == "aftermath":
            if chained < 0 or event.line > chained + _CHAIN_LINES:
                if last is not None:
                    yield last
                begins, last = event.line, None
            main, first = False, event.line + 1
        elif outermost(event):
            main = main or event.line == first
        elif main and event.role in _ENDS and event.line > first:
            main, last = False, Death(begins, event)
    if last is not None:
        yield last
