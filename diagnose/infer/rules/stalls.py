"""Causes that no line states: why a collective stopped, from who stood where.

Mismatches come from comparing ranks; a missing rank is explained by what was going on at the
onset: work that one rank does while the others wait, or nothing the log shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from diagnose.catalog.schema import Catalog
from diagnose.catalog.vocabulary import UNKNOWN
from diagnose.infer.events.phases import BUSY, MAIN_ONLY, Activity, doing
from diagnose.infer.judge.stall import Stall
from diagnose.infer.rules.base import Basis, Context, Hypothesis, inferred
from diagnose.infer.tiers import Tier
from diagnose.stories.story import Story
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Timeline

Finding = Literal[
    "mismatch", "shifted", "conditional", "uneven", "missing", "early_barrier", "all_joined"
]
# Collectives this early in a group belong to set-up: barriers around data preparation.
_EARLY_SEQ = 5
# Steps between the last ones of two ranks that no delay of a log explains.
_APART = 5
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


def propose(context: Context) -> list[Hypothesis]:
    """One hypothesis for every group that stopped.

    Where dumps show who is waited for, only what that rank was at is left to say.
    """
    if context.blocked is None:
        return _of_stalls(context, context.stalls, "wait")
    at_work = [_at_work(stall, context) for stall in context.stalls if not _differ(stall)]
    return [replace(one, basis="wait") for one in at_work if one is not None]


def agreeing(context: Context) -> list[Hypothesis]:
    """The same for the groups of the logs that say what the dumps say."""
    return _of_stalls(context, context.agreeing, "agreeing_wait") if context.agreeing else []


def _shown(
    finding: Finding, tier: Tier, catalog: Catalog, summary: str, stall: Stall
) -> Hypothesis:
    """The hypothesis of the class that a finding about a wait shows."""
    cause = catalog.class_shown_by(f"wait.{finding}")
    return inferred(cause, tier, catalog, summary, stall.rows)


def _of_stalls(context: Context, stalls: Sequence[Stall], basis: Basis) -> list[Hypothesis]:
    found = [
        _mismatch(stall, context) if _differ(stall) else _waiting(stall, context)
        for stall in stalls
    ]
    return [replace(one, basis=basis) for one in found]


def _differ(stall: Stall) -> bool:
    return stall.shape in ("mismatch", "conditional", "shifted")


def _mismatch(stall: Stall, context: Context) -> Hypothesis:
    activity, catalog = context.activity, context.catalog
    ahead = _gone_on(stall, context.stories.of_ranks) if stall.shape == "conditional" else []
    if ahead:
        return _uneven(stall, ahead, catalog, "had gone on to evaluation")
    finding: Finding = "mismatch"
    tier = Tier.OBSERVED
    summary = f"{stall.why[:1].upper()}{stall.why[1:]}."
    if stall.shape == "conditional":
        finding = "conditional"
        summary = (
            "Ranks took different branches: some wait in a barrier while others run a larger "
            "collective that only they entered."
        )
    elif stall.shape == "shifted":
        finding, tier = "shifted", Tier.LIKELY
        apart = _steps_apart(context.stories.of_ranks)
        if apart:
            finding = "uneven"
            summary = f"Ranks made different numbers of steps ({apart}), and {stall.why}."
        elif activity.phase in MAIN_ONLY:
            finding = "conditional"
            summary = f"Ranks are one collective apart around {doing(activity.phase)}: {stall.why}."
    found = _shown(finding, tier, catalog, summary, stall)
    if finding == "uneven":  # an earlier call is not the fault of who waits in it
        return found
    found.ranks = stall.odd
    found.kind = "mismatched" if stall.odd else None
    found.why = f"{ranks_phrase(stall.odd)} diverged from the other ranks" * bool(stall.odd)
    found.sure = stall.proven and stall.shape != "shifted"
    return found


def _steps_apart(stories: Mapping[int, Story]) -> str:
    """The last steps of the ranks that are furthest apart; "" where they may be equal.

    Bars are drawn every tenth of a second, and logs flushed late: a few steps mean nothing.
    """
    last = {rank: story.step for rank, story in stories.items() if story.step}
    if not last:
        return ""
    least, most = (choose(last, key=lambda rank: last[rank]) for choose in (min, max))
    if last[most] - last[least] < _APART:
        return ""
    return f"{last[most]:,} on rank {most}, {last[least]:,} on rank {least}"


def _gone_on(stall: Stall, stories: Mapping[int, Story]) -> list[int]:
    """Ranks in the barrier that say themselves that they evaluate, while others still train.

    Rank 0 evaluates for all others where that is its work: a branch, and not less work.
    """
    at_barrier = {rank for rank, wait in stall.waits.items() if wait.tiny}
    ahead = [r for r in sorted(at_barrier) if r in stories and stories[r].phase == "evaluation"]
    behind = set(stall.waits) - at_barrier
    alike = any(r in stories and stories[r].phase == "evaluation" for r in behind)
    return [] if ahead == [0] or alike else ahead


def _waiting(stall: Stall, context: Context) -> Hypothesis:
    """Ranks that all wait for the same call: for whom, and what was it doing?"""
    found = _at_work(stall, context)
    if found is not None:
        return found
    if stall.shape == "all_joined" and not context.activity.moving:
        return _joined(stall, context.catalog)
    return _absent(stall, context.catalog)


def _at_work(stall: Stall, context: Context) -> Hypothesis | None:
    """What the rank that all others wait for was doing, as far as lines show it."""
    activity, catalog = context.activity, context.catalog
    waiting = {rank for rank in stall.joined if rank >= 0}
    who = _who(stall, waiting, activity)
    done = sorted(_finished(context.timeline) & set(stall.missing or who))
    if done:
        return _uneven(stall, done, catalog, "reached the end of its work")
    ahead = _evaluating(activity, waiting, context.timeline)
    if ahead is not None:
        return _uneven(stall, [ahead], catalog, "had gone on to evaluation")
    if waiting == {0} and activity.phase == "shutdown":
        return _left_alone(stall, catalog)
    if stall.shape == "all_joined" and not activity.moving:
        return None
    # Where the busy rank joined, it is not the one the others wait for.
    joined = stall.proven and stall.missing and activity.rank not in (None, *stall.missing)
    if catalog.busy_class(activity.phase) and not joined and (activity.moving or activity.frame):
        return _busy(stall, who, activity, catalog)
    # The very first call may be the barrier of set-up; what rank 0 hands out first is data.
    handed_out = stall.op == "BROADCAST" and stall.accused == [0]
    first = 1 if activity.phase == "preprocessing" or handed_out else 2
    if stall.tiny and stall.seq is not None and first <= stall.seq <= _EARLY_SEQ:
        return _early_barrier(stall, who, catalog)
    return None


def _left_alone(stall: Stall, catalog: Catalog) -> Hypothesis:
    """Rank 0 waits after the end: in what only it does then, as the others have no more to do."""
    summary = f"Rank 0 alone waited in {stall.phrase} after the work was done: only it entered it."
    found = _shown("conditional", Tier.CIRCUMSTANTIAL, catalog, summary, stall)
    found.ranks, found.kind = [0], "mismatched"
    found.why = "the only rank that waits after the end"
    return found


def _finished(timeline: Timeline) -> set[int]:
    return {event.rank for event in timeline.telling("finished") if event.rank is not None}


def _evaluating(activity: Activity, waiting: set[int], timeline: Timeline) -> int | None:
    """The rank that had gone on to evaluation while others still trained.

    Only where every rank tells of its own steps: else it is work that rank 0 does for all.
    """
    if activity.phase != "evaluation" or activity.rank is None or activity.rank in waiting:
        return None
    trained = {event.rank for event in timeline.kind("progress") if event.phase != "evaluation"}
    return activity.rank if trained & waiting else None


def _busy(stall: Stall, who: list[int], activity: Activity, catalog: Catalog) -> Hypothesis:
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
    apart = "the only rank without a timeout" if who == stall.accused else by_role
    found.why = f"{at_work}; {apart}" if who else ""
    return found


def _early_barrier(stall: Stall, who: list[int], catalog: Catalog) -> Hypothesis:
    summary = (
        f"The first collectives of the job stopped at {stall.phrase}, a barrier of the kind "
        "used around work that one rank does first, most often data preparation."
    )
    found = _shown("early_barrier", Tier.CIRCUMSTANTIAL, catalog, summary, stall)
    found.ranks, found.kind = who, "missing" if who else None
    found.why = "the only rank without a timeout" if who else ""
    return found


def _uneven(stall: Stall, done: list[int], catalog: Catalog, did: str) -> Hypothesis:
    names = ranks_phrase(done)
    summary = (
        f"{names.capitalize()} {did} while other ranks were still waiting in "
        f"{stall.phrase}: uneven work."
    )
    found = _shown("uneven", Tier.OBSERVED, catalog, summary, stall)
    found.ranks, found.kind = done, "missing"
    found.why = f"{did}; the other ranks wait"
    return found


def _absent(stall: Stall, catalog: Catalog) -> Hypothesis:
    ranks: list[int] = []
    if stall.proven and stall.all_but_one:
        return _alone(stall, catalog)
    if stall.missing:
        names = ranks_phrase(stall.missing)
        never = "never reached" if stall.proven else "probably never reached"
        summary = f"{names.capitalize()} {never} {stall.phrase}; the reason is not logged."
        tier = Tier.STRONG if stall.proven else Tier.CIRCUMSTANTIAL
        ranks = stall.missing if stall.proven else []
    else:
        summary = f"Ranks timed out in {stall.phrase}; the log does not show which rank is missing."
        tier = Tier.GUESS
    found = _shown("missing", tier, catalog, summary, stall)
    found.ranks, found.kind = ranks, "missing" if ranks else None
    found.why = stall.why if ranks else ""
    return found


def _alone(stall: Stall, catalog: Catalog) -> Hypothesis:
    """One rank waits for all others: it took a branch that they did not, or they all stopped."""
    known = [rank for rank in stall.joined if rank >= 0]
    summary = (
        f"{ranks_phrase(known).capitalize() if known else 'One rank'} alone reached "
        f"{stall.phrase}: either only its code goes there, or all others stopped before; the "
        "reason is not logged."
    )
    return _shown("missing", Tier.STRONG, catalog, summary, stall)


def _joined(stall: Stall, catalog: Catalog) -> Hypothesis:
    summary = (
        f"All ranks of the group joined {stall.phrase} and none finished it: check network, "
        "GPU and driver; no rank is missing. The log does not show which of them failed."
    )
    return _shown("all_joined", Tier.WEAK, catalog, summary, stall)


def _who(stall: Stall, waiting: set[int], activity: Activity) -> list[int]:
    """The rank the others wait for.

    Named or clearly missing ranks; else the rank whose bar or marker shows it busy; else rank 0,
    which does the work that only one process does, if it is not among those that wait.
    """
    if stall.accused:
        return stall.accused
    busy_alone = activity.phase in BUSY and activity.moving
    if activity.rank is not None and activity.rank not in waiting and busy_alone:
        return [activity.rank]
    if waiting and 0 not in waiting and busy_alone and activity.phase in MAIN_ONLY:
        return [0]
    return []
