"""Where the work of a job ends, who ended it, and how long after its last sign of life that was."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from diagnose.parse.prefix import peel
from diagnose.parse.times_in import duration_in, time_in
from diagnose.stories.rhythm import SECOND, Rhythm
from diagnose.timeline.event import Author, Event, Timeline, author_of

# What tells of an end, besides what follows one, and of a silence while it lasts.
_ENDS, _WATCHES, _TOOK = ("teardown", "stopping", "exit"), "silent", "duration"
# Lines that nobody knows, from the last work to the end, may be work in other words.
_UNKNOWN_LINES = 5
# What stands so shortly above an ending and is not of those who work announces it.
_PRELUDE_S = 60
_HOUR_S, _HOURS = 3600, 14
_MS = 1000


@dataclass
class End:
    """The end of a job by what `timeline` says of it.

    `last` is its last sign of life, `first` the first line of who ended it, None where nobody did;
    `watched` are lines that others print while it is silent, `durations` those of its end that may
    say how long it took. `failed`: something else went wrong in between.
    """

    timeline: Timeline
    working: Sequence[Rhythm]
    last: Event
    first: Event | None
    ending: Sequence[Event]
    watched: Sequence[Event]
    durations: Sequence[Event]
    failed: bool

    def silence(self, usual: float | None) -> tuple[float | None, bool]:
        """Seconds from the last sign of life to the end, and whether they are only reckoned."""
        if self.last.signal == "finished" or self._works_unseen():
            return None, False
        stated = [seconds for event in self.watched if (seconds := _stated(event)) is not None]
        until = self._time
        if until is not None and self.last.time is not None:
            seconds = (until - self.last.time) / SECOND
            return max([*stated, 0.0 if self._other_zone(seconds, usual) else seconds]), False
        if stated:
            return max(stated), False
        return self._reckoned(), True

    @cached_property
    def _time(self) -> int | None:
        """When it was ended, or seen to be silent for the last time."""
        if self.first is not None:
            return next((time for one in self.ending if (time := _when(one)) is not None), None)
        return max((one.time for one in self.watched if one.time is not None), default=None)

    def _works_unseen(self) -> bool:
        """Whether too many lines that nobody knows stand between the last work and the end."""
        end = self.first or (self.watched[-1] if self.watched else None)
        if end is None:
            return True
        above = [
            line
            for line in self.timeline
            if line.source == end.source and line.line < end.line and line.kind != "edge"
        ]
        known = max((e.line for e in above if e.role in ("progress", "phase")), default=None)
        if known is None:
            return False
        watched = {e.line for e in self.watched if e.source == end.source and e.line > known}
        apart = max((one.apart for one in self.working if one.last.source == end.source), default=0)
        return end.line - known - 1 - len(watched) > _UNKNOWN_LINES + apart

    def _other_zone(self, seconds: float, usual: float | None) -> bool:
        """Whether the clock of a scheduler that ended it may only be in another time zone."""
        hours, rest = divmod(seconds + (usual or 0.0), _HOUR_S)
        of_another = any(one.time is None and _when(one) == self._time for one in self.ending)
        return of_another and 1 <= hours <= _HOURS and rest <= 2 * (usual or 0.0)

    def _reckoned(self) -> float | None:
        """How long it lasted by how long the run took, and how far into it the last work was."""
        if self.failed:
            return None  # nobody knows when
        first = min(one.lines[0].index for one in self.working)
        above = (event for event in self.timeline if event.index < first)
        begun = next((time for event in above if (time := _when(event)) is not None), None)
        took = next((s for one in self.durations if (s := _stated(one)) is not None), None)
        if took is None and begun is not None and self._time is not None:
            took = (self._time - begun) / SECOND
        if took is None:
            return None
        if self.last.time is not None:
            return took - (self.last.time - begun) / SECOND if begun is not None else None
        return None if (shown := self._clock()) is None else took - shown / _MS

    def _clock(self) -> int | None:
        """How far into the run the last work was, by a bar: its own, or one drawn just above it."""
        last = self.last
        bars = [
            one.last
            for one in self.working
            if one.last.source == last.source and last.line - one.last.line <= one.apart
        ]
        known = [bar.elapsed_ms for bar in (last, *bars) if bar.elapsed_ms is not None]
        return known[0] if known else None


def end_of(timeline: Timeline, endings: Collection[str], working: Sequence[Rhythm]) -> End:
    """The end of a job whose lines of progress have these rhythms."""
    last = max((one.last for one in working), key=lambda line: line.index)
    lines = {one.last.source: 0 for one in working}
    for one in working:
        lines[one.last.source] = max(lines[one.last.source], one.last.line)
    later = [event for event in timeline if _later(event, last, lines)]
    ending = [event for event in later if _ends(event, endings)]
    watched = [event for event in later if event.signal == _WATCHES]
    first = ending[0] if ending else None
    if first is not None:
        watched = [event for event in watched if event.index < first.index]
    strange = {event.place for event in (*ending, *watched)}
    authors = {one.author for one in working}
    life = [
        event
        for event in later
        if event.time is not None and event.source in lines and event.place not in strange
        if first is None or _before(event, first)
        if _alive(event, authors, first)
    ]
    stated = [
        one for one in later if one.signal == _TOOK or (one.role == "cause" and one in ending)
    ]
    worked = {line.place for one in working for line in one.lines}
    durations = [one for one in stated if one.place not in worked]
    last = max([last, *life], key=_order)
    failed = any(e.role in ("cause", "effect") and not _ends(e, endings) for e in later)
    return End(timeline, working, last, first, ending, watched, durations, failed)


def _order(event: Event) -> tuple[int, int]:
    return (event.time if event.time is not None else -1, event.index)


def _later(event: Event, last: Event, lines: dict[str, int]) -> bool:
    """Whether it comes after the last work: below it, by its time, or, without one, elsewhere."""
    if event.source in lines:
        return event.line >= lines[event.source] and event.role != "progress"
    return event.time is None or last.time is None or event.index > last.index


def _before(event: Event, first: Event) -> bool:
    return event.line < first.line if event.source == first.source else event.index < first.index


def _ends(event: Event, endings: Collection[str]) -> bool:
    """Whether it tells of an end: somebody ends the job, or what follows that."""
    if event.role == "cause":
        return event.cause in endings
    return event.role == "aftermath" or event.kind == "exit" or event.signal in _ENDS


def _alive(event: Event, authors: Collection[Author], first: Event | None) -> bool:
    """Whether a line after the last step shows that somebody still worked."""
    if event.kind != "edge" or author_of(event).kind != "source":
        return event.kind != "edge" or author_of(event) in authors
    time = _when(first) if first is not None else None
    return time is None or event.time is None or (time - event.time) / SECOND > _PRELUDE_S


def _when(event: Event) -> int | None:
    """When a line was written, by what stands before it or in it."""
    return event.time if event.time is not None else time_in(event.text)


def _stated(event: Event) -> float | None:
    """Seconds that a line says something took."""
    if event.elapsed_ms is not None:
        return event.elapsed_ms / _MS
    return duration_in(peel(event.text).message)  # the time of the line is no duration
