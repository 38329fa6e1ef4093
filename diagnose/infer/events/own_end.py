"""What a process does after the exception that ended it is no cause of its own.

While an interpreter ends, threads that still run, communicators and allocators are torn down, and
that often crashes: "terminate called without an active exception", a segmentation fault in a
destructor, SIGABRT, or SIGTERM from a launcher that saw the exit. The exception came first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from diagnose.infer.events.sifting import Sifted
from diagnose.timeline.deaths import deaths, outermost
from diagnose.timeline.event import Event, Timeline

_NATIVE = "crash.native"
_BLOCK = 60  # lines below an exception of nobody's that are surely of the same process

# A source and the rank that wrote there (None: not named).
_Author = tuple[str, int | None]


def without_own_end(timeline: Timeline) -> tuple[Timeline, list[Sifted]]:
    """The timeline in which crashes of processes that had raised already are aftermath.

    With these crashes, as they were.
    """
    if not any(outermost(event) for event in timeline.kind("frame")):
        return timeline, []
    crashes = [*_late(timeline)]
    late = {event.index for event in crashes}
    if not late:
        return timeline, []
    cleared = Timeline(
        replace(event, meaning=replace(event.meaning, role="aftermath", cause=None, strength=None))
        if event.index in late
        else event
        for event in timeline
    )
    return cleared, [Sifted("absolved", "own_end", crashes)]


def _late(timeline: Timeline) -> Iterator[Event]:
    raised = _raised(timeline)
    for event in timeline:
        if not _crashes(event):
            continue
        own = raised.get((event.source, event.rank)) or raised.get((event.source, None), [])
        for said in own:
            below = event.line - said.line
            if below > 0 and (below <= _BLOCK or said.rank is not None):
                yield event
                break


def _crashes(event: Event) -> bool:
    """Whether a process says that native code ended it, or a launcher that a signal did."""
    if event.kind == "exit":
        code = event.fields.get("exitcode", "-")
        return event.role != "aftermath" and ("signal" in event.fields or code.startswith("-"))
    return event.cause == _NATIVE and event.role == "cause"


def _raised(timeline: Timeline) -> Mapping[_Author, list[Event]]:
    """The exceptions that ended processes, by who wrote them; what follows from others' is none."""
    written: dict[_Author, list[Event]] = defaultdict(list)
    for event in timeline:
        if event.kind != "edge":
            written[event.source, event.rank].append(event)
    found: dict[_Author, list[Event]] = {}
    for author, events in written.items():
        if any(outermost(event) for event in events):
            events.sort(key=lambda event: event.line)
            found[author] = [d.said for d in deaths(events) if d.said.role == "cause"]
    return found
