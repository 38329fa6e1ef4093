"""Reasons about hypotheses: who proposed which class on what, and what each one lost to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from diagnose.diagnosis import Outcome, Reason, Step
from diagnose.infer.advise.narrative import clean
from diagnose.infer.decide import ranking
from diagnose.infer.decide.fusion import Dropped
from diagnose.infer.rules.base import Hypothesis, explains
from diagnose.infer.why.events import places_of
from diagnose.text.ranks import plural
from diagnose.timeline.event import Timeline

MAX_RIVALS, MAX_PROPOSALS = 20, 40

_LOST = {
    "explained": "a consequence of {0}, whose class explains it",
    "explained_by_likely": "a consequence of {0}, which is likely enough to explain a class "
    "of a higher tier",
    "explained_by_stronger": "each explains the other, and {0} is at least as strong",
    "explained_by_first_death": "each explains the other, and ranks of {0} died before any wait "
    "ended",
    "ended_a_hang": "the job was seen to hang before somebody ended it: see {0}",
    "ended_after_a_death": "a process had died before somebody ended the job: see {0}",
    "seen_late": "its first line comes after the first failure, unlike {0}",
    "weak_evidence": "its evidence is only a weak hint, that of {0} is more",
    "circumstantial": "its evidence is circumstantial, that of {0} proves the class",
    "seen_after": "its first line comes after that of {0}",
    "less_evidence": "its evidence weighs less than that of {0}",
}
_RESISTED = {
    "ended_by_it": "{0} would explain it, but only ended the job that this one had stopped",
    "explained_too_weakly": "{0} would explain it, but is too weak to explain anything",
    "stated_first": "{0} would explain it, but the same process stated this one first",
    "died_first": "{0} would explain it, but its ranks died before any wait ended",
    "of_higher_tier": "{0} would explain it, but is of a lower tier, and not likely",
    "seen_before": "{0} would explain it, but appears only after the first failure",
    "reads_closer": "{0} would explain it, but this known issue matches the same line more closely",
    "explains_back": "each explains the other, and this one is stronger",
}
_DROPPED = {
    "stacks_know_what": "stacks of the same ranks show better what they were doing",
    "lines_know_what": "lines of the same ranks show better what they were doing",
    "silent_since_trouble": "the job fell silent when a process had stated this",
    "below_threshold": "what was weighed leaves it no tier, too little for a verdict",
}
_DISBELIEVED = {
    "stepped_since": "steps were made after the operation that the dumps show as pending",
    "cut_amid_a_call": "all ranks made the same call, and the log may just end there",
}


def rival_reasons(ranked: Sequence[Hypothesis], timeline: Timeline) -> list[Reason]:
    """What each of the losers lost to, and whose consequence the winner is not."""
    winner, losers = ranked[0], ranked[1:]
    found = [_lost(one, one.lost_to or winner, timeline) for one in losers[:MAX_RIVALS]]
    return [*found, *_left_out("rival", len(losers), MAX_RIVALS), *_resisted(winner, losers)]


def _lost(one: Hypothesis, other: Hypothesis, timeline: Timeline) -> Reason:
    predicate = ranking.lost_by(one)
    return Reason(
        "rival", "lost", one.cause, predicate, _LOST[predicate].format(_name(other)),
        rule=one.rule, signature=one.signature, beaten_by=other.cause, tier=one.tier.word,
        places=places_of(one.rows, timeline), count=len(one.rows),
    )  # fmt: skip


def _resisted(winner: Hypothesis, losers: Iterable[Hypothesis]) -> Iterator[Reason]:
    for other in losers:
        predicate = ranking.resists(winner, other) if explains(other, winner) else None
        if predicate is not None:
            yield Reason(
                "rival", "resisted", winner.cause, predicate,
                _RESISTED[predicate].format(_name(other)), rule=winner.rule, tier=winner.tier.word,
            )  # fmt: skip


def proposal_reasons(
    hypotheses: Sequence[Hypothesis],
    ranked: Sequence[Hypothesis],
    dropped: Sequence[Dropped],
    timeline: Timeline,
) -> list[Reason]:
    """What every rule proposed, and what of it was merged into another or not weighed."""
    merged = {id(one): kept for kept in ranked for one in kept.merged}
    gone = {id(one.hypothesis): one for one in dropped}
    found = [
        _proposal(one, merged.get(id(one)), gone.get(id(one)), timeline)
        for one in hypotheses[:MAX_PROPOSALS]
    ]
    return [*found, *_left_out("proposal", len(hypotheses), MAX_PROPOSALS)]


def _proposal(
    one: Hypothesis, kept: Hypothesis | None, gone: Dropped | None, timeline: Timeline
) -> Reason:
    outcome: Outcome = "proposed"
    predicate, why, other = one.rule, "", None
    if gone is not None:
        outcome, predicate, other = "dropped", gone.predicate, gone.by
        why = f" Not weighed: {_DROPPED[gone.predicate]}."
    elif kept is not None:
        outcome, predicate, other = "merged", "same_class", kept
        why = f" Its lines and ranks support {_name(kept)}."
    return Reason(
        "proposal", outcome, one.cause, predicate, f"{clean(one.summary)}{why}{grounds_of(one)}",
        rule=one.rule, signature=one.signature, beaten_by=other.cause if other else None,
        tier=one.tier.word, places=places_of(one.rows, timeline), count=len(one.rows),
    )  # fmt: skip


def grounds_of(one: Hypothesis) -> str:
    """The tier and what was weighed to give it, where that is more than the rule."""
    found = [*one.grounds, *(["corroborated"] if one.merged and one.support else [])]
    if len(found) < 2:
        return ""
    grounds = ", ".join(ground.replace("_", " ") for ground in found)
    return f" Tier: {one.tier.word} ({grounds})."


def disbelieved_reason(predicate: str) -> Reason:
    """Why what dumps say about a hang does not count."""
    text = f"What dumps or counters show is not weighed: {_DISBELIEVED[predicate]}."
    return Reason("proposal", "dropped", "collectives", predicate, text, rule="collectives")


def _name(one: Hypothesis) -> str:
    return f"{one.cause} ({one.signature})" if one.signature else one.cause


def _left_out(step: Step, count: int, shown: int) -> list[Reason]:
    if count <= shown:
        return []
    more = count - shown
    text = f"{more:,} more {plural(more, 'hypothesis', 'hypotheses')} not listed"
    return [Reason(step, "left_out", "", "no_room", text, count=more)]
