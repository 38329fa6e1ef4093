"""What is lost when a job resumes from a checkpoint: steps, and the GPU-hours they took."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.cost import gpu_hours, span
from diagnose.text.times import moment
from diagnose.timeline.event import Timeline


@dataclass(frozen=True, slots=True)
class Lost:
    """`last` is the last step the logs show; `steps` and `gpu_hours` are what comes again.

    `gpu_hours` is None where the logs do not tell when the step of the checkpoint was, or how many
    ranks there were.
    """

    last: int
    steps: int
    gpu_hours: float | None


def lost(timeline: Timeline, step: int | None, world_size: int | None) -> Lost | None:
    """What a restart at `step` loses; None where the logs show no step behind it.

    Time counts from the first line at or beyond the step to the last line of the job's own logs.
    """
    steps = [(e.step, e.time) for e in timeline.kind("progress") if e.step is not None]
    if step is None or not steps:
        return None
    last = max(count for count, _ in steps)
    if last < step:
        return None
    began = [time for count, time in steps if count >= step and time is not None]
    end = span(timeline)[1]
    seconds = None
    if began and end is not None:
        seconds = max(0.0, (end - moment(min(began))).total_seconds())
    return Lost(last, last - step, gpu_hours(seconds, world_size))
