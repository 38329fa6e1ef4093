"""Which hypothesis is the root cause, how sure that is, and why the others are not.

Who was waited for, dumps say better than logs; what that rank was busy with, logs and stacks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from diagnose.diagnosis import Confidence
from diagnose.infer.events.failures import done, went_on
from diagnose.infer.events.onset import pending_since
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.rules.base import Basis, Context, Hypothesis, Lost, Tier, explains
from diagnose.stories.silence import Silence
from diagnose.timeline.event import Event, Timeline

_GOES_ON = 60_000_000_000  # a step so long after the onset is none of a hung job
# Evidence that only knows that a rank is stuck, and yields to what its stack or its lines show.
_OUTDONE: frozenset[Basis] = frozenset({"wait", "dump", "monitor"})
_ROWS = 10  # of evidence
_APART = 4  # tiers between two of a class of which the weaker one adds nothing


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
    """Whether nothing but the end of the log says that a call stood still.

    It is one that all have made, or that ranks made one after the other.
    """
    in_turn = verdict.kind == "network" or verdict.amid_round
    return in_turn and not context.failing and not context.halted


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


def merge(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """One hypothesis per cause class: the strongest, with the others' rows and culprits.

    A known issue of some versions stays by itself where something else of its class is stronger.
    """
    best: dict[str, Hypothesis] = {}
    for one in sorted(hypotheses, key=lambda c: (*_weight(c), c.rows[:1])):
        apart = one.hint and one.cause in best
        key = f"{one.cause} {one.signature}" if apart else one.cause
        known = best.get(key)
        if known is None:
            best[key] = replace(one)
            continue
        known.merged = [*known.merged, one]
        rows = list(dict.fromkeys([*known.rows, *one.rows]))[:_ROWS]
        same_voice = known.inferred == one.inferred
        known.rows = rows
        known.support += known.tier - one.tier < _APART
        known.late = known.late and one.late
        known.preceded_by &= one.preceded_by
        known.hung |= one.hung
        known.explains = list(dict.fromkeys([*known.explains, *one.explains]))
        if not known.ranks or (same_voice and known.kind == one.kind):
            known.ranks = sorted({*known.ranks, *one.ranks})
            known.kind = known.kind or one.kind
            known.why = known.why or one.why
        if known.ranks == one.ranks:
            known.devices = known.devices or one.devices
        if not known.hosts:
            known.hosts = one.hosts
        elif same_voice:
            known.hosts = sorted({*known.hosts, *one.hosts})
        known.remedies = known.remedies or one.remedies
    return list(best.values())


def _weight(one: Hypothesis) -> tuple[int, bool, bool, int]:
    """What is compared first; the least is the strongest.

    Within a tier the more specific comes first: what others know better comes last, and a known
    issue, all of whose conditions hold, says more than a class.
    """
    return -one.tier, one.vague, one.basis != "issue", -one.support


def rank(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses by plausibility; every loser carries the reason in `lost`."""
    ordered = sorted(hypotheses, key=lambda c: (*_weight(c), c.late, c.rows[:1], c.cause))
    for one in ordered:
        other = next((other for other in ordered if _accounts_for(other, one)), None)
        if other is not None:
            one.lost, one.lost_to = Lost.FOLLOWS, other
    winners = [c for c in ordered if not c.lost]
    losers = [c for c in ordered if c.lost]
    if winners:
        for other in winners[1:]:
            other.lost, other.lost_to = _why_lost(winners[0], other), winners[0]
    return [*winners, *losers]


def _accounts_for(other: Hypothesis, one: Hypothesis) -> bool:
    """Whether `one` is but a consequence of `other`, which still stands."""
    if other is one or other.lost or other.tier < Tier.WEAK:
        return False
    return ended(other, one) or (explains(other, one) and resists(one, other) is None)


def ended(one: Hypothesis, end: Hypothesis) -> bool:
    """Whether `end` is but how somebody ended a job that was seen to hang, or lacked a process."""
    if not end.outside or one.outside:
        return False
    return one.hung or (one.cause in end.preceded_by and one.tier >= Tier.LIKELY)


def resists(one: Hypothesis, other: Hypothesis) -> str | None:
    """The predicate by which `one` is no consequence of `other`, whose class explains it."""
    return next((name for name, holds in _RESISTS.items() if holds(one, other)), None)


def _is_stated_first(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether a process that states both stated this one first."""
    return one.cause in other.preceded_by and one.tier >= Tier.LIKELY


def _is_of_higher_tier(one: Hypothesis, other: Hypothesis) -> bool:
    return other.tier < min(one.tier, Tier.LIKELY)  # what is likely explains all tiers


def _is_seen_before(one: Hypothesis, other: Hypothesis) -> bool:
    return other.late and not one.late and other.tier <= one.tier


def _reads_closer(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether it is a known bug, which is no consequence of what the same line says otherwise."""
    same_line = set(other.rows) & set(one.rows)
    return one.basis == "issue" and _weight(one) < _weight(other) and bool(same_line)


def _explains_back(one: Hypothesis, other: Hypothesis) -> bool:
    if _says_why(one, other) or _is_elsewhere(other, one):
        return False
    return explains(one, other) and _leads(one, other) and not _died_first(other, one)


def _is_elsewhere(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether a rank was seen to be stuck on another host than that of which lines tell."""
    return (
        _seen_and_stated(one, other) and bool(one.hosts and other.hosts) and not _meet(one, other)
    )


def _says_why(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether lines of the same host or rank say why it is where its stack shows it."""
    return _seen_and_stated(one, other) and _meet(one, other)


def _seen_and_stated(one: Hypothesis, other: Hypothesis) -> bool:
    return one.basis == "stack" and other.basis == "line"


def _meet(one: Hypothesis, other: Hypothesis) -> bool:
    return bool({*one.ranks} & {*other.ranks} or {*one.hosts} & {*other.hosts})


def _leads(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether it is the stronger one of two, or of two as strong ones that which shows first."""
    if _weight(one) != _weight(other):
        return _weight(one) < _weight(other)
    return bool(one.rows and other.rows) and one.rows[0] < other.rows[0]


def _died_first(stated: Hypothesis, stall: Hypothesis) -> bool:
    """Whether it says how the ranks ended that others wait for, or known ones before any wait."""
    if stall.basis != "wait" or not stated.ranks or stated.tier < Tier.LIKELY:
        return False
    if set(stated.ranks) <= set(stall.ranks) and stated.basis in ("line", "exit"):
        return True
    return not stated.inferred and not stated.late


_RESISTS: Mapping[str, Callable[[Hypothesis, Hypothesis], bool]] = {
    "ended_by_it": ended,
    "explained_too_weakly": lambda one, other: other.tier < Tier.WEAK,
    "stated_first": _is_stated_first,
    "died_first": _died_first,
    "of_higher_tier": _is_of_higher_tier,
    "seen_before": _is_seen_before,
    "reads_closer": _reads_closer,
    "elsewhere": _is_elsewhere,
    "explains_back": _explains_back,
}


def lost_by(one: Hypothesis) -> str:
    """The predicate by which a hypothesis lost to `one.lost_to`."""
    other, lost = one.lost_to, one.lost or Lost.LESS
    if lost is not Lost.FOLLOWS or other is None:
        return lost.value
    if ended(other, one):
        return "ended_a_hang" if other.hung else "ended_after_a_death"
    if explains(one, other):
        return "explained_by_first_death" if _died_first(other, one) else "explained_by_stronger"
    return "explained" if other.tier >= one.tier else "explained_by_likely"


def _why_lost(winner: Hypothesis, other: Hypothesis) -> Lost:
    if other.late:
        return Lost.LATE
    if other.tier <= Tier.WEAK < winner.tier:
        return Lost.WEAK
    if winner.sure and not other.sure:
        return Lost.CIRCUMSTANTIAL
    if winner.rows and other.rows and winner.rows[0] < other.rows[0]:
        return Lost.AFTER
    return Lost.LESS


class Condition(NamedTuple):
    """A condition of a level of confidence; `text` says by which numbers it is met or not."""

    level: Confidence
    predicate: str
    met: bool
    text: str


def conditions(ranked: list[Hypothesis], *, known: bool = True) -> list[Condition]:
    """`high` only for decisive, timely, unrivalled evidence; `medium` for strong evidence.

    Neither where it is not `known` whether the job hung or failed at all.
    """
    winner = ranked[0]
    others = (c for c in ranked[1:] if c.cause != winner.cause)
    rivals = [c for c in others if c.lost is not Lost.FOLLOWS]
    best = max(rivals, key=lambda rival: rival.tier, default=None)
    tier = f"its tier is {winner.tier.word}"
    lead = "every rival is its consequence" if ranked[1:] else "it has no rival"
    if best is not None:
        lead = f"the tier of its rival {best.cause} is {best.tier.word}"
    proof = "proves" if winner.sure else "does not prove"
    timely = "comes after" if winner.late else "is no later than"
    high, medium = Tier.OBSERVED, Tier.LIKELY
    ahead = best is None or best.tier < winner.tier
    return [
        Condition("high", "proven", winner.sure, f"its evidence {proof} the class by itself"),
        Condition("high", "tier", winner.tier >= high, f"{tier}, high needs {high.word}"),
        Condition("high", "lead", ahead, f"{lead}, high needs that all rivals are of a lower tier"),
        Condition("high", "timely", not winner.late, f"its first line {timely} the first failure"),
        Condition("medium", "tier", winner.tier >= medium, f"{tier}, medium needs {medium.word}"),
        *([] if known else [Condition("medium", "verdict", False, "the verdict is not known")]),
    ]


def confidence(asked: list[Condition]) -> Confidence:
    """The highest level all of whose conditions are met."""
    failed = {condition.level for condition in asked if not condition.met}
    if "high" not in failed:
        return "high"
    return "medium" if "medium" not in failed else "low"
