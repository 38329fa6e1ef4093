"""The timeline made ready for drawing: every event at a place on one axis."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter

from diagnose.job.model import Job
from diagnose.report.html import clock
from diagnose.timeline.event import Event, Timeline

_TOLD = ("cause", "effect", "progress", "phase")
_MILLISECOND = 1_000_000  # in the unit of Event.time
_INDEX, _TIME, _LINE = map(attrgetter, ("index", "time", "line"))


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a job, in `at` the place of each, by its index.

    A place is milliseconds since 1970 in the job's clock or, in a job whose logs carry no time at
    all (`clocked` is False), the number of the line. An event without a time of its own stands
    between its neighbours in the source; those of a source without any time have no place (None).
    `last_attempt` is what was diagnosed; `begin` and `end` are its first and last place, None if
    nothing has one. `unplaced` names the sources without a place.
    """

    timeline: Timeline
    last_attempt: Timeline
    at: Sequence[int | None]
    clocked: bool
    begin: int | None
    end: int | None
    unplaced: list[str]


def prepare(job: Job, onset: str | None) -> Events:
    """Give every event of a job its place.

    `onset` is that of the diagnosis if the job then stood still: it bounds guesses.
    """
    timeline = job.events
    clocked = any(time is not None for time in map(_TIME, timeline))
    stamp = clock.parse(onset)
    limit = None if stamp is None else clock.milliseconds(stamp)
    at = _places(timeline, limit) if clocked else [*map(_LINE, timeline)]
    last = _last_attempt(timeline)
    placed = [place for place in map(at.__getitem__, map(_INDEX, last)) if place is not None]
    lost = {event.source for event in timeline if at[event.index] is None} if None in at else ()
    return Events(
        timeline,
        last,
        at,
        clocked,
        begin=min(placed, default=None),
        end=max(placed, default=None),
        unplaced=sorted(lost),
    )


def _last_attempt(timeline: Timeline) -> Timeline:
    """Inference diagnoses the last attempt that left anything but facts; so do the pictures."""
    told = [e.attempt for e in timeline.role(*_TOLD) if e.attempt is not None]
    if not told:
        return timeline
    return timeline.of_attempt(max(told))


def _places(timeline: Timeline, onset: int | None) -> list[int | None]:
    """Milliseconds of each event: its time, made to run forward inside a source, or a guess."""
    sources: dict[str, list[Event]] = defaultdict(list)
    for event in timeline:  # of each source in the order of its lines
        sources[event.source].append(event)
    at: list[int | None] = [None] * len(timeline)
    for own in sources.values():
        known = [event for event in own if event.time is not None]
        if not known:
            continue
        running = accumulate(map(_TIME, known), max)
        stamps = [time // _MILLISECOND for time in running]
        for index, stamp in zip(map(_INDEX, known), stamps, strict=True):
            at[index] = stamp
        if len(known) == len(own):
            continue
        guessed = [event for event in own if event.time is None]
        places = _between(map(_LINE, guessed), *_with_onset([*map(_LINE, known)], stamps, onset))
        for index, stamp in zip(map(_INDEX, guessed), places, strict=True):
            at[index] = stamp
        if any(event.elapsed_ms is not None for event in guessed):
            for event, place in _by_bar(own, at, onset):
                at[event.index] = place
    return at


def _with_onset(
    lines: list[float], stamps: list[int], onset: int | None
) -> tuple[list[float], list[int]]:
    """Nothing new is printed while a job stands still: what has no time came before the onset."""
    after = bisect_right(stamps, onset) if onset is not None else 0
    if onset is None or after in (0, len(stamps)):
        return lines, stamps
    return (
        [*lines[:after], lines[after] - 0.5, *lines[after:]],
        [*stamps[:after], onset, *stamps[after:]],
    )


def _between(
    guessed: Iterable[int], lines: Sequence[float], stamps: Sequence[int]
) -> Iterator[int]:
    """When each line was printed, if its source went on evenly between those with a time."""
    end = len(lines)
    for line in guessed:
        after = bisect_right(lines, line)
        before = after - 1 if after else 0
        stamp, known = stamps[before], lines[before]
        if 0 < after < end and known != line:
            pace = (stamps[after] - stamp) / (lines[after] - known)
            stamp = int(pace * (line - known) + stamp)
        yield stamp


def _by_bar(
    own: Sequence[Event], at: Sequence[int | None], onset: int | None
) -> Iterator[tuple[Event, int]]:
    """A progress bar tells how long it has run, and so where its lines without a time belong.

    Its first line stands where it was guessed, or so much earlier that the last one comes no later
    than the next time in the source, or the onset.
    """
    bars: dict[str | None, list[tuple[Event, int, int | None]]] = defaultdict(list)
    later: int | None = None
    for event in reversed(own):
        if event.time is not None:
            later = event.time // _MILLISECOND
        elif event.kind == "progress" and event.elapsed_ms is not None:
            bars[event.signature].append((event, event.elapsed_ms, later))
    for found in bars.values():
        first, ran_before, _ = found[-1]
        begin = at[first.index] or 0
        guesses = []
        late = 0
        for event, ran, stamp in found:
            guess = begin + max(0, ran - ran_before)
            guesses.append((event, guess))
            limits = [stamp] if stamp is not None else []
            limits += [onset] if onset is not None and begin <= onset else []
            late = max(late, guess - min(limits, default=guess))
        yield from ((event, guess - late) for event, guess in guesses)
