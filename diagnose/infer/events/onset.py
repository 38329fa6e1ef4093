"""When the trouble began, and what the job was doing then.

A watchdog line at T that "ran for D ms" puts the onset at T − D. What explains a hang was there at
its onset, not at the crash at its end: the last marker, bar or stack frame before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from diagnose.stories.silence import Silence
from diagnose.stories.work import finished_bar, percent
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.readings import PENDING

_MS = 1_000_000
# A bar whose own clock says about the wait's length was moving while the others waited.
_NEAR_TIMEOUT = 0.5
_DOING = {
    "preprocessing": "preparing data",
    "model_load": "loading the model",
    "checkpoint": "saving a checkpoint",
    "evaluation": "evaluating",
    "inference": "generating",
}
BUSY = tuple(_DOING)  # work that one rank does while others wait
# What the main rank does for all others; models are loaded by every rank.
MAIN_ONLY = ("preprocessing", "checkpoint", "evaluation")


class Start(NamedTuple):
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
        works = timeline.kind("progress", "phase")
        ends = "; the log ends in this phase" if works else ", and none a step of the job"
        return Start(None, None, f"no line shows a failure{ends}")
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


class Activity(NamedTuple):
    """What was going on at the onset: a phase, the event that shows it, and how surely.

    `moving`: an unfinished bar or begun phase of work that one rank does while others wait.
    `spans_wait`: its own clock covers at least half of the wait, which ties the two together.
    `bar`: it is a progress bar that had begun to move; `frame`: a stack shows it.
    """

    phase: str | None = None
    row: int | None = None
    moving: bool = False
    spans_wait: bool = False
    rank: int | None = None
    what: str | None = None
    frame: bool = False
    bar: bool = False


def doing(phase: str | None) -> str:
    """What a rank in this phase does, as in "was still saving a checkpoint"."""
    return _DOING.get(phase or "", f"busy ({phase})")


def find_activity(timeline: Timeline, end: Event | None, waiting: set[int]) -> Activity:
    """The phase at the onset.

    `end` is the first failure: markers after it are aftermath, except that a progress bar glued to
    that very line counts. Frames of tracebacks come after the failure and speak of it all the same.
    """
    marks = _latest_bars(_marks_before(timeline, end))
    waited = [
        ms for event in timeline.signalling("timeout") if (ms := event.elapsed_ms) is not None
    ]
    if waited:
        most = max(waited)
        long = [bar for bar in _unfinished(marks) if _spans(bar, most) and bar.phase in BUSY]
        if long:
            return _not_loading(_activity(long[-1], moving=True, spans_wait=True), marks)
    last = _last_marker([mark for mark in marks if mark.rank not in waiting] or marks)
    if last is not None and last.phase in BUSY and not last.ends_phase and _open(marks, last):
        return _activity(last, moving=True)
    stacks = [event for event in timeline.kind("frame") if event.phase is not None]
    if stacks:
        return _activity(min(stacks, key=_depth), frame=True)
    if last is None:
        return Activity()
    if last.ends_phase:
        return Activity("training" if last.phase != "shutdown" else "shutdown", last.index)
    return _activity(last)


def last_phase(marks: Sequence[Event]) -> str | None:
    """The phase of the last of these markers that does not end with it."""
    phases = [mark.phase for mark in marks if mark.phase is not None and not finished_bar(mark)]
    return phases[-1] if phases else None


def _marks_before(timeline: Timeline, end: Event | None) -> list[Event]:
    """Markers up to the first failure.

    Of other sources without any time all of them: nothing says that they came after it.
    """
    marks = timeline.kind("phase", "progress")
    if end is None:
        return marks
    late = [mark for mark in marks if mark.index > end.index and mark.place != end.place]
    if not late:
        return marks
    timed = {event.source for event in timeline if event.time is not None} | {end.source}
    dropped = {mark.index for mark in late if mark.source in timed}
    return [mark for mark in marks if mark.index not in dropped]


def _latest_bars(marks: Sequence[Event]) -> list[Event]:
    """The markers, of each progress bar only its last state."""
    last = {_bar(mark): mark.index for mark in marks if mark.elapsed_ms is not None}
    return [mark for mark in marks if mark.elapsed_ms is None or last[_bar(mark)] == mark.index]


def _bar(mark: Event) -> tuple[str, int | None, str | None, str]:
    return mark.source, mark.rank, mark.signature, mark.fields.get("what", "")


def _unfinished(marks: Sequence[Event]) -> list[Event]:
    return [m for m in marks if m.elapsed_ms is not None and percent(m.fields) < 100]


def _spans(bar: Event, wait_ms: int) -> bool:
    return (bar.elapsed_ms or 0) >= _NEAR_TIMEOUT * wait_ms


def _not_loading(activity: Activity, marks: Sequence[Event]) -> Activity:
    """Weight files that move after a save began are written or uploaded, not loaded."""
    if activity.phase != "model_load" or activity.row is None:
        return activity
    saved = any(mark.phase == "checkpoint" for mark in marks if mark.index < activity.row)
    return activity._replace(phase="checkpoint") if saved else activity


def _last_marker(marks: Sequence[Event]) -> Event | None:
    """The last marker; plain step lines only count where no phase began after them."""
    phased = [mark for mark in marks if mark.phase is not None and not finished_bar(mark)]
    if phased:
        return phased[-1]
    return next((mark for mark in reversed(marks) if mark.phase is None), None)


def _open(marks: Sequence[Event], last: Event) -> bool:
    """Whether the phase a marker began was still open: no finished bar, no training step after."""
    if percent(last.fields) >= 100:
        return False
    steps = {
        mark.step
        for mark in marks
        if mark.index > last.index and mark.kind == "progress"
        if mark.phase in (None, "training") and mark.step is not None
    }
    return len(steps) < 2


def _depth(frame: Event) -> int:
    """Which frame speaks: busy phases before training, training before init, ending last."""
    return {"shutdown": 3, "init": 2, "training": 1}.get(frame.phase or "", 0)


def _activity(
    event: Event, *, moving: bool = False, spans_wait: bool = False, frame: bool = False
) -> Activity:
    return Activity(
        phase=event.phase,
        row=event.index,
        moving=moving,
        spans_wait=spans_wait,
        rank=event.rank,
        what=event.fields.get("what"),
        frame=frame,
        bar=event.elapsed_ms is not None and percent(event.fields) < 100,
    )
