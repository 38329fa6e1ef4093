"""A job that had printed nothing for long when somebody sent it SIGTERM.

Who sent it no log says; often a person or a monitor saw what the log shows as well: lines that came
regularly, and then none. That is a hang, and what was last begun is a lead to its cause.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import pairwise

from diagnose.infer import scoring
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import busy_class, doing, unstated
from diagnose.stories.exits import exit_code
from diagnose.text.times import duration
from diagnose.timeline.event import Event, Timeline

_NS = 1_000_000_000
_LEAST_S = 15
_BEATS = 20  # of the usual time between two of the last lines of progress
_STEPS, _LAST = 5, 4  # lines; those in between are thinned
_NEXT_LINES = 3  # nothing else was printed between the last line and the signal


def propose(context: Context) -> Iterator[Hypothesis]:
    """What the job was about when it fell silent; unknown where no line says."""
    if context.stalls or any(not _of_signal(one) for one in context.proposed):
        return
    found = _silent(context.timeline)
    if found is None:
        return
    last, seconds = found
    activity = context.activity
    cause = busy_class(activity.phase, context.catalog) if activity.moving else None
    busy = f" while it was {doing(activity.phase)}" if cause else ""
    summary = (
        f"The log fell silent{busy}, {duration(seconds)} before SIGTERM; the lines before came "
        "regularly. Nothing says who sent the signal."
    )
    hypothesis = unstated(cause or "unknown", scoring.SILENT, context.catalog, summary)
    hypothesis.rows, hypothesis.basis = [last.index], "silence"
    yield hypothesis


def _of_signal(one: Hypothesis) -> bool:
    return one.cause.startswith(("scheduler.", "user."))


def _silent(timeline: Timeline) -> tuple[Event, float] | None:
    """The last line before the signal, and how long before it that was, if that is unusual."""
    ended = next((event for event in timeline.telling("teardown") if _sigterm(event)), None)
    if ended is None or ended.time is None:
        return None
    before = [e for e in timeline if e.source == ended.source and e.line < ended.line]
    timed = [event.time for event in before if event.kind == "progress" and event.time is not None]
    last = max(before, key=lambda event: event.line, default=None)
    if last is None or last.time is None or len(timed) < _STEPS:
        return None
    silent = (ended.time - last.time) / _NS
    gaps = sorted(b - a for a, b in pairwise(sorted(timed)[-_LAST:]))
    usual = gaps[len(gaps) // 2] / _NS
    near = ended.line - last.line <= _NEXT_LINES
    return (last, silent) if near and silent >= max(_LEAST_S, _BEATS * usual) else None


def _sigterm(event: Event) -> bool:
    return event.role == "cause" and exit_code(event.fields) == -signal.SIGTERM
