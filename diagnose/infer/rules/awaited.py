"""What the rank that others wait for was at: work that it does for all, or more or less of its own.

A missing rank is explained by what was going on at the onset, as far as lines show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from diagnose.catalog.schema import UNKNOWN, Catalog
from diagnose.infer.events.phases import BUSY, MAIN_ONLY, Activity, doing
from diagnose.infer.judge.verdict import Kind, Verdict
from diagnose.infer.rules.base import Context, Hypothesis, inferred
from diagnose.infer.tiers import Tier
from diagnose.stories.story import Story
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Timeline

Finding = Kind | Literal["uneven", "early_barrier", "no_network"]
_JOINED: tuple[Kind, ...] = ("all_joined", "network", "stuck_device")
# Collectives this early in a group belong to set-up: barriers around data preparation.
_EARLY_SEQ = 5
# What shows that the rank waited for was at work, by how far that reaches; who waits in something
# larger than a barrier waits less surely for such work.
_BUSY = {
    ("spans_the_wait",): Tier.OBSERVED,
    ("moving",): Tier.STRONG,
    ("seen",): Tier.CIRCUMSTANTIAL,
    ("moving", "not_a_barrier"): Tier.CIRCUMSTANTIAL,
    ("seen", "not_a_barrier"): Tier.WEAK,
}
# Operations that may be a barrier, where the log tells no sizes.
_MAY_BE_TINY = (None, "ALLREDUCE", "BROADCAST", "BARRIER", "ALLGATHER")


def at_work(stall: Verdict, context: Context) -> Hypothesis | None:
    """What the rank that all others wait for was doing, as far as lines show it."""
    activity, catalog = context.activity, context.catalog
    waiting = {rank for rank in stall.waiting if rank >= 0}
    who = _who(stall, activity)
    done = sorted(_finished(context.timeline) & set(stall.absent or who))
    if done:
        return uneven(stall, done, catalog, "reached the end of its work")
    ahead = _evaluating(activity, waiting, context.stories.of_ranks)
    if ahead is not None:
        return uneven(stall, [ahead], catalog, "had gone on to evaluation")
    if waiting == {0} and activity.phase == "shutdown":
        return _left_alone(stall, catalog)
    if stall.kind in _JOINED and not activity.moving:
        return None
    # Where the busy rank joined, it is not the one the others wait for.
    joined = stall.ranks and stall.absent and activity.rank not in (None, *stall.ranks)
    if catalog.busy_class(activity.phase) and not joined and (activity.moving or activity.frame):
        return _busy(stall, who, activity, catalog)
    return None


def shown(
    finding: Finding, tier: Tier, catalog: Catalog, summary: str, stall: Verdict
) -> Hypothesis:
    """The hypothesis of the class that a finding about a wait shows."""
    cause = catalog.class_shown_by(f"wait.{finding}")
    return inferred(cause, tier, catalog, summary, stall.rows)


def _left_alone(stall: Verdict, catalog: Catalog) -> Hypothesis:
    """Rank 0 waits after the end: in what only it does then, as the others have no more to do."""
    summary = f"Rank 0 alone waited in {stall.phrase} after the work was done: only it entered it."
    found = shown("conditional", Tier.CIRCUMSTANTIAL, catalog, summary, stall)
    found.ranks, found.kind = [0], "mismatched"
    found.why = "the only rank that waits after the end"
    return found


def _finished(timeline: Timeline) -> set[int]:
    return {event.rank for event in timeline.signalling("finished") if event.rank is not None}


def _evaluating(activity: Activity, waiting: set[int], stories: Mapping[int, Story]) -> int | None:
    """The rank that had gone on to evaluation after fewer steps than others had trained.

    Only where that rank and others tell of their own steps: else it is work that one rank does for
    all, and after as many steps as the others it is one that all of them come to.
    """
    if activity.phase != "evaluation" or activity.rank is None or activity.rank in waiting:
        return None
    steps = {rank: one.step for rank, one in stories.items() if one.step is not None}
    others = [steps[rank] for rank in waiting & steps.keys()]
    own = steps.get(activity.rank)
    return activity.rank if own is not None and max(others, default=0) > own else None


def _busy(stall: Verdict, who: list[int], activity: Activity, catalog: Catalog) -> Hypothesis:
    """The rank that the others wait for was at work of the kind that only one rank does."""
    at_work = doing(activity.phase)
    subject = ranks_phrase(who).capitalize() if who else "One rank"
    summary = f"{subject} was still {at_work} while the other ranks waited in {stall.phrase}."
    tiny = stall.tiny or (not stall.sized and stall.op in _MAY_BE_TINY)
    spans = activity.spans_wait
    grounds = ["spans_the_wait" if spans else "moving" if activity.moving else "seen"]
    grounds += ["not_a_barrier"] * (not tiny and not spans)
    cause = catalog.busy_class(activity.phase) or UNKNOWN
    found = inferred(cause, _BUSY[tuple(grounds)], catalog, summary, stall.rows)
    found.grounds = grounds
    found.rows = [*([activity.row] if activity.row is not None else []), *found.rows]
    found.sure = spans and tiny
    found.ranks, found.kind = who, "slow" if who else None
    by_role = "the main rank does this work while the others wait"
    apart = "the only rank without a timeout" if who == [*stall.awaited] else by_role
    found.why = f"{at_work}; {apart}" if who else ""
    return found


def early_barrier(stall: Verdict, context: Context) -> Hypothesis | None:
    """The first barrier of a job, where nothing else shows what the ranks wait for.

    The very first call may be that of set-up; what rank 0 hands out first is data.
    """
    activity, catalog = context.activity, context.catalog
    handed_out = stall.op == "BROADCAST" and stall.awaited == (0,)
    first = 1 if activity.phase == "preprocessing" or handed_out else 2
    if not stall.tiny or stall.seq is None or not first <= stall.seq <= _EARLY_SEQ:
        return None
    summary = (
        f"The first collectives of the job stopped at {stall.phrase}, a barrier of the kind "
        "used around work that one rank does first, most often data preparation."
    )
    found = shown("early_barrier", Tier.CIRCUMSTANTIAL, catalog, summary, stall)
    found.ranks = _who(stall, activity)
    found.kind = "missing" if found.ranks else None
    found.why = "the only rank without a timeout" if found.ranks else ""
    return found


def uneven(stall: Verdict, done: list[int], catalog: Catalog, did: str) -> Hypothesis:
    """Ranks that had less to do than those that wait, or other work; `did` says what they did."""
    names = ranks_phrase(done)
    summary = (
        f"{names.capitalize()} {did} while other ranks were still waiting in "
        f"{stall.phrase}: uneven work."
    )
    found = shown("uneven", Tier.OBSERVED, catalog, summary, stall)
    found.ranks, found.kind = done, "missing"
    found.why = f"{did}; the other ranks wait"
    return found


def _who(stall: Verdict, activity: Activity) -> list[int]:
    """The rank the others wait for.

    Named or clearly missing ranks; else the rank whose bar or marker shows it busy; else rank 0,
    which does the work that only one process does, if it is not among those that wait.
    """
    if stall.awaited:
        return [*stall.awaited]
    waiting = {rank for rank in stall.waiting if rank >= 0}
    busy_alone = activity.phase in BUSY and activity.moving
    if activity.rank is not None and activity.rank not in waiting and busy_alone:
        return [activity.rank]
    if waiting and 0 not in waiting and busy_alone and activity.phase in MAIN_ONLY:
        return [0]
    return []
