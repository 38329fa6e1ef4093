"""What is better than nothing where no rule has a likely cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagnose.infer.rules import resembles
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import busy_class, unstated
from diagnose.infer.tiers import Tier
from diagnose.timeline.event import Event

_BUSY = "Nothing says what went wrong; the log ends amid this work, which was not finished."


def leads_of(context: Context) -> list[Hypothesis]:
    """What is better than nothing where nothing is likely: low confidence, and no culprits."""
    lines = [event for event in context.timeline if event.signature is None or _vague(event)]
    found = list(resembles.propose(context, lines))
    phase = context.activity.phase if context.activity.moving else None
    if phase == "inference" and all(event.role == "aftermath" for event in context.failing):
        phase = None  # a server that was stopped kept nobody waiting
    busy = busy_class(phase, context.catalog) if phase else None
    if busy and not _peer_went(context.failing):
        lead = unstated(busy, Tier.GUESS, context.catalog, _BUSY)
        found.insert(0, replace(lead, rule="busy"))
    return found[:1]


def _peer_went(failing: Sequence[Event]) -> bool:
    """Whether the lines say only that a peer went away, whose own log knows why."""
    gone = [event.role == "effect" and _of_a_peer(event) for event in failing]
    return bool(gone) and all(gone)


def _of_a_peer(event: Event) -> bool:
    return event.tells == "peer_gone" or "peer" in event.fields


def _vague(event: Event) -> bool:
    return event.tells == "trouble" or event.role == "aftermath"
