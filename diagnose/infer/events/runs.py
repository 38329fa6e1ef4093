"""Several runs in one file: a shell that appends, a job queued again, a wrapper that tries again.

Below the last death of an earlier run the program begins as it began before, and works. Then what
is above that beginning belongs to the earlier run, as with the attempts that a launcher counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.timeline.event import Event, Timeline

# What a program says where it starts; of facts, those that only a start tells.
_STARTS = ("init", "preprocessing", "model_load")
_START_FACTS = ("version", "gpu.smi.")
# How much of a run must be seen: lines below the death with work on them, or steps.
_FAR, _STEPS = 150, 10


def last_run(timeline: Timeline) -> Timeline:
    """The events of the last run, where one source shows that there were several."""
    if len({event.source for event in timeline}) != 1:
        return timeline
    events = sorted(timeline, key=lambda event: event.line)
    death = next((event for event in reversed(events) if _dies(event)), None)
    if death is None:
        return timeline
    below = [event for event in events if event.line > death.line]
    begun = _begins(below, [event for event in events if event.line < death.line])
    if begun is None or not _works([e for e in below if e.line >= begun.line], death):
        return timeline
    return timeline.only(lambda event: event.line >= begun.line)


def _dies(event: Event) -> bool:
    """Whether a process, or the job, surely ended with this line."""
    if event.kind == "exit":
        return event.fields.get("exitcode") not in ("0", "+0") or "signal" in event.fields
    killed = event.role == "cause" and event.cause in ("scheduler.limit", "scheduler.preempted")
    return killed or (event.role == "cause" and event.cause == "user.interrupt")


def _begins(below: Sequence[Event], above: Sequence[Event]) -> Event | None:
    """The first line below that says what a start said above."""
    said = {event.signature for event in above if _starts(event)}
    return next((e for e in below if _starts(e) and e.signature in said), None)


def _starts(event: Event) -> bool:
    if event.kind == "phase":
        return event.phase in _STARTS
    return any(word in (event.signature or "") for word in _START_FACTS)


def _works(run: Sequence[Event], death: Event) -> bool:
    """Whether the run did more than start: it ended well, or made steps for long."""
    if any(event.tells == "finished" and event.rank is None for event in run):
        return True
    works = [event for event in run if event.kind == "progress"]
    steps = {event.step for event in works if event.step is not None}
    return len(steps) >= _STEPS or any(event.line > death.line + _FAR for event in works)
