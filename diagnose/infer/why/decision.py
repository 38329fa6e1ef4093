"""Reasons about the decision: what won, whom it names, how sure it is, what rivals lost to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from diagnose.diagnosis import (
    Confidence,
    Culprits,
    Evidence,
    Outcome,
    Reason,
    SourceLine,
    Step,
    Verdict,
)
from diagnose.infer.advise.narrative import clean
from diagnose.infer.decide import ranking
from diagnose.infer.decide.culprits import Naming
from diagnose.infer.decide.ranking import Condition, Dropped
from diagnose.infer.rules.base import Context, Hypothesis, explains
from diagnose.infer.why.events import MAX_PLACES, places_of
from diagnose.text.ranks import plural, ranks_phrase
from diagnose.timeline.event import Event, Timeline

_VERDICTS = {
    "seen_to_hang": "stacks show a job that hung, whoever ended it later",
    "fell_silent": "regular lines stopped long before the job was ended",
    "one_fell_silent": "one process wrote no more progress, and the others went on without it",
    "stopped_by_dumps": "dumps or counters show that the job stopped",
    "no_failure_line": "no line shows a failure, and the job stopped all the same",
    "bad_values": "no process failed: the job was at work, with values that are bad to the end",
    "ended_with_bad_values": "no process failed, but what the job trained is bad to its end",
    "ended_with_high_values": "the job ended well, with values that had risen for good",
    "nobody_waited": "no line shows that ranks waited",
    "waited": "ranks waited, and a cause of this class makes ranks wait",
    "class_fails": "ranks waited, but a cause of this class ends a job, and does not hang it",
    "class_may_fail": "ranks waited, but a cause of this class need not hang a job",
    "user_reports_hang": "the user says that the job hangs, and a cause of this class can hang it",
}
_SHOWN_BY = {
    "plugged_rule": "a rule of another package",
    "stacks": "stacks of the ranks",
    "own_way": "what the rank wrote last that is by itself",
    "reports": "counters of NCCL that did not move between two reports",
    "node_signs": "what nodes report",
    "lone_stacks": "the stack of a process",
    "printed_stacks": "the stacks that processes printed last",
    "silence": "progress that stopped",
    "known_issue": "a known issue, all of whose conditions hold",
}
_NAMED = {
    "by_its_rule": "the evidence of the root cause names them",
    "unfinished_work": "the one rank whose work was not finished",
    "listed_end": "the line about their end gives this reason",
    "waited_for": "the rank that the others waited for",
    "listed_missing": "listed as missing",
    "only_author": "the only rank that printed the error",
    "wrote_nothing_more": "the one rank that printed the error and nothing more",
    "struck_by_it": "the rank that the root cause struck",
    "only_exception": "the only rank with an exception of its own",
    "only_exit": "the only rank with an exit of its own",
    "only_traceback": "the only rank with a traceback",
    "only_rank_in_last_lines": "the only rank that the last lines name",
}
_NOBODY = {
    "too_many": "so many ranks of the job have it that naming them accuses nobody",
    "strikes_whole_job": "this class strikes the whole job, not one process",
    "several_authors": "several processes printed the cause, and being first is no sign of blame",
    "nobody_shown": "no evidence shows whose it is",
    "by_its_rule": "no evidence shows whose it is",
}
_MAX_SPARED = 6
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
    "elsewhere": "{0} would explain it, but its lines are of another host",
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
    "cut_amid_a_call": "ranks made one call after the other, and the log may just end there",
}


def verdict_reasons(
    winner: Hypothesis,
    decided: tuple[Verdict, str],
    evidence: Sequence[Evidence],
    timeline: Timeline,
    shown_by: str | None,
) -> list[Reason]:
    """What won, by which rule and lines; then why that is a hang or a failure."""
    places = places_of(winner.rows, timeline)
    places = places or [SourceLine(one.source, one.line) for one in evidence[:MAX_PLACES]]
    verdict, predicate = decided
    text = _VERDICTS[predicate]
    if shown_by is not None:
        text += f"; the hang is shown by {_SHOWN_BY[shown_by]}"
    return [
        Reason(
            "verdict", "won", winner.cause, "highest_ranked",
            f"{clean(winner.summary)}{grounds_of(winner)}",
            rule=winner.rule, signature=winner.signature, tier=winner.tier.word, places=places,
            count=len(winner.rows) or len(places),
        ),
        Reason("verdict", "decided", verdict, predicate, text),
    ]  # fmt: skip


def quiet_reasons(
    verdict: Verdict, predicate: str, text: str, level: Confidence, why: tuple[str, str]
) -> list[Reason]:
    """The decision where no line shows a failure; `why` the confidence is so, and its predicate."""
    return [
        Reason("verdict", "decided", verdict, predicate, text),
        Reason("confidence", "reached", level, *why),
    ]


def author_reasons(named: Culprits, trouble: Sequence[Event], context: Context) -> Iterator[Reason]:
    """Who printed errors that nobody knows, where it is named."""
    if named.ranks:
        rows = [event.index for event in trouble if event.rank in named.ranks]
        whom = _who(named.ranks, named.hosts)
        yield _culprits("named", whom, "wrote_nothing_more", named.why, rows, context)


def culprit_reasons(
    ranked: Sequence[Hypothesis], naming: Naming, context: Context
) -> Iterator[Reason]:
    """Whom the verdict names; then those whom something else would have blamed, and who waited."""
    winner = ranked[0]
    if winner.ranks or winner.hosts:
        ways = [_NAMED.get(naming.predicate, ""), winner.why]
        text = "; ".join(dict.fromkeys(way for way in ways if way))
        rows = [row for row in winner.rows if context.timeline.at(row).rank in winner.ranks]
        yield _culprits(
            "named", _who(winner.ranks, winner.hosts), naming.predicate, text, rows, context
        )
    else:
        whom = _who(naming.ranks, naming.hosts)
        yield _culprits("not_named", whom, naming.predicate, _NOBODY[naming.predicate], [], context)
    spared = [*_blamed_by_losers(winner, ranked[1:]), *_waiting(winner, context)]
    for whom, predicate, text in spared[:_MAX_SPARED]:
        yield _culprits("not_named", whom, predicate, text, [], context)
    if len(spared) > _MAX_SPARED:
        text = f"{len(spared) - _MAX_SPARED} more are not listed"
        yield _culprits("left_out", "", "no_room", text, [], context)


def _blamed_by_losers(
    winner: Hypothesis, losers: Sequence[Hypothesis]
) -> Iterator[tuple[str, str, str]]:
    seen = {*winner.ranks}
    for one in losers:
        others = sorted({*one.ranks} - seen)
        seen |= {*others}
        if others:
            yield _who(others, []), "blamed_by_loser", f"blamed only by {one.cause}, which lost"


def _waiting(winner: Hypothesis, context: Context) -> Iterator[tuple[str, str, str]]:
    """Ranks that wait themselves, by the call that each of them is in."""
    spared: set[int] = {*winner.ranks}
    for stall in context.stalls:
        calls: dict[str, list[int]] = {}
        for rank in sorted({rank for rank in stall.waiting if rank >= 0} - spared):
            wait = stall.waits.get(rank)
            call = (wait.op if wait else None) or stall.op or "the collective"
            calls.setdefault(call, []).append(rank)
        for call, ranks in calls.items():
            spared |= {*ranks}
            yield _who(ranks, []), "joined", f"waited in {call}"


def _culprits(
    outcome: Outcome, whom: str, predicate: str, text: str, rows: Sequence[int], context: Context
) -> Reason:
    places = places_of(rows, context.timeline)
    return Reason("culprits", outcome, whom, predicate, text, places=places, count=len(rows))


def _who(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Ranks and hosts as one subject; nobody where there are none."""
    named = [ranks_phrase(ranks)] if ranks else []
    named += [("host " if len(hosts) == 1 else "hosts ") + ", ".join(hosts[:8])] if hosts else []
    return ", ".join(named) or "nobody"


def confidence_reasons(level: Confidence, asked: Sequence[Condition]) -> list[Reason]:
    """The level, and every condition of the levels from the highest down to it."""
    order = ("high", "medium", "low")
    missed = [one for one in asked if not one.met and order.index(one.level) < order.index(level)]
    text = f"every condition of {level} is met" if level != "low" else "neither high nor medium"
    if missed:
        nearest = next(one for one in missed if one.level == missed[-1].level)
        text += f"; {nearest.level} would need more: {nearest.text}"
    step: Step = "confidence"
    shown = [one for one in asked if order.index(one.level) <= order.index(level)]
    return [
        Reason(step, "reached", level, "all_conditions" if level != "low" else "no_level", text),
        *(
            Reason(step, "met" if one.met else "not_met", one.level, one.predicate, one.text)
            for one in shown
        ),
    ]


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
