"""Stacks that somebody took of processes whose ranks nothing tells: what they are busy with."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.infer import scoring
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.stacks import cause_of
from diagnose.infer.stacks.classify import Place
from diagnose.infer.stacks.frame_table import SAYS

_HUNG_TASK = "host.hung-task"
# States that say nothing of a cause by themselves.
_SILENT = ("python", "unknown", "lock", "sleep", "exited")


def propose(context: Context) -> Iterator[Hypothesis]:
    """One hypothesis for the first process that is busy with something, and does not wait."""
    if context.stacks or _crashed(context):
        return
    for place in context.lone:
        saves = place.state == "lock" and place.phase == "checkpoint"  # for the one that writes
        silent = place.state in _SILENT and not saves
        if place.waits or silent or _worked_on(place, context):
            continue
        if place.state == "kernel_wait" and _HUNG_TASK in context.timeline.by_signature:
            continue  # it says more about a task whose stack says nothing
        cause = cause_of(place.state, place.phase)
        yield Hypothesis(
            cause=cause,
            score=scoring.STACKS_ONLY,
            title=context.catalog.classes[cause].title,
            summary=f"The stack shows a process {SAYS[place.state]}: {place.detail}.",
            inferred=True,
            basis="stack",
        )
        return


def _crashed(context: Context) -> bool:
    """A line says that a process died by itself: what hangs then may wait for it."""
    return any((event.cause or "").startswith("crash.") for event in context.failing)


def _worked_on(place: Place, context: Context) -> bool:
    """The job made steps below the stack, in the same source: it was taken in passing."""
    stack = place.stack
    return any(
        event.source == stack.source and event.line > stack.line
        for event in context.timeline.kind("progress")
    )
