"""Timeouts that no job could keep: set in the wrong unit, or for a test."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import unstated
from diagnose.infer.tiers import Tier

# NCCL's own connections take seconds; frameworks set minutes.
_NO_JOB_KEEPS_MS = 5_000
_ROWS = 4


def propose(context: Context) -> Iterator[Hypothesis]:
    """The timeout itself, where every wait that ended had one of a few seconds at most."""
    waited = context.timeline.telling("timeout")
    limits = {event.timeout_ms for event in waited if event.timeout_ms is not None}
    if not limits or max(limits) > _NO_JOB_KEEPS_MS:
        return
    summary = (
        f"The timeout of the process group is {max(limits):,} ms, which no job can keep; "
        "it may be given in the wrong unit."
    )
    found = unstated("env.config", Tier.STRONG, context.catalog, summary)
    found.rows = [event.index for event in waited if event.timeout_ms is not None][:_ROWS]
    found.longer_timeout = "yes"
    found.explains = ["desync.*", "unknown", "slow.*"]
    yield found
