"""Ranks that are apart in their steps, by progress bars that tell no rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from diagnose.timeline.event import Event, Timeline

_LEAST = 2  # steps: where every step ends in a collective, two ranks are never so far apart
_NEAR_MS = 60_000  # by the clocks of two bars that are looked at at one time


def bars_apart(timeline: Timeline) -> Sequence[Event]:
    """Two states of one bar at one time whose steps are too far apart to be of one rank.

    A bar that steps back while its own clock does not belongs to another process.
    """
    bars = [event for event in timeline.kind("progress") if _counts(event)]
    for one, other in pairwise(bars):
        same = one.source == other.source and one.fields["total"] == other.fields["total"]
        if same and one.rank == other.rank and _is_another(one, other):
            return one, other
    return ()


def _counts(event: Event) -> bool:
    return event.step is not None and event.elapsed_ms is not None and "total" in event.fields


def _is_another(one: Event, other: Event) -> bool:
    later = (other.elapsed_ms or 0) - (one.elapsed_ms or 0)
    return 0 <= later <= _NEAR_MS and (one.step or 0) - (other.step or 0) >= _LEAST
