"""Causes that no line states: why a collective stopped, from who stood where.

Mismatches come from comparing ranks; a missing rank is explained by what was going on at the
onset: work that it does for all while the others wait, more or less work of its own, or nothing
that anybody shows. Dumps prove whom the others wait for, whatever it was at: both is proposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from diagnose.catalog.schema import UNKNOWN, Catalog
from diagnose.diagnosis import CulpritKind
from diagnose.infer.events.onset import BUSY, MAIN_ONLY, Activity, doing
from diagnose.infer.judge.verdict import DIFFER, Kind, Verdict
from diagnose.infer.rules.base import Context, Hypothesis, Tier, inferred
from diagnose.stories.story import Stories, Story
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
# Steps between the last ones of two ranks that no delay of a log explains.
_APART = 5
# How far the evidence reaches where it is sure, and where it is not.
TIERS: Mapping[Finding, tuple[Tier, Tier]] = {
    "mismatched": (Tier.OBSERVED, Tier.STRONG),
    "cycle": (Tier.STRONG, Tier.LIKELY),
    "deadlock": (Tier.OBSERVED, Tier.STRONG),
    "missing": (Tier.STRONG, Tier.CIRCUMSTANTIAL),
    "stuck_host": (Tier.STRONG, Tier.LIKELY),
    "stuck_device": (Tier.STRONG, Tier.LIKELY),
    "network": (Tier.CIRCUMSTANTIAL, Tier.CIRCUMSTANTIAL),
    "no_network": (Tier.WEAK, Tier.WEAK),  # on one host
}
_KIND: Mapping[Kind, CulpritKind] = {
    "missing": "missing", "stuck_host": "stuck_host", "stuck_device": "stuck_device",
    "mismatched": "mismatched", "deadlock": "mismatched",
}  # fmt: skip
# Why one culprit is one, and why several are.
_WHY: Mapping[Kind, tuple[str, str]] = {
    "stuck_host": (
        "idle; never launched the collective its peers are waiting on",
        "idle; never launched the collective their peers are waiting on",
    ),
    "stuck_device": (
        "it launched the same operations as its peers, and only its device did not finish",
        "they launched the same operations as their peers, and only their devices did not finish",
    ),
    "mismatched": (
        "its calls differ from those of its group",
        "their calls differ from those of their groups",
    ),
    "deadlock": (
        "it entered these groups in another order than its peers, or left a call out",
        "they entered these groups in another order than their peers, or left a call out",
    ),
}
_NOT_CALLED = (
    "it never made the call its peers are waiting in",
    "they never made the call their peers are waiting in",
)


def at_work(stall: Verdict, context: Context) -> Hypothesis | None:
    """What the rank that all others wait for was doing, as far as lines show it."""
    activity, catalog = context.activity, context.catalog
    waiting = {rank for rank in stall.waiting if rank >= 0}
    who = _who(stall, activity)
    done = sorted(_finished(context.timeline) & set(stall.absent or who))
    if done:
        return uneven(stall, done, catalog, "reached the end of its work")
    ahead = _evaluating(activity, waiting, context.stories)
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


def _evaluating(activity: Activity, waiting: set[int], stories: Stories) -> int | None:
    """The rank that had gone on to evaluation after fewer steps than others had trained.

    Only where that rank and others tell of their own steps: else it is work that one rank does for
    all, and after as many steps as the others it is one that all of them come to.
    """
    if activity.phase != "evaluation" or activity.rank is None or activity.rank in waiting:
        return None
    steps = {rank: one.step for rank, one in stories.of_ranks.items() if one.step is not None}
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


def propose(context: Context) -> Iterator[Hypothesis]:
    """What follows from each group that stopped."""
    for verdict in context.stalls:
        busy = None if verdict.kind in DIFFER else at_work(verdict, context)
        if busy is not None:
            yield replace(busy, basis="wait")
        if verdict.by_dumps:
            yield _dumped(verdict, context)
        elif busy is None:
            yield replace(_by_lines(verdict, context), basis="wait")


def _dumped(verdict: Verdict, context: Context) -> Hypothesis:
    """What dumps or counters show by themselves.

    On a single host an operation that all joined and nobody finished is no matter of the network.
    Who writes a dump is alive; of who only stopped to log calls nothing of the kind is known.
    """
    kind, catalog, host_of = verdict.kind, context.catalog, context.timeline.hosts_of_ranks
    whys = _WHY.get(kind, (verdict.why, verdict.why))
    if kind == "stuck_host" and not context.alive:
        kind, whys = "missing", _NOT_CALLED
    one_host = kind == "network" and len(set(host_of.values())) == 1
    finding: Finding = "no_network" if one_host else kind
    summary = f"{verdict.why[:1].upper()}{verdict.why[1:]}."
    found = shown(finding, TIERS[finding][not verdict.sure], catalog, summary, verdict)
    found.basis, found.ranks = "dump", [*verdict.ranks]
    found.hosts = sorted({host_of[rank] for rank in verdict.ranks if rank in host_of})
    found.kind = _KIND.get(kind) if verdict.ranks else None
    found.why = whys[len(verdict.ranks) != 1] if verdict.ranks else ""
    found.sure = verdict.sure and kind == "mismatched"
    return found


def _by_lines(verdict: Verdict, context: Context) -> Hypothesis:
    """What lines show of ranks that wait, where nobody is seen at work."""
    if verdict.kind in DIFFER:
        return _mismatch(verdict, context)
    if verdict.kind == "all_joined" and not context.activity.moving:
        return _joined(verdict, context.catalog)
    return early_barrier(verdict, context) or _absent(verdict, context.catalog)


def _mismatch(stall: Verdict, context: Context) -> Hypothesis:
    activity, catalog = context.activity, context.catalog
    ahead = _gone_on(stall, context.stories.of_ranks) if stall.kind == "conditional" else []
    if ahead:
        return uneven(stall, ahead, catalog, "had gone on to evaluation")
    finding: Finding = "mismatched"
    tier = Tier.OBSERVED
    summary = f"{stall.why[:1].upper()}{stall.why[1:]}."
    if stall.kind == "conditional":
        finding = "conditional"
        summary = (
            "Ranks took different branches: some wait in a barrier while others run a larger "
            "collective that only they entered."
        )
    elif stall.kind == "deadlock":
        finding, tier = "deadlock", TIERS["deadlock"][not stall.sure]
    elif stall.kind == "shifted":
        finding, tier = "shifted", Tier.LIKELY
        apart = _steps_apart(context.stories.of_ranks)
        if apart:
            finding = "uneven"
            summary = f"Ranks made different numbers of steps ({apart}), and {stall.why}."
        elif activity.phase in MAIN_ONLY:
            finding = "conditional"
            summary = f"Ranks are one collective apart around {doing(activity.phase)}: {stall.why}."
    found = shown(finding, tier, catalog, summary, stall)
    if finding == "uneven":  # an earlier call is not the fault of who waits in it
        return found
    found.ranks = [*stall.ranks]
    found.kind = "mismatched" if stall.ranks else None
    found.why = f"{ranks_phrase(stall.ranks)} diverged from the other ranks" * bool(stall.ranks)
    found.sure = stall.sure and stall.kind != "shifted"
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


def _gone_on(stall: Verdict, stories: Mapping[int, Story]) -> list[int]:
    """Ranks in the barrier that say themselves that they evaluate, while others still train.

    Rank 0 evaluates for all others where that is its work: a branch, and not less work.
    """
    at_barrier = {rank for rank, wait in stall.waits.items() if wait.tiny}
    ahead = [r for r in sorted(at_barrier) if r in stories and stories[r].phase == "evaluation"]
    rest = set(stall.waits) - at_barrier
    alike = any(r in stories and stories[r].phase == "evaluation" for r in rest)
    return [] if ahead == [0] or alike else ahead


def _absent(stall: Verdict, catalog: Catalog) -> Hypothesis:
    if stall.ranks and stall.all_but_one:
        return _alone(stall, catalog)
    tier = TIERS["missing"][not stall.sure]
    if stall.absent:
        names = ranks_phrase(stall.absent)
        never = "never reached" if stall.ranks else "probably never reached"
        summary = f"{names.capitalize()} {never} {stall.phrase}; the reason is not logged."
    else:
        summary = f"Ranks timed out in {stall.phrase}; the log does not show which rank is missing."
        tier = Tier.GUESS
    found = shown("missing", tier, catalog, summary, stall)
    found.ranks, found.kind = [*stall.ranks], "missing" if stall.ranks else None
    found.why = stall.why if stall.ranks else ""
    return found


def _alone(stall: Verdict, catalog: Catalog) -> Hypothesis:
    """One rank waits for all others: it took a branch that they did not, or they all stopped."""
    known = [rank for rank in stall.waiting if rank >= 0]
    summary = (
        f"{ranks_phrase(known).capitalize() if known else 'One rank'} alone reached "
        f"{stall.phrase}: either only its code goes there, or all others stopped before; the "
        "reason is not logged."
    )
    return shown("missing", Tier.STRONG, catalog, summary, stall)


def _joined(stall: Verdict, catalog: Catalog) -> Hypothesis:
    summary = (
        f"All ranks of the group joined {stall.phrase} and none finished it: check network, "
        "GPU and driver; no rank is missing. The log does not show which of them failed."
    )
    return shown("all_joined", Tier.WEAK, catalog, summary, stall)
