"""How the job progressed: its last step, the time between steps, its silence, who lags."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.diagnosis import Progress
from diagnose.timeline.event import Event, Timeline

_NS = 1_000_000_000
_LAGGING = 32  # ranks told


def progress_of(timeline: Timeline) -> Progress | None:
    """What the lines with a step tell; None without any."""
    told = [event for event in timeline.kind("progress") if event.step is not None]
    if not told:
        return None
    last = max(told, key=lambda event: event.index)
    of_kind = [event for event in told if event.signature == last.signature]
    steps = _last_steps(of_kind)
    ahead = max(steps.values(), default=last.step)
    return Progress(
        last_step=ahead,
        seconds_a_step=_interval(of_kind),
        silent_s=_silence(timeline, told),
        lagging=sorted(rank for rank, step in steps.items() if step < (ahead or 0))[:_LAGGING],
    )


def _last_steps(told: Sequence[Event]) -> dict[int, int]:
    """Rank → its last step."""
    return {e.rank: e.step for e in told if e.rank is not None and e.step is not None}


def _interval(told: Sequence[Event]) -> float | None:
    """Seconds from one step to the next: the median over neighbouring lines of one author."""
    found = []
    last: dict[tuple[str, int | None], Event] = {}
    for event in told:
        before = last.get((event.source, event.rank))
        last[event.source, event.rank] = event
        if before is None or before.time is None or event.time is None:
            continue
        steps = (event.step or 0) - (before.step or 0)
        if steps > 0 and event.time > before.time:
            found.append((event.time - before.time) / steps / _NS)
    if not found:
        return None
    found.sort()
    half = len(found) // 2
    return round((found[half] + found[~half]) / 2, 3)


def _silence(timeline: Timeline, told: Sequence[Event]) -> float | None:
    """Seconds from the last step to the last line of the job."""
    steps = [event.time for event in told if event.time is not None]
    ends = [time for time in timeline.column("time") if time is not None]
    return round((max(ends) - max(steps)) / _NS, 3) if steps else None
