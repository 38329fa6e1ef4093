"""Causes that no line states: why a collective stopped, from who stood where.

Mismatches come from comparing ranks; a missing rank is explained by what was going on at the
onset: work that one rank does while the others wait, or nothing that anybody shows. Dumps prove
whom the others wait for, whatever it was at, so both is proposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import CulpritKind
from diagnose.infer.events.onset import MAIN_ONLY, doing
from diagnose.infer.judge.verdict import DIFFER, Kind, Verdict
from diagnose.infer.rules.awaited import Finding, at_work, early_barrier, shown, uneven
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.tiers import Tier
from diagnose.stories.story import Story
from diagnose.text.ranks import ranks_phrase

# Steps between the last ones of two ranks that no delay of a log explains.
_APART = 5


# How far the evidence reaches where it is sure, and where it is not.
TIERS: Mapping[Finding, tuple[Tier, Tier]] = {
    "mismatched": (Tier.OBSERVED, Tier.STRONG),
    "cycle": (Tier.STRONG, Tier.LIKELY),
    "missing": (Tier.STRONG, Tier.CIRCUMSTANTIAL),
    "stuck_host": (Tier.STRONG, Tier.LIKELY),
    "stuck_device": (Tier.STRONG, Tier.LIKELY),
    "network": (Tier.CIRCUMSTANTIAL, Tier.CIRCUMSTANTIAL),
    "no_network": (Tier.WEAK, Tier.WEAK),  # on one host
}
_KIND: Mapping[Kind, CulpritKind] = {
    "missing": "missing", "stuck_host": "stuck_host", "stuck_device": "stuck_device",
    "mismatched": "mismatched",
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
}
_NOT_CALLED = (
    "it never made the call its peers are waiting in",
    "they never made the call their peers are waiting in",
)


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
