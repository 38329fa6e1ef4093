"""Ranks that did not make the same number of steps when one of them waited in vain."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.infer.ranks.apart import bars_apart
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import unstated
from diagnose.infer.tiers import Tier


def propose(context: Context) -> Iterator[Hypothesis]:
    """One hypothesis where ranks wait whose bars, before that, were some steps apart."""
    apart = bars_apart(context.timeline) if context.stalls else ()
    if not apart:
        return
    steps = " and ".join(str(event.step) for event in apart)
    summary = (
        f"Progress bars of different ranks stood at steps {steps} at the same time: the ranks do "
        "not make the same steps."
    )
    found = unstated("desync.uneven_work", Tier.WEAK, context.catalog, summary)
    found.rows = [event.index for event in apart]
    yield found
