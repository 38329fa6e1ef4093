"""What the job was doing: the phase at the onset, and the last one that its lines tell.

What explains a hang was there at its onset: the last marker, bar or stack frame before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from diagnose.stories.work import finished_bar, percent
from diagnose.timeline.event import Event, Timeline

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


@dataclass(frozen=True, slots=True)
class Activity:
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
    marks = _latest_bars(_before(timeline, end))
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


def _before(timeline: Timeline, end: Event | None) -> list[Event]:
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
    return replace(activity, phase="checkpoint") if saved else activity


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
