"""Which candidate is the root cause, how sure that is, and why the others are not."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from diagnose.diagnosis import Confidence
from diagnose.infer.rules.base import Candidate, explains

# A cause may be this much weaker than what it explains away and still win.
_MARGIN = 2.5
_STRONG = 3.5
# Below this score a candidate does not make a verdict.
THRESHOLD = 1.0
# A bare exit status or a guess is no explanation for anything else.
_CAN_EXPLAIN = 2.0
# Classes that strike one process, so that its end tells which.
_STRIKES = ("crash.", "hw.", "net.", "data.loader", "env.", "checkpoint.")


def merge(candidates: list[Candidate]) -> list[Candidate]:
    """One candidate per cause class: the strongest, with the others' rows and culprits."""
    best: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: (-c.score, c.rows[:1])):
        known = best.get(candidate.cause)
        if known is None:
            best[candidate.cause] = replace(candidate)
            continue
        rows = list(dict.fromkeys([*known.rows, *candidate.rows]))[:10]
        same_voice = known.inferred == candidate.inferred
        known.rows = rows
        known.score += 0.25 if known.score - candidate.score < 3 else 0.0
        known.late = known.late and candidate.late
        known.explains = list(dict.fromkeys([*known.explains, *candidate.explains]))
        if not known.ranks or (same_voice and known.kind == candidate.kind):
            known.ranks = sorted({*known.ranks, *candidate.ranks})
            known.kind = known.kind or candidate.kind
            known.why = known.why or candidate.why
        if not known.hosts:
            known.hosts = candidate.hosts
        elif same_voice:
            known.hosts = sorted({*known.hosts, *candidate.hosts})
        known.remedies = known.remedies or candidate.remedies
    return list(best.values())


def rank(candidates: list[Candidate]) -> list[Candidate]:
    """Candidates by plausibility; every loser carries the reason in `lost`."""
    ordered = sorted(candidates, key=lambda c: (-c.score, c.late, c.rows[:1], c.cause))
    for candidate in ordered:
        for other in ordered:
            if other is candidate or other.lost or other.score < _CAN_EXPLAIN:
                continue
            margin = _MARGIN if other.score >= _STRONG else 0.0
            if not explains(other, candidate) or other.score < candidate.score - margin:
                continue
            if other.late and not candidate.late and other.score <= candidate.score:
                continue
            if explains(candidate, other) and candidate.score > other.score:
                continue
            candidate.lost = f"it follows from the verdict: {other.title}"
            break
    winners = [c for c in ordered if not c.lost]
    losers = [c for c in ordered if c.lost]
    if winners:
        for other in winners[1:]:
            other.lost = _why_behind(winners[0], other)
    return [*winners, *losers]


def _why_behind(winner: Candidate, other: Candidate) -> str:
    if other.late:
        return "its first sign comes after the first failure"
    if other.score <= 2.0 < winner.score:
        return "only a weak hint speaks for it"
    if winner.sure and not other.sure:
        return "the evidence for the root cause is decisive, this is circumstantial"
    if winner.rows and other.rows and winner.rows[0] < other.rows[0]:
        return "it shows only after the root cause"
    return "less of the evidence speaks for it"


def confidence(ranked: list[Candidate]) -> Confidence:
    """How sure the first of `ranked` is; `high` only for decisive, timely, unrivalled evidence."""
    winner = ranked[0]
    rivals = [c for c in ranked[1:] if not c.lost.startswith("it follows")]
    margin = winner.score - max((c.score for c in rivals), default=0.0)
    if winner.sure and winner.score >= 4.5 and margin >= 1.0 and not winner.late:
        return "high"
    if winner.score >= 3.5 and margin >= 0.0:
        return "medium"
    return "low"


def borrow_culprits(ranked: list[Candidate], frame: pd.DataFrame) -> None:
    """Name the rank of a cause whose own line carries none, where only one can be meant.

    What the root cause accounts for (a killed rank, an exception) names the rank it struck; else
    the only rank with an exception or a telling exit of its own does.
    """
    winner = ranked[0]
    if winner.ranks or winner.inferred:
        return
    if winner.cause.startswith("slow."):
        waited_for = next((c for c in ranked[1:] if c.ranks and c.kind == "slow"), None)
        if waited_for is not None:
            winner.ranks, winner.kind = waited_for.ranks, "slow"
            winner.why = waited_for.why
        return
    if not winner.cause.startswith(_STRIKES):
        return
    for other in ranked[1:]:
        struck = other.cause.startswith("crash.") and other.ranks and explains(winner, other)
        if struck and len(other.ranks) <= 2:
            winner.ranks, winner.kind, winner.why = other.ranks, "crashed", other.why
            winner.hosts = winner.hosts or other.hosts
            return
    if winner.cause in ("net.fabric", "net.socket"):
        return  # who raised first about a broken connection is as likely its victim
    for kind in ("exception", "exit"):
        rows = frame[(frame["kind"] == kind) & frame["rank"].notna()]
        rows = rows[~rows["role"].isin(["aftermath"])]
        ranks = {int(r) for r in rows["rank"]}
        if len(ranks) == 1:
            winner.ranks, winner.kind = sorted(ranks), winner.kind or "crashed"
            winner.why = f"the only rank with an {kind} of its own"
            return
