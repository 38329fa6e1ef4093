"""What is better than nothing where no rule has a likely cause: leads of low confidence.

What the log ends amid of, and what the learned reader suggests of lines that matched nothing. A
line that an entry knows is no lead.
"""

from __future__ import annotations

from dataclasses import replace

from diagnose.infer.rules.base import Context, Hypothesis, inferred
from diagnose.infer.rules.learned import suggested, unknown_lines
from diagnose.infer.tiers import Tier
from diagnose.stories.story import only_lost_peers

_BUSY = "Nothing says what went wrong; the log ends amid this work, which was not finished."


def leads_of(context: Context) -> list[Hypothesis]:
    """What is better than nothing where nothing is likely: low confidence, and no culprits."""
    phase = context.activity.phase if context.activity.moving else None
    if phase == "inference" and all(event.role == "aftermath" for event in context.failing):
        phase = None  # a server that was stopped kept nobody waiting
    busy = context.catalog.busy_class(phase) if phase else None
    if busy and not only_lost_peers(context.failing):
        return [replace(inferred(busy, Tier.GUESS, context.catalog, _BUSY), rule="busy")]
    lead = suggested(context, unknown_lines(context))
    return [lead] if lead else []
