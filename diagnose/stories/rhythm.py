"""How regularly an author wrote lines of progress.

Measured is what passes from one line to the next, not from one step to the next: a program that
speaks every hundred steps is silent for ninety-nine of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from diagnose.diagnosis import Progress
from diagnose.text.median import median
from diagnose.text.times import iso
from diagnose.timeline.event import Author, Event, Timeline, author_of

SECOND = 1_000_000_000
# Lines of each author that follow each other; of those before, only samples are kept.
RECENT = 4
_MS = 1_000
# Steps take a little longer or shorter over a long run, which is no pause.
_DRIFT = 0.1
# Steps that take so many times what they took before have become slow: the lengths of batches, or a
# step with a log line of its own, make less of a difference.
_SLOWER = 2.0
# More writers may share a stream than are seen of it.
_ROUGHLY = 2
_LAGGING = 32  # ranks told


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The known lines of one author and one counter, in its order; the last few follow each other.

    `interval_s`: the usual time between two lines, and `pace_s` between two steps; None where the
    lines show none. `pause_s`: the longest time for which it paused before, as far as that is seen.
    `stride`: steps, and `apart` lines of the source, from one line to the next. `earlier_s`: what a
    step took before the last few, on average, if each of these took much longer.
    """

    author: Author
    lines: Sequence[Event]
    interval_s: float | None
    pace_s: float | None
    pause_s: float
    stride: int | None
    apart: int
    earlier_s: float | None = None

    @property
    def last(self) -> Event:
        """Its last line."""
        return self.lines[-1]

    @property
    def last_step(self) -> int | None:
        """The last step that it wrote."""
        return next((one.step for one in reversed(self.lines) if one.step is not None), None)

    @property
    def counter(self) -> str | None:
        """The entry of the catalog that its lines are of."""
        return self.lines[0].signature


def rhythms(timeline: Timeline) -> list[Rhythm]:
    """The rhythm of each author and counter in each source."""
    groups: dict[tuple[Author, str, str | None], list[Event]] = defaultdict(list)
    for event in timeline.kind("progress"):
        groups[author_of(event), event.source, event.signature].append(event)
    markers = len({mark.place for mark in timeline.kind("phase") if mark.phase != "init"})
    return [_rhythm(author, lines, markers) for (author, *_), lines in groups.items()]


def seconds_between(one: Event, other: Event) -> float | None:
    """Seconds from one line to a later one, by their times or by the clock of their bar."""
    if one.time is not None and other.time is not None:
        return (other.time - one.time) / SECOND
    if one.elapsed_ms is not None and other.elapsed_ms is not None:
        return (other.elapsed_ms - one.elapsed_ms) / _MS
    return None


def _rhythm(author: Author, events: Sequence[Event], markers: int) -> Rhythm:
    lines = sorted({event.line: event for event in events}.values(), key=lambda e: e.line)
    recent = list(pairwise(_first_of_each_step(lines)[-RECENT:]))
    if _crowded(lines):
        gaps = list(_gap_of_many(lines))
    else:
        gaps = [gap for one, other in recent if (gap := _gap(one, other)) is not None]
    paces = [pace for one, other in recent if (pace := _pace(one, other)) is not None]
    steps = [
        other.step - one.step
        for one, other in recent
        if one.step is not None and other.step is not None and other.step > one.step
    ]
    return Rhythm(
        author,
        lines,
        interval_s=median(gaps) if gaps else None,
        pace_s=median(paces) if paces else None,
        pause_s=max([*gaps, *_unseen_pause(lines, paces, markers)], default=0.0),
        stride=int(median(steps)) if steps else None,
        apart=int(median([other.line - one.line for one, other in recent])) if recent else 1,
        earlier_s=_before_slower(lines, recent),
    )


def _before_slower(lines: Sequence[Event], recent: Sequence[tuple[Event, Event]]) -> float | None:
    """Seconds a step before the last few lines, if each of these took much longer; else None.

    The mean of a stretch holds its pauses, too: it is too long rather than too short.
    """
    if len(recent) < RECENT - 1 or len({line.fields.get("total") for line in lines}) > 1:
        return None
    paces = [_pace(one, other) for one, other in recent]
    earlier = _pace(lines[0], recent[0][0])
    slowest = [pace for pace in paces if pace is not None]
    if earlier is None or len(slowest) < len(paces) or min(slowest) < _SLOWER * earlier:
        return None
    return earlier


def _first_of_each_step(lines: Sequence[Event]) -> list[Event]:
    """The lines without those that say the same step again: a bar drawn again, or other writers."""
    return [
        line
        for place, line in enumerate(lines)
        if not place or line.step is None or line.step != lines[place - 1].step
    ]


def _crowded(lines: Sequence[Event]) -> bool:
    """Whether so many write as one that all of the last lines are of one step."""
    last = [line.step for line in lines[-RECENT:]]
    return len(lines) > RECENT and None not in last and len(set(last)) == 1


def _gap_of_many(lines: Sequence[Event]) -> Iterator[float]:
    """About the seconds between two lines of one of many, by those from a sample to the end."""
    first, last = lines[0], lines[-1]
    pace, seconds = _pace(first, last), seconds_between(first, last)
    if pace is not None and seconds is not None:
        yield _ROUGHLY * max(pace, RECENT * seconds / (last.line - first.line))


def _gap(one: Event, other: Event) -> float | None:
    """Seconds from one line to the next; of bars by their own clock, which are drawn each step."""
    seconds = seconds_between(one, other)
    if seconds is None or seconds <= 0:
        return None
    steps = (other.step or 0) - (one.step or 0)
    return seconds if one.time is not None or steps <= 0 else seconds / steps


def _unseen_pause(lines: Sequence[Event], paces: Sequence[float], markers: int) -> Iterator[float]:
    """How long it may have paused in the stretch of which no line is kept.

    What the stretch took beyond the time of its steps was spent in pauses; phases that were begun
    share it.
    """
    if len(lines) <= RECENT or not paces:
        return
    first, recent = lines[0], lines[-RECENT]
    took = seconds_between(first, recent)
    if took is None or first.step is None or recent.step is None:
        return
    steps = recent.step - first.step
    yield max(0.0, took * (1 - _DRIFT) - steps * median(paces)) / max(1, markers)


def _pace(one: Event, other: Event) -> float | None:
    """Seconds a step between two lines."""
    seconds, steps = seconds_between(one, other), (other.step or 0) - (one.step or 0)
    return seconds / steps if seconds and seconds > 0 and steps > 0 else None


def progress_of(timeline: Timeline) -> Progress | None:
    """What the lines with a step tell; None without any."""
    found = [one for one in rhythms(timeline) if one.last_step is not None]
    if not found:
        return None
    last = max(found, key=lambda one: one.last.index)
    alike = [one for one in found if one.counter == last.counter]
    steps = {rank: one.last_step for one in alike if (rank := one.author.rank) is not None}
    ahead = max((step for step in steps.values() if step is not None), default=last.last_step)
    paces = [one.pace_s for one in alike if one.pace_s is not None]
    intervals = [one.interval_s for one in alike if one.interval_s is not None]
    earlier = [one.earlier_s for one in alike if one.earlier_s is not None]
    times = [one.last.time for one in alike if one.last.time is not None]
    return Progress(
        last_step=ahead,
        last_step_time=iso(max(times)) if times else None,
        seconds_a_step=round(median(paces), 3) if paces else None,
        earlier_seconds_a_step=(
            round(median(earlier), 3) if 2 * len(earlier) > len(paces) else None
        ),
        seconds_a_line=round(median(intervals), 3) if intervals else None,
        silent_s=_silence(timeline, found),
        lagging=sorted(rank for rank, step in steps.items() if (step or 0) < (ahead or 0))[
            :_LAGGING
        ],
    )


def _silence(timeline: Timeline, found: Sequence[Rhythm]) -> float | None:
    """Seconds from the last step to the last line of the job."""
    steps = [one.last.time for one in found if one.last.time is not None]
    ends = [time for time in timeline.column("time") if time is not None]
    return round((max(ends) - max(steps)) / SECOND, 3) if steps else None
