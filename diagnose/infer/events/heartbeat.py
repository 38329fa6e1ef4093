"""How the job progressed: its last step, the time between steps, its silence, who lags."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.diagnosis import Progress
from diagnose.stories.rhythm import SECOND, Rhythm, rhythms
from diagnose.text.median import median
from diagnose.timeline.event import Timeline

_LAGGING = 32  # ranks told


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
    return Progress(
        last_step=ahead,
        seconds_a_step=round(median(paces), 3) if paces else None,
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
