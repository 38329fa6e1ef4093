"""Which hypothesis is the root cause, how sure that is, and why the others are not."""

from __future__ import annotations

from dataclasses import replace

from diagnose.diagnosis import Confidence
from diagnose.infer import scoring
from diagnose.infer.rules.base import Hypothesis, Lost, explains

_ROWS = 10  # of evidence


def merge(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """One hypothesis per cause class: the strongest, with the others' rows and culprits.

    A known issue of some versions stays by itself where something else of its class is stronger.
    """
    best: dict[str, Hypothesis] = {}
    for one in sorted(hypotheses, key=lambda c: (-c.score, c.rows[:1])):
        apart = one.hint and one.cause in best
        key = f"{one.cause} {one.signature}" if apart else one.cause
        known = best.get(key)
        if known is None:
            best[key] = replace(one)
            continue
        rows = list(dict.fromkeys([*known.rows, *one.rows]))[:_ROWS]
        same_voice = known.inferred == one.inferred
        known.rows = rows
        behind = known.score - one.score
        known.score += scoring.CORROBORATED if behind < scoring.APART else 0.0
        known.late = known.late and one.late
        known.behind &= one.behind
        known.explains = list(dict.fromkeys([*known.explains, *one.explains]))
        if not known.ranks or (same_voice and known.kind == one.kind):
            known.ranks = sorted({*known.ranks, *one.ranks})
            known.kind = known.kind or one.kind
            known.why = known.why or one.why
        if not known.hosts:
            known.hosts = one.hosts
        elif same_voice:
            known.hosts = sorted({*known.hosts, *one.hosts})
        known.remedies = known.remedies or one.remedies
    return list(best.values())


def rank(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses by plausibility; every loser carries the reason in `lost`."""
    ordered = sorted(hypotheses, key=lambda c: (-c.score, c.late, c.rows[:1], c.cause))
    for one in ordered:
        other = next((other for other in ordered if _accounts_for(other, one)), None)
        if other is not None:
            one.lost, one.lost_to = Lost.FOLLOWS, other.title
    winners = [c for c in ordered if not c.lost]
    losers = [c for c in ordered if c.lost]
    if winners:
        for other in winners[1:]:
            other.lost = _why_behind(winners[0], other)
    return [*winners, *losers]


def _accounts_for(other: Hypothesis, one: Hypothesis) -> bool:
    """Whether `one` is but a consequence of `other`, which still stands."""
    if other is one or other.lost or other.score < scoring.CAN_EXPLAIN:
        return False
    if one.cause in other.behind and one.score >= scoring.STRONG:
        return False  # a process that states both stated this one first
    if _died_first(one, other):
        return False
    margin = scoring.MARGIN if other.score >= scoring.STRONG else 0.0
    if not explains(other, one) or other.score < one.score - margin:
        return False
    if other.late and not one.late and other.score <= one.score:
        return False
    # A known bug reads the same line more closely; it is no consequence of what the line says.
    if one.rule == "known_issues" and other.score < one.score and set(other.rows) & set(one.rows):
        return False
    return not explains(one, other) or one.score <= other.score or _died_first(other, one)


def _died_first(stated: Hypothesis, stall: Hypothesis) -> bool:
    """Whether known ranks stated a cause before any wait had ended: they waited for nobody."""
    in_time = not stated.late and stated.score >= scoring.STRONG
    return stall.rule == "stalls" and not stated.inferred and bool(stated.ranks) and in_time


def _why_behind(winner: Hypothesis, other: Hypothesis) -> Lost:
    if other.late:
        return Lost.LATE
    if other.score <= scoring.WEAK_HINT < winner.score:
        return Lost.WEAK
    if winner.sure and not other.sure:
        return Lost.CIRCUMSTANTIAL
    if winner.rows and other.rows and winner.rows[0] < other.rows[0]:
        return Lost.AFTER
    return Lost.LESS


def confidence(ranked: list[Hypothesis]) -> Confidence:
    """How sure the first of `ranked` is; `high` only for decisive, timely, unrivalled evidence."""
    winner = ranked[0]
    others = (c for c in ranked[1:] if c.cause != winner.cause)
    rivals = [c for c in others if c.lost is not Lost.FOLLOWS]
    margin = winner.score - max((c.score for c in rivals), default=0.0)
    if (
        winner.sure
        and winner.score >= scoring.HIGH
        and margin >= scoring.HIGH_MARGIN
        and not winner.late
    ):
        return "high"
    if winner.score >= scoring.STRONG and margin >= 0.0:
        return "medium"
    return "low"
