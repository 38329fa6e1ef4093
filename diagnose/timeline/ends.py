"""What lines tell of the end of a process, or of a whole job.

Who catches an exception and prints it shows the stack from the catching function on, a thread from
the place where threads begin. So a traceback whose outermost frame is the module of the script is
the last word of a process, apart from what its libraries say while it ends. A launcher reports who
exited, a scheduler whom it cancels, a shell or a user sends a signal.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from diagnose.parse.tracebacks import TRACEBACK
from diagnose.timeline.event import Event, Fields, Meaning, Timeline
from diagnose.timeline.raised import tracebacks_in

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


@dataclass(frozen=True, slots=True)
class End:
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
