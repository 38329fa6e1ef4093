"""Whether somebody worked on: by the numbers that lines of progress count.

Of a flood of such lines only some are kept, so their numbers count and not the lines. Each counter
is looked at by itself: two bars that are closed after an error show different numbers, and neither
has moved.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from diagnose.timeline.event import Event

# Steps that a stream whose writers are not told apart must count on: the others of a job in which
# one died are stopped by its next collective.
FURTHER = 3
# Others that went on for so many steps make a death doubtful.
LONG = 10
_LONG_PAST = 25  # lines below an error in which it would have stopped the others
_SERVED_LINES = 150  # below the error that a server survived
# A bar that is drawn over and over is one line, and the last state of it is kept. Whoever dies of
# an error leaves one more state below it, with the steps since the one before: few of them, soon.
_DRAWN_STEPS, _DRAWN_MS, _NEAR_LINES = 50, 120_000, 200
_NUMBER = re.compile(r"\d+")

Key = tuple[str | None, ...]


def steps_of(works: Iterable[Event]) -> Mapping[Key, list[int]]:
    """The numbers of each counter, in order."""
    found: dict[Key, list[int]] = defaultdict(list)
    for work in works:
        if work.step is not None:
            found[_counter(work)].append(work.step)
    return found


def _counter(work: Event) -> Key:
    """What a number counts: by the entry, and by the name and the end of a bar."""
    named = _NUMBER.sub("0", work.fields.get("what", ""))
    return work.signature, named, work.fields.get("total")


def went_on(before: Sequence[Event], after: Sequence[Event], *, ended: bool) -> bool:
    """Whether one author counted on, or (if it did not end) printed more than it had before."""
    told = steps_of(after)
    if any(len(set(steps)) >= FURTHER and steps[-1] > steps[0] for steps in told.values()):
        return True
    if ended:
        return False
    known = steps_of(before)
    if any(key in known and steps[-1] > max(known[key]) for key, steps in told.items()):
        return True
    return len({work.text for work in after}) >= 2


def all_counted_on(before: Sequence[Event], after: Sequence[Event]) -> bool:
    """Whether all writers of a stream counted on, as far as it counts."""
    known = steps_of(before)
    for key, steps in steps_of(after).items():
        # Each step is printed by so many writers; a stream of fewer has lost one.
        writers = _writers(known.get(key, ()))
        whole = [step for step, count in Counter(steps).items() if count >= writers]
        counted = whole[-1] - whole[0] if whole else 0
        if counted >= FURTHER or (counted > 0 and len(whole) >= FURTHER):
            return True
    return False


def counted_for_long(after: Sequence[Event], failure: Event) -> bool:
    """Whether these count far, or on where its line is long past (few of many are kept)."""
    counted = max((steps[-1] - steps[0] for steps in steps_of(after).values()), default=0)
    apart = min((w.line - failure.line for w in after if w.source == failure.source), default=0)
    return counted >= LONG or (counted >= FURTHER and apart >= _LONG_PAST)


def serves_on(works: Iterable[Event], failure: Event) -> bool:
    """Whether a server is at work far below a line that ends one at once if it ends it at all."""
    if failure.kind == "exit" or failure.strength == "decisive":
        return False
    served = (w.line for w in works if w.phase == "inference" and w.source == failure.source)
    return max(served, default=0) > failure.line + _SERVED_LINES


def bar_moved(before: Sequence[Event], after: Sequence[Event], line: int) -> bool:
    """Whether a bar shows much more work below a line than it did right above it."""
    known = {_counter(work): work for work in before if work.elapsed_ms is not None}
    for work in after:
        last = known.get(_counter(work))
        if last is None or None in (last.step, work.step, work.elapsed_ms):
            continue
        steps, passed = (work.step or 0) - (last.step or 0), _later(work, last)
        near = last.source == work.source and line - last.line <= _NEAR_LINES
        if near and steps >= _DRAWN_STEPS and passed >= _DRAWN_MS:
            return True
    return False


def _later(work: Event, last: Event) -> int:
    """By how much the time differs that two states of a bar show, in milliseconds."""
    return (work.elapsed_ms or 0) - (last.elapsed_ms or 0)


def _writers(steps: Iterable[int]) -> int:
    """How many lines tell of one step, in most cases."""
    counts = Counter(Counter(steps).values())
    return max(counts, key=lambda size: (counts[size], size), default=1)
