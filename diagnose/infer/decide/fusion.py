"""Evidence of several kinds about the same ranks: which says better what.

Who was waited for, dumps say better than logs; what that rank was busy with, logs and stacks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from diagnose.infer.events.failures import done, went_on
from diagnose.infer.events.onset import pending_since
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.rules.base import Basis, Context, Hypothesis
from diagnose.infer.tiers import Tier
from diagnose.stories.silence import Silence
from diagnose.timeline.event import Event, Timeline

_GOES_ON = 60_000_000_000  # a step so long after the onset is none of a hung job
# Evidence that only knows that a rank is stuck, and yields to what its stack or its lines show.
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
    busy = [h for h in found if h.basis == "stack" or (h.basis == "wait" and classes[h.cause].busy)]
    stated = [one for one in context.proposed if not (one.outside or classes[one.cause].vague)]
    for one in found:
        trouble = _silenced_by(stated, context) if one.basis == "silence" else None
        if trouble is not None:
            trouble.hung = True  # so that whoever ended the silent job is no cause of it
            dropped.append(Dropped(one, "silent_since_trouble", trouble))
            continue
        vague = classes[one.cause].vague and one.basis in _OUTDONE
        by_work = _outdone_by(one, busy) if vague else None
        if by_work is not None:
            by = "stacks_know_what" if by_work.basis == "stack" else "lines_know_what"
            dropped.append(Dropped(one, by, by_work))
        else:
            kept.append(one)
    return kept, dropped


def _silenced_by(stated: Sequence[Hypothesis], context: Context) -> Hypothesis | None:
    """What a process stated before all fell silent, who waited for it.

    It came soon after the last progress or, where its line has no time, is the first line below it.
    """
    silence, timeline = context.silence, context.timeline
    if silence is None or not silence.whole:
        return None
    for one in (cause for cause in stated if cause.tier >= Tier.LIKELY and not cause.late):
        first = timeline.at(min(one.rows))
        stack = context.stories.deeds.raised.stacks.get(first.index)
        first = stack.header if stack is not None else first
        before = silence.ended is None or first.index <= silence.ended.index
        if before and (None in (first.time, silence.last.time) or _soon(first, silence)):
            return one
    return None


def _soon(trouble: Event, silence: Silence) -> bool:
    """Whether trouble came in the first half of a silence, and did not end it."""
    since = (trouble.time or 0) - (silence.last.time or 0)
    return since < (silence.seconds or 0) * 1e9 / 2


def _outdone_by(hypothesis: Hypothesis, by_work: Sequence[Hypothesis]) -> Hypothesis | None:
    """What stacks or lines show of the work of the same ranks, where one only knows them stuck."""
    ranks = set(hypothesis.ranks)
    others = (other for other in by_work if other.cause != hypothesis.cause)
    return next((other for other in others if ranks & set(other.ranks)), None)


def believed(
    verdict: Verdict | None, context: Context, *, passing: bool, halted: bool = False
) -> Verdict | None:
    """What dumps say, None where the logs show that the job went on.

    A dump taken on demand of a job at work lists operations in flight as well, and in the last
    lines of a log ranks are never quite at the same call: those count only in a job that failed,
    or that shows no step; and where all members are in the same call, a log that is cut there looks
    no other. `passing`: counters were read in passing; `halted`: no rank moved between two looks at
    them.
    """
    if verdict is None or disbelieved(verdict, context) is not None:
        return None
    doubtful = not context.alive and (passing or not (context.failing or halted))
    return replace(verdict, sure=False) if doubtful else verdict


def disbelieved(verdict: Verdict, context: Context) -> str | None:
    """The predicate by which what dumps say does not count; None where it does."""
    if context.alive:
        stepped = not context.failing and _stepped_since(verdict, context.timeline)
        return "stepped_since" if stepped else None
    return "cut_amid_a_call" if _cut_amid(verdict, context) else None


def _cut_amid(verdict: Verdict, context: Context) -> bool:
    """Whether nothing but the end of the log says that a call which all have made stood still."""
    return verdict.kind == "network" and not context.failing and not context.halted


def worth_analysis(context: Context) -> bool:
    """Whether dumps may say more than that the job was at work.

    Where no counter moved between two reports, no step that is told of came after them.
    """
    if context.halted:
        return True
    if done(context.stories):
        return False
    return context.alive or bool(context.failing) or not went_on(context.stories)


def _stepped_since(verdict: Verdict, timeline: Timeline) -> bool:
    """Whether the log has steps from long after the operation that the dumps show pending."""
    began = pending_since(timeline, verdict.group, verdict.seq).time
    return began is not None and any(
        event.time is not None and event.time > began + _GOES_ON
        for event in timeline.kind("progress")
    )
