"""Evidence of several kinds about the same ranks: which says better what.

Who was waited for, dumps say better than logs; what that rank was busy with, logs and stacks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from diagnose.infer.collectives.verdict import DumpVerdict
from diagnose.infer.events.failures import done, went_on
from diagnose.infer.rules.base import Basis, Context, Hypothesis
from diagnose.infer.rules.collectives import onset
from diagnose.timeline.event import Timeline

_GOES_ON = 60_000_000_000  # a step so long after the onset is none of a hung job
# Evidence that only knows that a rank is stuck, and yields to what its stack or its lines show.
_WAITS: frozenset[Basis] = frozenset({"wait", "agreeing_wait"})
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
    classes = context.catalog.classes
    busy = [h for h in found if h.basis == "stack" or (h.basis in _WAITS and classes[h.cause].busy)]
    for one in found:
        vague = classes[one.cause].vague and one.basis in _OUTDONE
        by_work = _outdone_by(one, busy) if vague else None
        if by_work is not None:
            by = "stacks_know_what" if by_work.basis == "stack" else "lines_know_what"
            dropped.append(Dropped(one, by, by_work))
        else:
            kept.append(one)
    return kept, dropped


def _outdone_by(hypothesis: Hypothesis, by_work: Sequence[Hypothesis]) -> Hypothesis | None:
    """What stacks or lines show of the work of the same ranks, where one only knows them stuck."""
    ranks = set(hypothesis.ranks)
    others = (other for other in by_work if other.cause != hypothesis.cause)
    return next((other for other in others if ranks & set(other.ranks)), None)


def believed(
    verdict: DumpVerdict | None, context: Context, *, passing: bool, stood: bool = False
) -> DumpVerdict | None:
    """What dumps say, None where the logs show that the job went on.

    A dump taken on demand of a job at work lists operations in flight as well, and in the last
    lines of a log ranks are never quite at the same call: those count only in a job that failed,
    or that shows no step; and where all members are in the same call, a log that is cut there looks
    no other. `passing`: counters were read in passing; `stood`: no rank moved between two looks at
    them.
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
    return "cut_amid_a_call" if _cut_amid(verdict, context) else None


def _cut_amid(verdict: DumpVerdict, context: Context) -> bool:
    """Whether nothing but the end of the log says that a call which all have made stood still."""
    return verdict.kind == "network" and not context.failing and not context.stood


def worth_analysis(context: Context) -> bool:
    """Whether dumps may say more than that the job was at work.

    Where no counter moved between two reports, no step that is told of came after them.
    """
    if context.stood:
        return True
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
