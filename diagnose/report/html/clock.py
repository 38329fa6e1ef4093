"""Times on the page: when each event was, and how a reader sees that."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

from diagnose.cost import moment as parse
from diagnose.job.model import Job
from diagnose.text import times
from diagnose.timeline.event import Event, Timeline, taken

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_EPOCH = datetime(1970, 1, 1)

# A datetime or an ISO text of a diagnosis, or nanoseconds since 1970 of an event.
Time = datetime | str | int | None


def milliseconds(stamp: datetime) -> int:
    """Milliseconds since 1970 in the job's clock."""
    return (stamp - _EPOCH) // timedelta(milliseconds=1)


def date(stamp: datetime) -> str:
    """`2 June 2026`."""
    return f"{stamp.day} {MONTHS[stamp.month - 1]} {stamp.year}"


def time_of_day(stamp: datetime) -> str:
    """`08:15:11`, with milliseconds where there are any: `08:15:11.184`."""
    text = f"{stamp:%H:%M:%S}"
    thousandths = stamp.microsecond // 1000
    return f"{text}.{thousandths:03d}" if thousandths else text


def moment(time: Time, beside: Time = None) -> str:
    """`2 June 2026, 08:15:11`; empty where there is no time.

    Without the date when it is that of `beside`, which stands next to it.
    """
    stamp, other = _stamp(time), _stamp(beside)
    if stamp is None:
        return ""
    if other is not None and other.date() == stamp.date():
        return time_of_day(stamp)
    return f"{date(stamp)}, {time_of_day(stamp)}"


def _stamp(time: Time) -> datetime | None:
    if isinstance(time, int):
        return times.moment(time)
    return parse(time) if isinstance(time, str) else time


def hours(value: float) -> str:
    """GPU-hours for people: `less than 0.1`, `1.5`, `38`, `12,400`."""
    if value < 0.1:
        return "less than 0.1"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


# --- where events stand on the axis of time -------------------------------------------------------

_COUNTED = ("cause", "effect", "progress", "phase")
_MILLISECOND = 1_000_000  # in the unit of Event.time


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a job, in `at` the place of each, by its index.

    A place is milliseconds since 1970 in the job's clock or, in a job whose logs carry no time at
    all (`clocked` is False), the number of the line. An event without a time of its own stands
    between its neighbours in the source; those of a source without any time have no place (None).
    `last_attempt` is what was diagnosed; `begin` and `end` are its first and last place, None if
    nothing has one. `unplaced` names the sources without a place, `spans` has the first and the
    last time of each source with any. `times`, `ranks` and `sources` are those of all events, by
    their indexes: to ask each event again would take longer than all that is made of them.
    """

    timeline: Timeline
    last_attempt: Timeline
    times: Sequence[int | None]
    ranks: Sequence[int | None]
    sources: Sequence[str]
    at: Sequence[int | None]
    spans: Mapping[str, tuple[int, int]]
    clocked: bool
    begin: int | None
    end: int | None
    unplaced: list[str]


def prepare(job: Job, onset: str | None) -> Events:
    """Give every event of a job its place.

    `onset` is that of the diagnosis if the job then stood still: it bounds guesses.
    """
    timeline = job.events
    names = ("time", "rank", "source", "line")
    times, ranks, sources, lines = (timeline.column(name) for name in names)
    clocked = times.count(None) < len(times)
    stamp = parse(onset)
    limit = None if stamp is None else milliseconds(stamp)
    at: Sequence[int | None] = lines
    spans: dict[str, tuple[int, int]] = {}
    if clocked:
        at, spans = _places(timeline, times, sources, lines, limit)
    last = _last_attempt(timeline)
    there = at if last is timeline else taken(at, last.column("index"))
    placed = [place for place in there if place is not None]
    lost: set[str] = set()
    if None in at:
        lost = {source for source, place in zip(sources, at, strict=True) if place is None}
    return Events(
        timeline,
        last,
        times,
        ranks,
        sources,
        at,
        spans,
        clocked,
        begin=min(placed, default=None),
        end=max(placed, default=None),
        unplaced=sorted(lost),
    )


def _last_attempt(timeline: Timeline) -> Timeline:
    """Inference diagnoses the last attempt that left anything but facts; so do the pictures."""
    attempts = [e.attempt for e in timeline.role(*_COUNTED) if e.attempt is not None]
    if not attempts:
        return timeline
    return timeline.of_attempt(max(attempts))


def _places(
    timeline: Timeline,
    times: Sequence[int | None],
    sources: Sequence[str],
    lines: Sequence[int],
    onset: int | None,
) -> tuple[list[int | None], dict[str, tuple[int, int]]]:
    """Milliseconds of each event: its time, made to run forward inside a source, or a guess.

    Also the first and the last time of each source.
    """
    indexes: dict[str, list[int]] = defaultdict(list)
    for index, source in enumerate(sources):  # of each source in the order of its lines
        indexes[source].append(index)
    bars = {event.source for event in timeline.kind("progress") if _of_bar(event)}
    at: list[int | None] = [None] * len(timeline)
    spans: dict[str, tuple[int, int]] = {}
    for source, own in indexes.items():
        known = [index for index in own if times[index] is not None]
        if not known:
            continue
        printed = [time for time in map(times.__getitem__, known) if time is not None]
        spans[source] = min(printed), max(printed)
        stamps = [time // _MILLISECOND for time in accumulate(printed, max)]
        for index, stamp in zip(known, stamps, strict=True):
            at[index] = stamp
        if len(known) == len(own):
            continue
        # Most lines without a time come before all that have one.
        before = bisect_left(own, lines[known[0]], key=lines.__getitem__)
        for index in own[:before]:
            at[index] = stamps[0]
        guessed = [index for index in own[before:] if times[index] is None]
        if guessed:
            between = _with_onset([*map(lines.__getitem__, known)], stamps, onset)
            places = _between(map(lines.__getitem__, guessed), *between)
            for index, stamp in zip(guessed, places, strict=True):
                at[index] = stamp
        if source in bars:
            events = [*map(timeline.events.__getitem__, own)]
            for event, place in _by_bar(events, at, onset):
                at[event.index] = place
    return at, spans


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


def _of_bar(event: Event) -> bool:
    return event.elapsed_ms is not None and event.time is None


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
