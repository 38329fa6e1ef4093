"""Evidence of several kinds about the same ranks: which says better what.

Who was waited for, dumps say better than logs; what that rank was busy with, logs and stacks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from diagnose.infer.collectives.verdict import DumpVerdict
from diagnose.infer.events.failures import done, went_on
from diagnose.infer.events.stalled import Stall
from diagnose.infer.events.watchdogs import stalled_groups
from diagnose.infer.rules.base import Basis, Context, Hypothesis
from diagnose.infer.rules.collectives import onset
from diagnose.timeline.event import Timeline

_GOES_ON = 60_000_000_000  # a step so long after the onset is none of a hung job
_TOLD_BY_DUMPS = ("desync.missing_rank", "desync.mismatch", "unknown")
_VAGUE = ("stall.host", "desync.missing_rank")
# Evidence that only knows that a rank is stuck, and yields to what its stack shows.
_OUTDONE: frozenset[Basis] = frozenset({"wait", "dump", "monitor"})


class Dropped(NamedTuple):
    """A hypothesis that is not weighed, the predicate that says so, and what knows better."""

    hypothesis: Hypothesis
    predicate: str
    by: Hypothesis | None = None


def fused(
    hypotheses: Iterable[Hypothesis], context: Context
) -> tuple[list[Hypothesis], list[Dropped]]:
    """The hypotheses without those that another kind of evidence tells better, and these."""
    found, kept, dropped = list(hypotheses), [], []
    by_dumps = next((h for h in found if h.basis == "dump"), None)
    by_stacks = [h for h in found if h.basis == "stack"]
    for one in found:
        by_stack = _outdone_by(one, by_stacks) if one.basis in _OUTDONE else None
        if context.blocked is not None and one.basis == "wait" and one.cause in _TOLD_BY_DUMPS:
            dropped.append(Dropped(one, "dumps_know_who", by_dumps))
        elif by_stack is not None:
            dropped.append(Dropped(one, "stacks_know_what", by_stack))
        else:
            kept.append(one)
    return kept, dropped


def _outdone_by(hypothesis: Hypothesis, by_stacks: Sequence[Hypothesis]) -> Hypothesis | None:
    """What stacks of the same ranks show, where one only knows these to be stuck."""
    if hypothesis.cause not in _VAGUE:
        return None
    ranks = set(hypothesis.ranks)
    others = (other for other in by_stacks if other.cause != hypothesis.cause)
    return next((other for other in others if ranks & set(other.ranks)), None)


def believed(
    verdict: DumpVerdict | None, context: Context, *, passing: bool, stood: bool = False
) -> DumpVerdict | None:
    """What dumps say, None where the logs show that the job went on.

    A dump taken on demand of a job at work lists operations in flight as well, and in the last
    lines of a log ranks are never quite at the same call: those count only in a job that failed,
    or that shows no step; and where all members are in the same call, a log that is cut there looks
    no other. `passing`: counters were read in passing; `stood`: no rank moved between two looks at
    them. Where there are only counters, watchdogs of more ranks than have them know better who is
    missing.
    """
    if verdict is None or disbelieved(verdict, context) is not None:
        return None
    doubtful = not context.alive and (passing or not (context.failing or stood))
    return replace(verdict, sure=False) if doubtful else verdict


def disbelieved(verdict: DumpVerdict, context: Context) -> str | None:
    """The predicate by which what dumps say does not count; None where it does."""
    if context.alive:
        stepped = not context.failing and _stepped_since(verdict, context.timeline)
        return "stepped_since" if stepped else None
    if _cut_amid(verdict, context):
        return "cut_amid_a_call"
    return "outvoted_by_watchdogs" if _outvoting(verdict, context) else None


def _cut_amid(verdict: DumpVerdict, context: Context) -> bool:
    """Whether nothing but the end of the log says that a call which all have made stood still."""
    return verdict.kind == "network" and not context.failing


def overruled(verdict: DumpVerdict | None, context: Context) -> list[str]:
    """What watchdogs say against the counters, as a note, where they are believed instead."""
    if verdict is None or context.alive:
        return []
    return [
        f"the watchdogs and the call lines disagree: according to the watchdogs, {stall.why}; "
        f"according to the call lines, {verdict.why}; more ranks have a watchdog line"
        for stall in _outvoting(verdict, context)[:1]
    ]


def _outvoting(verdict: DumpVerdict, context: Context) -> list[Stall]:
    """Stalls in which who is blamed by counters waits by its own watchdog, for somebody else."""
    counted = sum(role != "no dump" for role in verdict.roles.values())
    return [
        stall
        for stall in stalled_groups(context.timeline, context.facts.world_size)
        if stall.shape == "missing"
        and stall.proven
        and len(stall.joined) > counted
        and set(verdict.ranks) <= set(stall.joined)
    ]


def worth_analysis(context: Context) -> bool:
    """Whether dumps may say more than that the job was at work."""
    if done(context.stories):
        return False
    return context.alive or bool(context.failing) or not went_on(context.stories)


def _stepped_since(verdict: DumpVerdict, timeline: Timeline) -> bool:
    """Whether the log has steps from long after the operation that the dumps show pending."""
    began = onset(verdict, timeline).time
    return began is not None and any(
        event.time is not None and event.time > began + _GOES_ON
        for event in timeline.kind("progress")
    )
