"""When the trouble began.

A watchdog line at T that "ran for D ms" puts the onset at T − D. What explains a hang was there at
its onset, not at the crash at its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from diagnose.stories.silence import Silence
from diagnose.timeline.event import Event, Timeline

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Start:
    """The onset: its time (ns, None if unknown), the index of the first sign, and why."""

    time: int | None
    row: int | None
    why: str


def find_onset(timeline: Timeline, first_failure: Event | None) -> Start:
    """Back-date the first wait, or take the first failure's own time."""
    waits = [(w, w.elapsed_ms) for w in timeline.telling("timeout") if w.elapsed_ms is not None]
    dated = [(w.time - ms * _MS, w, ms) for w, ms in waits if w.time is not None]
    if dated:
        begun, wait, elapsed = min(dated, key=itemgetter(0))
        failed = first_failure.time if first_failure is not None else None
        if first_failure is not None and failed is not None and failed < begun:
            return Start(failed, first_failure.index, "the first failure, before the wait")
        seconds = elapsed / 1000
        why = f"the first watchdog line, minus the {seconds:,.0f} s it waited"
        return Start(begun, wait.index, why)
    if first_failure is None:
        return _last_work(timeline)
    if first_failure.time is not None:
        return Start(first_failure.time, first_failure.index, "the first failure in the log")
    before = _before(timeline, first_failure)
    near = before or _below(timeline, first_failure)
    time = None if near is None else near.time
    if waits:
        return _of_wait(*waits[0], time, after=before is None)
    if near is None:
        return Start(None, first_failure.index, "the lines have no timestamps")
    which = "the last line with one before it" if before else "the first line with one after it"
    return Start(time, first_failure.index, f"the first failure has no timestamp: {which}")


def _of_wait(wait: Event, elapsed_ms: int, near: int | None, *, after: bool) -> Start:
    """The onset by a watchdog line without a time; `near` is that of a line before or after it."""
    seconds = f"{elapsed_ms / 1000:,.0f} s"
    if near is None:
        why = f"{seconds} before the first watchdog line, which has no timestamp"
    elif after:
        near -= elapsed_ms * _MS
        why = f"the first line with a timestamp after a watchdog's, minus the {seconds} it waited"
    else:
        why = f"the last line with a timestamp before a watchdog's, which waited {seconds}"
    return Start(near, wait.index, why)


def _before(timeline: Timeline, failure: Event) -> Event | None:
    """The last line with a time before a failure without one; by its own author where it has any.

    Tracebacks and watchdogs print no time, what a program logs does: it still worked then.
    """
    timed = [event for event in timeline if event.time is not None]
    above = [e for e in timed if e.source == failure.source and e.line < failure.line]
    own = [event for event in above if event.rank == failure.rank]
    if not above and failure.rank is not None:  # a launcher tells how a rank ended
        above = [e for e in timed if e.rank == failure.rank and e.source != failure.source]
    return max(own or above, key=lambda event: event.index, default=None)


def _below(timeline: Timeline, failure: Event) -> Event | None:
    """The first line with a time below a failure without one: it happened no later."""
    timed = (event for event in timeline if event.time is not None)
    below = (e for e in timed if e.source == failure.source and e.line > failure.line)
    return min(below, key=lambda event: event.line, default=None)


def _last_work(timeline: Timeline) -> Start:
    """The last step with a time, of a job of which only stacks or reports show that it hangs."""
    timed = [event for event in timeline.kind("progress") if event.time is not None]
    last = max(timed, key=lambda event: (event.time or 0, event.index), default=None)
    if last is None:
        return Start(None, None, "no line shows a failure; the log ends in this phase")
    return Start(last.time, None, "no line shows a failure; the last step with a timestamp")


def silent_since(silence: Silence) -> Start:
    """The last line of who fell silent first."""
    last = silence.began
    whose = "the last progress of the job" if silence.lone is None else "its last progress"
    return Start(last.time, last.index, whose + ("" if last.time else ", which has no timestamp"))
