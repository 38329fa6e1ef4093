"""What is better than nothing where no rule has a likely cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagnose.infer.rules import resembles
from diagnose.infer.rules.base import Context, Hypothesis, inferred
from diagnose.infer.tiers import Tier
from diagnose.stories.fold import lost_peer
from diagnose.timeline.event import Event

_BUSY = "Nothing says what went wrong; the log ends amid this work, which was not finished."


def leads_of(context: Context) -> list[Hypothesis]:
    """What is better than nothing where nothing is likely: low confidence, and no culprits."""
    lines = [event for event in context.timeline if event.signature is None or _vague(event)]
    found = list(resembles.propose(context, lines))
    phase = context.activity.phase if context.activity.moving else None
    if phase == "inference" and all(event.role == "aftermath" for event in context.failing):
        phase = None  # a server that was stopped kept nobody waiting
    busy = context.catalog.busy_class(phase) if phase else None
    if busy and not _peer_went(context.failing):
        lead = inferred(busy, Tier.GUESS, context.catalog, _BUSY)
        found.insert(0, replace(lead, rule="busy"))
    return found[:1]


def _peer_went(failing: Sequence[Event]) -> bool:
    """Whether the lines say only that a peer went away, whose own log knows why."""
    return bool(failing) and all(map(lost_peer, failing))


def _vague(event: Event) -> bool:
    return event.tells == "trouble" or event.role == "aftermath"
