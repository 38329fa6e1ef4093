"""How far an author got, by the numbers that its lines of progress count, and how regularly.

Of a flood of such lines only some are kept, so their numbers count and not the lines. Each counter
is looked at by itself: two bars that are closed after an error show different numbers, and neither
has moved. A rhythm is what passes from one line to the next, not from one step to the next: a
program that speaks every hundred steps is silent for ninety-nine of them.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import attrgetter
from typing import NamedTuple

from diagnose.diagnosis import Progress
from diagnose.text.times import iso
from diagnose.timeline.event import Author, Event, Fields, Timeline, author_of

# States that show work where nothing is known of the state before, or the author ended later.
FURTHER = 3
LONG = 10  # steps after which others would have missed one who died
_TEXTS = 2  # lines without a number that differ
_BAR_STATES = 2  # a bar is drawn once more as its process exits
_APART = 2  # steps: where every step ends in a collective, no two ranks are so far from each other
_AT_ONCE_MS = 60_000  # by the clocks of two bars that are looked at at one time
_AFTER = 200  # states that are looked at after a line; the last one is always
_NUMBER = re.compile(r"\d+")
_INDEX = attrgetter("index")

Key = tuple[str | None, ...]
SECOND = 1_000_000_000
# Lines of each author that follow each other; of those before, only samples are kept.
RECENT = 4
_MS = 1_000
# Steps take a little longer or shorter over a long run, which is no pause.
_DRIFT = 0.1
# More writers may share a stream than are seen of it.
_ROUGHLY = 2
_LAGGING = 32  # ranks told


@dataclass(slots=True)
class _Counted:
    """The states of one counter, in order."""

    at: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    bar: bool = False

    def add(self, work: Event, step: int) -> None:
        """Take the next state."""
        self.at.append(work.index)
        self.steps.append(step)
        self.bar |= work.elapsed_ms is not None

    def between(self, index: int, limit: int) -> tuple[int | None, Sequence[int]]:
        """The last number up to an index, and the numbers from there to a limit."""
        begin, end = bisect_right(self.at, index), bisect_right(self.at, limit)
        steps = self.steps[begin : min(end, begin + _AFTER)]
        if end > begin + _AFTER:
            steps.append(self.steps[end - 1])
        return (self.steps[begin - 1] if begin else None), steps


class Works:
    """The progress of one author, in order."""

    def __init__(self, works: Iterable[Event]) -> None:
        self.events = [*works]
        self._wordy: list[Event] = []  # those that count nothing
        self._counters: dict[Key, _Counted] = defaultdict(_Counted)
        for work in self.events:
            if work.step is not None:
                self._counters[counter(work)].add(work, work.step)
            else:
                self._wordy.append(work)

    def __bool__(self) -> bool:
        return bool(self.events)

    def after(self, index: int) -> Sequence[Event]:
        """Those behind an index."""
        return _between(self.events, index)

    def went_beyond(self, index: int, limit: int, *, ended: bool) -> bool:
        """Whether the author worked between two places beyond what it had done before.

        `ended`: it ended at the limit. What it says between an error and its end may have been
        done, or been held in a buffer, before the error; then it takes several further states.
        """
        for one in self._counters.values():
            before, steps = one.between(index, limit)
            if len({*steps}) >= FURTHER and steps[-1] > steps[0]:
                return True
            further = {step for step in steps if before is not None and step > before}
            if not ended and len(further) >= (_BAR_STATES if one.bar else 1):
                return True
        if ended:
            return False
        return len({work.text for work in _between(self._wordy, index, limit)}) >= _TEXTS

    def counted(self, index: int) -> int:
        """How many lines of steps the counter that moved most printed behind an index.

        Not all of them are kept, so they are told by the numbers, in units of the interval from
        one to the next. Of lines that count nothing it is the number of those that differ.
        """
        found = len({work.text for work in _between(self._wordy, index)})
        for one in self._counters.values():
            before, steps = one.between(index, one.at[-1])
            if steps:
                interval = _interval(steps if before is None else [before, *steps])
                start = steps[0] - interval if before is None else before
                found = max(found, (max(steps) - start) // interval)
        return found

    def all_went_beyond(self, index: int, *, several: bool = False) -> bool:
        """Whether each of those who write these lines worked on behind an index.

        Each step is printed by so many writers; a stream of fewer has lost one. `several`: it has
        to be known that more than one of them writes.
        """
        for one in self._counters.values():
            begin = bisect_right(one.at, index)
            writers = _writers(one.steps[:begin])
            if several and writers < 2:
                continue
            counts = Counter(one.steps[begin:])
            whole = [step for step in dict.fromkeys(one.steps[begin:]) if counts[step] >= writers]
            counted = whole[-1] - whole[0] if whole else 0
            if counted >= FURTHER or (counted > 0 and len(whole) >= FURTHER):
                return True
        return False


def _between(works: list[Event], index: int, limit: int | None = None) -> list[Event]:
    """Those behind an index, up to a limit."""
    begin, end = bisect_right(works, index, key=_INDEX), len(works)
    if limit is not None:
        end = bisect_right(works, limit, key=_INDEX)
    return works[begin:end]


def counter(work: Event) -> Key:
    """What a number counts: by the entry, and by the name and the end of a bar."""
    named = _NUMBER.sub("0", work.fields.get("what", ""))
    return work.signature, named, work.fields.get("total")


def moved(works: Iterable[Event]) -> Iterator[Event]:
    """Progress without bars that are drawn once more with the number that they had."""
    last: dict[object, int | None] = {}
    for work in works:
        of = (work.source, work.rank, work.host, work.pid, counter(work))
        if work.elapsed_ms is None or work.step is None or last.get(of) != work.step:
            yield work
        last[of] = work.step


def two_steps(
    works: Iterable[Event], author: Callable[[Event], Author]
) -> tuple[Event, Event] | None:
    """The first two states of an author's bar at one time whose steps are not of one process.

    A bar that steps back while its own clock does not belongs to another process.
    """
    bars: dict[Author, list[Event]] = defaultdict(list)
    for work in works:
        if work.elapsed_ms is not None and work.step is not None and "total" in work.fields:
            bars[author(work)].append(work)
    apart = (pair for own in bars.values() for pair in pairwise(own) if _of_two(*pair))
    return min(apart, key=lambda pair: pair[0].index, default=None)


def _of_two(one: Event, other: Event) -> bool:
    if one.source != other.source or one.fields["total"] != other.fields["total"]:
        return False
    later = (other.elapsed_ms or 0) - (one.elapsed_ms or 0)
    return 0 <= later <= _AT_ONCE_MS and (one.step or 0) - (other.step or 0) >= _APART


def trains(work: Event) -> bool:
    """Whether it is progress of a training."""
    return work.kind == "progress" and work.phase in (None, "training")


def finished_bar(mark: Event) -> bool:
    """Whether it is a bar of set-up work that reached 100 %: its phase is over.

    Evaluation is not: what it found is gathered from all ranks after its last batch.
    """
    done = mark.elapsed_ms is not None and percent(mark.fields) >= 100
    return done and mark.phase not in ("training", "evaluation")


def percent(fields: Fields) -> float:
    """How much of a bar is done, by its counts where it has them: 497 of 499 is shown as 100 %."""
    try:
        if "step" in fields and "total" in fields:
            step, total = float(fields["step"]), float(fields["total"])
            return 100.0 * step / total if total else 0.0
        return float(fields["percent"])
    except (KeyError, ValueError):
        return 0.0


def _interval(steps: Iterable[int]) -> int:
    """How far one printed number is from the next, by the closest two."""
    numbers = sorted({*steps})
    return min((later - step for step, later in pairwise(numbers)), default=1)


def _writers(steps: Iterable[int]) -> int:
    """How many lines tell of one step, in most cases."""
    counts = Counter(Counter(steps).values())
    return max(counts, key=lambda size: (counts[size], size), default=1)


class Rhythm(NamedTuple):
    """The known lines of one author and one counter, in its order; the last few follow each other.

    `interval_s`: the usual time between two lines, and `pace_s` between two steps; None where the
    lines show none. `pause_s`: the longest time for which it paused before, as far as that is seen.
    `stride`: steps, and `apart` lines of the source, from one line to the next.
    """

    author: Author
    lines: Sequence[Event]
    interval_s: float | None
    pace_s: float | None
    pause_s: float
    stride: int | None
    apart: int

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


def lines_lost(found: Iterable[Rhythm], last: Event, timeline: Timeline) -> float:
    """How many lines in a row the log lacks of one author, among the last ones of each.

    Any number where a logger left out lines below the `last` one of who seems to write no more, and
    another author wrote few below these.
    """
    lost = 0
    left_out = [one for one in timeline.signalling("lost_lines") if one.source == last.source]
    end = max((one.line for one in left_out), default=0)
    for one in found:
        other = last.line < end and one.last is not last
        if other and _lines_below(one, last.source, end) < FURTHER:
            return math.inf
        steps = [line.step for line in one.lines[-RECENT:] if line.step is not None]
        apart = [later - step for step, later in pairwise(steps) if later > step]
        lost = max([lost, *(far // (one.stride or far) - 1 for far in apart)])
    return lost


def _lines_below(one: Rhythm, source: str, end: int) -> int:
    return sum(line.source == source and line.line > end for line in one.lines)


def seconds_between(one: Event, other: Event) -> float | None:
    """Seconds from one line to a later one, by their times or by the clock of their bar."""
    if one.time is not None and other.time is not None:
        return (other.time - one.time) / SECOND
    if one.elapsed_ms is not None and other.elapsed_ms is not None:
        return (other.elapsed_ms - one.elapsed_ms) / _MS
    return None


def _rhythm(author: Author, events: Sequence[Event], markers: int) -> Rhythm:
    lines = sorted({event.line: event for event in events}.values(), key=lambda e: e.line)
    recent = list(pairwise(_last_steps(lines)))
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
    )


def _last_steps(lines: Sequence[Event]) -> list[Event]:
    """The last lines but those of the step above: a bar drawn again, or other writers."""
    firsts = (
        lines[place]
        for place in reversed(range(len(lines)))
        if not place or lines[place].step is None or lines[place].step != lines[place - 1].step
    )
    return [*islice(firsts, RECENT)][::-1]


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
    found = [one for one in timeline.once(rhythms) if one.last_step is not None]
    if not found:
        return None
    last = max(found, key=lambda one: one.last.index)
    alike = [one for one in found if one.counter == last.counter]
    steps = {rank: one.last_step for one in alike if (rank := one.author.rank) is not None}
    ahead = max((step for step in steps.values() if step is not None), default=last.last_step)
    paces = [one.pace_s for one in alike if one.pace_s is not None]
    intervals = [one.interval_s for one in alike if one.interval_s is not None]
    times = [one.last.time for one in alike if one.last.time is not None]
    return Progress(
        last_step=ahead,
        last_step_time=iso(max(times)) if times else None,
        seconds_a_step=round(median(paces), 3) if paces else None,
        seconds_a_line=round(median(intervals), 3) if intervals else None,
        silent_s=_silent_s(timeline, found),
        lagging=sorted(rank for rank, step in steps.items() if (step or 0) < (ahead or 0))[
            :_LAGGING
        ],
    )


def _silent_s(timeline: Timeline, found: Sequence[Rhythm]) -> float | None:
    """Seconds from the last step to the last line of the job."""
    steps = [one.last.time for one in found if one.last.time is not None]
    ends = [time for time in timeline.column("time") if time is not None]
    return round((max(ends) - max(steps)) / SECOND, 3) if steps else None


def median(numbers: Iterable[float]) -> float:
    """The median, of an even count the mean of the middle two. Raises ValueError for none."""
    ordered = sorted(numbers)
    if not ordered:
        raise ValueError("no numbers")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
