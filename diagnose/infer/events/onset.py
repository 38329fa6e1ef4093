"""When the trouble began.

A watchdog line at T that "ran for D ms" puts the onset at T − D. What explains a hang was there at
its onset, not at the crash at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from diagnose.stories.silence import Silence
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.readings import PENDING

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Start:
    """The onset: its time (ns, None if unknown), the index of the first sign, and why."""

    time: int | None
    row: int | None
    why: str


def find_onset(timeline: Timeline, first_failure: Event | None) -> Start:
    """Back-date the first wait, or take the first failure's own time."""
    waits = [(w, ms) for w in timeline.signalling("timeout") if (ms := _waited_ms(w)) is not None]
    dated = [(w.time - ms * _MS, w, ms) for w, ms in waits if w.time is not None]
    if dated:
        begun, wait, elapsed = min(dated, key=itemgetter(0))
        failed = first_failure.time if first_failure is not None else None
        if first_failure is not None and failed is not None and failed < begun:
            return Start(failed, first_failure.index, "the first failure, before the wait")
        seconds = elapsed / 1000
        why = f"the first {_line_of(wait)}, minus the {seconds:,.0f} s it waited"
        return Start(begun, wait.index, why)
    if first_failure is None:
        return _last_work(timeline)
    if first_failure.time is not None:
        return Start(first_failure.time, first_failure.index, "the first failure in the log")
    before = _before(timeline, first_failure)
    if waits:
        # Whoever waits prints little, and in vain only once the whole job has stopped.
        before = _latest(filter(None, (before, _worked_before(timeline, waits[0][0]))))
    near = before or _below(timeline, first_failure)
    time = None if near is None else near.time
    if waits:
        return _of_wait(*waits[0], time, after=before is None)
    if near is None:
        return Start(None, first_failure.index, "the lines have no timestamps")
    which = "the last line with one before it" if before else "the first line with one after it"
    return Start(time, first_failure.index, f"the first failure has no timestamp: {which}")


def _waited_ms(wait: Event) -> int | None:
    """How long it waited: not less than its timeout, where it does not say how long."""
    return wait.timeout_ms if wait.elapsed_ms is None else wait.elapsed_ms


def _line_of(wait: Event) -> str:
    """What its line is called: only a watchdog says how long it waited."""
    return "timeout" if wait.elapsed_ms is None else "watchdog line"


def _of_wait(wait: Event, elapsed_ms: int, near: int | None, *, after: bool) -> Start:
    """The onset by a watchdog line without a time; `near` is that of a line before or after it."""
    seconds, line = f"{elapsed_ms / 1000:,.0f} s", _line_of(wait)
    if near is None:
        why = f"{seconds} before the first {line}, which has no timestamp"
    elif after:
        near -= elapsed_ms * _MS
        why = f"the first line with a timestamp after a {line}, minus the {seconds} it waited"
    else:
        why = f"the last line with a timestamp before a {line}, which waited {seconds}"
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


def _worked_before(timeline: Timeline, wait: Event) -> Event | None:
    """The last work with a time that anybody did above a wait in its source."""
    works = timeline.kind("progress", "phase")
    above = [e for e in works if e.time is not None and e.source == wait.source]
    return max((e for e in above if e.line < wait.line), key=lambda e: e.line, default=None)


def _below(timeline: Timeline, failure: Event) -> Event | None:
    """The first line with a time below a failure without one: it happened no later."""
    timed = (event for event in timeline if event.time is not None)
    below = (e for e in timed if e.source == failure.source and e.line > failure.line)
    return min(below, key=lambda event: event.line, default=None)


def _last_work(timeline: Timeline) -> Start:
    """The last step with a time, of a job of which only stacks or reports show that it hangs."""
    last = _latest(timeline.kind("progress"))
    if last is None:
        return Start(None, None, "no line shows a failure; the log ends in this phase")
    return Start(last.time, None, "no line shows a failure; the last step with a timestamp")


def _latest(events: Iterable[Event]) -> Event | None:
    """The last of those that have a time."""
    timed = (event for event in events if event.time is not None)
    return max(timed, key=lambda event: (event.time or 0, event.index), default=None)


def before_end(timeline: Timeline, end: Event) -> Start:
    """The last step of a job that was seen to hang before somebody ended it, which is no onset."""
    steps = [event for event in timeline.kind("progress") if event.index < end.index]
    last = _latest(steps)
    if last is not None:
        return Start(last.time, last.index, "the last step before the job was ended")
    row = steps[-1].index if steps else None
    return Start(None, row, "no line before the end of the job has a timestamp")


def last_written(timeline: Timeline, written: Mapping[str, float | None]) -> Start | None:
    """When the last of the logs that hold steps was written, by its file (seconds since 1970).

    Only of files that were copied with their time while the job ran.
    """
    steps = [(written.get(event.source), event) for event in timeline.kind("progress")]
    known = [(at, event.index) for at, event in steps if at is not None]
    if not known:
        return None
    at, row = max(known)
    return Start(int(at * 1e9), row, "when the last log of a rank was written")


def silent_since(silence: Silence) -> Start:
    """The last line of who fell silent first."""
    last = silence.began
    whose = "the last progress of the job" if silence.lone is None else "its last progress"
    return Start(last.time, last.index, whose + ("" if last.time else ", which has no timestamp"))


def pending_since(timeline: Timeline, group: str | None, seq: int | None) -> Start:
    """When the first rank enqueued the operation in which dumps show the others waiting."""
    pending = [(e.time, e) for e in timeline.signalling(PENDING) if e.time is not None]
    same = [(t, e) for t, e in pending if (e.group, e.seq) == (group, seq)]
    if not pending:
        return Start(None, None, "no dump says when an operation began")
    time, event = min(same or pending, key=itemgetter(0))
    why = "when the first rank enqueued the operation that never finished"
    return Start(time, event.index, why)
