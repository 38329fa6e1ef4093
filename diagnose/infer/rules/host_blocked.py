"""A rank that says itself that a thread of it is stuck: watchdog monitors, GIL checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import CulpritKind
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import unstated
from diagnose.infer.tiers import Tier
from diagnose.timeline.event import Event


def propose(context: Context) -> Iterator[Hypothesis]:
    """One hypothesis for all lines that say so."""
    told = context.timeline.telling("host_blocked")
    if told:
        yield _blocked(told, context.timeline.ranks, context.catalog)


def _blocked(told: Sequence[Event], heard: Collection[int], catalog: Catalog) -> Hypothesis:
    ranks = sorted({event.rank for event in told if event.rank is not None})
    # The one rank that is heard of may be the messenger: its peers would say the same.
    alone = len(ranks) == 1 and len(heard) > 1
    kind: CulpritKind | None = "stuck_host" if alone else None
    tier = Tier.LIKELY if kind else Tier.CIRCUMSTANTIAL
    summary = (
        "The watchdog made no progress: a host thread is blocked, usually on the GIL or in a CUDA "
        "call."
    )
    found = unstated("stall.host", tier, catalog, summary)
    found.rows, found.basis = [event.index for event in told[:6]], "monitor"
    found.ranks, found.kind = (ranks if kind else []), kind
    found.why = "reported by its own watchdog or GIL check" if kind else ""
    return found
