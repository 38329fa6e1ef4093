"""Stacks that processes printed into their logs, as the places of these processes.

A dump shows where a process was while it ran. A traceback does where it waited for others, or where
somebody ended it; an exception of its own is another matter. What a job did below a dump says that
it was taken in passing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from diagnose.catalog.schema import Catalog
from diagnose.infer.events.exceptions import Printed, last_printed
from diagnose.infer.stacks.classify import Place, places, unranked
from diagnose.infer.stacks.groups import PlaceClass, fold
from diagnose.lazy import expression
from diagnose.parse.stack_blocks import Kind
from diagnose.parse.stacks import Frame, Stack
from diagnose.timeline.event import Event, Timeline

_FRAME = expression(
    r'File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9}),? in (?P<func>\S{1,300})'
    r"|(?P<spy>\S{1,300}) \((?P<path>[^()]{1,1000}):(?P<number>\d{1,9})\)\s*\Z"
)
_LAST_LINES = 12  # from the innermost frame of a stack to what ended its process

# Lines by rank and source.
Ends = Mapping[tuple[int | None, str], Sequence[int]]


def with_printed(
    classes: list[PlaceClass], lone: Sequence[Place], timeline: Timeline, catalog: Catalog
) -> tuple[list[PlaceClass], list[Place]]:
    """What documents show of ranks and of other processes, with what these printed.

    Of a rank of which there is a document that counts.
    """
    known = [place for group in classes for place in group.places]
    shown, alone = _printed(timeline, catalog)
    more = {place.rank: place for place in shown if place.running or _compares(place)}
    more |= {place.rank: place for place in known}
    return fold(more.values()) if len(more) > len(known) else classes, [*lone, *alone]


def _compares(place: Place) -> bool:
    """Whether a traceback shows where its process was, and not only what it died of."""
    return place.waits or place.stack.kind == "interrupt"


def _printed(timeline: Timeline, catalog: Catalog) -> tuple[list[Place], list[Place]]:
    """The places of ranks, and those of processes whose rank no line tells."""
    printed = last_printed(timeline)
    outside, deaths = _ended(timeline, catalog), _lines(timeline.signalling("dies"))
    stacks = [_stack(one, number, outside, deaths) for number, one in enumerate(printed)]
    found = [
        stack
        for stack, one in zip(stacks, printed, strict=True)
        if stack.frames and not (one.dump and _in_passing(one, timeline))
    ]

    def phased(place: Place) -> Place:
        """With the phase that the catalog knows of one of its frames, if none says it here."""
        named = [event.phase for event in printed[place.stack.dump].frames if event.phase]
        return replace(place, phase=place.phase or (named[-1] if named else None))

    dumps = [stack for stack in found if printed[stack.dump].dump]
    return [phased(place) for place in places(found)], [phased(one) for one in unranked(dumps)]


def _stack(printed: Printed, number: int, outside: Ends, deaths: Ends) -> Stack:
    """The stack of the thread that printed it, as one read from a file.

    What a process dumps as it dies of a signal shows where that reached it, and no hang.
    """
    frames: list[Frame] = []
    at = None
    for event in reversed(printed.frames):
        frame = _frame(event)
        if frame is not None and event.place != at:
            frames.append(frame)
        at = event.place
    inner = printed.frames[-1]
    ends = outside.get((inner.rank, inner.source), ())
    if printed.dump:
        ends = deaths.get((inner.rank, inner.source), ())
        interrupted = any(inner.line - _LAST_LINES <= line < inner.line for line in ends)
    else:
        interrupted = any(inner.line < line <= inner.line + _LAST_LINES for line in ends)
    otherwise: Kind = "faulthandler" if printed.dump else "traceback"
    return Stack(
        inner.source, inner.line, inner.rank, inner.host, inner.pid, "", True, "", False,
        tuple(frames), "interrupt" if interrupted else otherwise, dump=number,
    )  # fmt: skip


def _frame(event: Event) -> Frame | None:
    found = _FRAME.search(event.text)
    if found is None:
        return None
    file, line = found["file"] or found["path"], found["line"] or found["number"]
    return Frame(found["func"] or found["spy"], file, int(line), native=False)


def _in_passing(printed: Printed, timeline: Timeline) -> bool:
    last = max(printed.frames, key=lambda event: event.line)
    return worked_below(last.source, last.line, timeline, last.rank)


def worked_below(source: str, line: int, timeline: Timeline, rank: int | None = None) -> bool:
    """Whether steps stand below a line of a source: a stack there was taken in passing.

    Steps of other ranks say nothing of one that is known.
    """
    steps = timeline.kind("progress")
    return any(
        event.source == source
        and event.line > line
        and (rank is None or event.rank in (None, rank))
        for event in steps
    )


def _ended(timeline: Timeline, catalog: Catalog) -> Ends:
    """Where somebody else ended a process, by the exception that it printed."""
    classes = catalog.classes
    return _lines(timeline.where(lambda a: a.cause is not None and classes[a.cause].outside))


def _lines(events: Iterable[Event]) -> Ends:
    found: dict[tuple[int | None, str], list[int]] = defaultdict(list)
    for event in events:
        found[event.rank, event.source].append(event.line)
    return found
