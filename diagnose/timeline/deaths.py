"""What ends processes and jobs, as far as lines tell.

Who catches an exception and prints it shows the stack from the catching function on, a thread from
the place where threads begin. So a traceback whose outermost frame is the module of the script is
the last word of a process, apart from what its libraries say while it ends. A launcher reports who
exited, a scheduler whom it cancels, a shell or a user sends a signal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from diagnose.timeline.event import Event, Meaning

TRACEBACK = "Traceback (most recent call last)"
OUTERMOST = ("<module>", "_run_module_as_main")  # functions: of a script, of `python -m`
_CHAIN_LINES = 2  # from the sentence between two tracebacks of one exception to the second one
_ENDS = ("cause", "effect")
_STOPPED = ("scheduler.limit", "scheduler.preempted", "user.interrupt")
_STOPS = ("teardown", "stopping")  # what a launcher, or a dying process, says of others
_MAY_END = frozenset({"finished", "quits", "exit", *_STOPS})

# Whose end it is: one process's, that of all that were started together, or a good end of these.
Whose = Literal["process", "job", "done"]


@dataclass(frozen=True, slots=True)
class Death:
    """The line on which the last words begin, and the event that tells of the end.

    `raised`: it is an exception that nobody caught.
    """

    begins: int
    said: Event
    whose: Whose = "process"
    raised: bool = False


def outermost(event: Event) -> bool:
    """Whether it is a frame in which Python begins to run a program."""
    return event.tells == "frame" and event.fields.get("func") in OUTERMOST


def may_end(meaning: Meaning) -> bool:
    """Whether a line that means this may tell of an end."""
    return meaning.tells in _MAY_END or meaning.kind == "exit" or stops_job(meaning)


def ends(event: Event) -> Whose | None:
    """Whose end a line tells of by itself."""
    if not may_end(event.meaning):
        return None
    tells = event.meaning.tells
    if tells == "finished":
        return "done" if event.rank is None else None
    if tells == "quits" or says_signal(event):
        return "process"
    of_one = event.rank is not None or event.task is not None or event.local_rank is not None
    if event.meaning.kind == "exit":
        return _whose(of_one) if exit_failed(event) else None
    if stops_job(event.meaning):
        return "job"
    if event.meaning.role == "aftermath" and tells in _STOPS:
        return _whose(of_one or "pid" in event.fields)
    return None


def _whose(of_one: bool) -> Whose:
    return "process" if of_one else "job"


def stopped_by_others(event: Event) -> bool:
    """Whether the whole job was ended from outside, by its scheduler or its owner."""
    return event.kind != "exception" and event.rank is None and stops_job(event.meaning)


def stops_job(meaning: Meaning) -> bool:
    """Whether a line that means this tells that the whole job was ended from outside."""
    return meaning.role == "cause" and meaning.cause in _STOPPED


def says_signal(event: Event) -> bool:
    """Whether it is a process's own word that a signal ends it."""
    told = event.tells in ("exit", "teardown") and event.pid is not None
    return told and "signal" in event.fields and "pid" in event.fields


def exit_failed(end: Event) -> bool:
    """Whether the event of an exit says that the process ended otherwise than well."""
    return end.fields.get("exitcode") not in ("0", "+0") or "signal" in end.fields


def all_deaths(events: Sequence[Event]) -> dict[int, Death]:
    """What tells of ends in one source, by the identity of the event, in the order of its lines."""
    found = {id(death.said): death for death in deaths(events)}
    for event in events:
        whose = ends(event)
        if whose is not None and id(event) not in found:
            found[id(event)] = Death(event.line, event, whose)
    return found


def deaths(events: Iterable[Event]) -> Iterator[Death]:
    """The exceptions that ended processes, of events of one author in the order of their lines.

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
            main, last = False, Death(begins, event, raised=True)
    if last is not None:
        yield last
