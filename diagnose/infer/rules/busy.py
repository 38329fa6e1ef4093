"""Work that one rank does while the others wait for it, and causes that no line states."""

from __future__ import annotations

from diagnose.catalog.schema import Catalog
from diagnose.infer.judge.stall import Stall
from diagnose.infer.rules.base import Hypothesis
from diagnose.infer.tiers import Tier

_ROWS = 8
# What the main rank does for all others; models are loaded by every rank.
MAIN_ONLY = ("preprocessing", "checkpoint", "evaluation")
DOING = {
    "preprocessing": "preparing data",
    "model_load": "loading the model",
    "checkpoint": "saving a checkpoint",
    "evaluation": "evaluating",
    "inference": "generating",
}


def unstated(
    cause: str, tier: Tier, catalog: Catalog, summary: str, stall: Stall | None = None
) -> Hypothesis:
    """A hypothesis that follows from who was where; its evidence is that of the stall."""
    return Hypothesis(
        cause=cause,
        tier=tier,
        title=catalog.classes[cause].title,
        summary=summary,
        rows=list(stall.rows[:_ROWS]) if stall else [],
        inferred=True,
    )


def busy_class(phase: str | None, catalog: Catalog) -> str | None:
    """The class of a wait for a rank that is at this work while the others wait."""
    return next((cause.id for cause in catalog.classes.values() if phase in cause.busy), None)


def doing(phase: str | None) -> str:
    """What a rank in this phase does, as in "was still saving a checkpoint"."""
    return DOING.get(phase or "", f"busy ({phase})")
