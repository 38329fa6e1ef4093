"""A rank that says itself that a thread of it is stuck: watchdog monitors, GIL checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import CulpritKind
from diagnose.infer import scoring
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import unstated
from diagnose.timeline.event import Event


def propose(context: Context) -> Iterator[Hypothesis]:
    """One hypothesis for all lines that say so."""
    told = context.timeline.telling("host_blocked")
    if told:
        yield _blocked(told, context.catalog)


def _blocked(told: Sequence[Event], catalog: Catalog) -> Hypothesis:
    ranks = sorted({event.rank for event in told if event.rank is not None})
    kind: CulpritKind | None = "stuck_host" if len(ranks) == 1 else None
    score = scoring.HOST_BLOCKED if kind else scoring.HOSTS_BLOCKED
    summary = (
        "The watchdog made no progress: a host thread is blocked, usually on the GIL or in a CUDA "
        "call."
    )
    found = unstated("stall.host", score, catalog, summary)
    found.rows = [event.index for event in told[:6]]
    found.ranks, found.kind = (ranks if kind else []), kind
    found.why = "reported by its own watchdog or GIL check" if kind else ""
    return found
