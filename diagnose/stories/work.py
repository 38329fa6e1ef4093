"""How far an author got: by the numbers that its lines of progress count.

Of a flood of such lines only some are kept, so their numbers count and not the lines. Each counter
is looked at by itself: two bars that are closed after an error show different numbers, and neither
has moved.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

from diagnose.timeline.event import Event, Fields

# States that show work where nothing is known of the state before, or the author ended later.
FURTHER = 3
LONG = 10  # steps after which others would have missed one who died
_TEXTS = 2  # lines without a number that differ
_BAR_STATES = 2  # a bar is drawn once more as its process exits
_APART = 2  # steps: where every step ends in a collective, no two ranks are so far from each other
_AT_ONCE_MS = 60_000  # by the clocks of two bars that are looked at at one time
_AFTER = 200  # states that are looked at after a line; the last one is always
_NUMBER = re.compile(r"\d+")

Key = tuple[str | None, ...]


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
        self._counters: dict[Key, _Counted] = defaultdict(_Counted)
        for work in self.events:
            if work.step is not None:
                self._counters[counter(work)].add(work, work.step)

    def __bool__(self) -> bool:
        return bool(self.events)

    def after(self, index: int, limit: int | None = None) -> Sequence[Event]:
        """Those behind an index, up to a limit."""
        begin = bisect_right(self.events, index, key=attrgetter("index"))
        end = len(self.events)
        if limit is not None:
            end = bisect_right(self.events, limit, key=attrgetter("index"))
        return self.events[begin:end]

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
        return len({w.text for w in self.after(index, limit) if w.step is None}) >= _TEXTS

    def counted(self, index: int) -> int:
        """How many lines of steps the counter that moved most printed behind an index.

        Not all of them are kept, so they are told by the numbers, in units of the interval from
        one to the next. Of lines that count nothing it is the number of those that differ.
        """
        found = len({work.text for work in self.after(index) if work.step is None})
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


def two_steps(works: Iterable[Event]) -> tuple[Event, Event] | None:
    """Two states of a bar at one time whose steps are too far apart to be of one process.

    A bar that steps back while its own clock does not belongs to another process.
    """
    bars = (work for work in works if work.step is not None and work.elapsed_ms is not None)
    pairs = pairwise(bar for bar in bars if "total" in bar.fields)
    return next((pair for pair in pairs if _of_two(*pair)), None)


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
