"""A damaged checkpoint as the cause of a job that died while it loaded it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from diagnose.checkpoint.model import STATE_WORDS
from diagnose.infer.rules.base import Context, Hypothesis, Tier

if TYPE_CHECKING:
    from diagnose.checkpoint.model import Checkpoint

_DAMAGED = ("partial", "corrupt")
_SHOWN = 2  # events of each kind


def propose(context: Context) -> Iterator[Hypothesis]:
    """A damaged checkpoint as the cause, where the job died over it before its first step.

    Only one that the failure, or the line that says what is loaded, names by its last two parts: a
    job that dies while it saves leaves a damaged one too, as a consequence.
    """
    failing, timeline = context.failing, context.timeline
    if context.checkpoints is None or not failing:
        return
    if any(event.index <= failing[0].index for event in timeline.kind("progress")):
        return
    loading = timeline.by_signature.get("checkpoint.saving.resume", [])
    for one in context.checkpoints.checkpoints:
        naming = [event for event in (*loading, *failing) if tail(one) in event.text]
        if one.state not in _DAMAGED or not naming:
            continue
        cause = context.catalog.class_shown_by(f"resume.{one.state}")
        shown = [*naming[:_SHOWN], *failing[:_SHOWN]]
        yield Hypothesis(
            cause,
            Tier.LIKELY,
            context.catalog.classes[cause].title,
            f"The job tried to load {name(one)}, and {state_of(one)}",
            list(dict.fromkeys(event.index for event in shown)),
            inferred=True,
            basis="checkpoint",
        )


def name(one: Checkpoint) -> str:
    """The last part of its path."""
    return one.path.rstrip("/").rpartition("/")[2]


def tail(one: Checkpoint) -> str:
    """The last part of the path, with the one before where it alone says little (`step-5`)."""
    parts = one.path.rstrip("/").split("/")
    return "/".join(parts[-2:]) if len(parts[-1]) < 8 else parts[-1]


def adjective(one: Checkpoint) -> str:
    """Its state as an adjective."""
    return STATE_WORDS[one.state]


def state_of(one: Checkpoint) -> str:
    """Its name and state, and why."""
    return f"{name(one)} is {adjective(one)}: {why_damaged(one)}"


def why_damaged(one: Checkpoint) -> str:
    """The first thing found wrong with it."""
    return one.reasons[0] if one.reasons else "no reason known"
