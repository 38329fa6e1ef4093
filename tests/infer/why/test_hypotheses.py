"""Who proposed which class, and what became of it."""

from __future__ import annotations

from typing import Any

from diagnose.infer.decide.ranking import _RESISTS, Dropped, merge, rank
from diagnose.infer.rules.base import Lost, Tier
from diagnose.infer.why.decision import (
    _LOST,
    _RESISTED,
    MAX_PROPOSALS,
    disbelieved_reason,
    proposal_reasons,
    rival_reasons,
)
from diagnose.timeline.event import Timeline

from ..rows import hypothesis as one
from ..rows import step


def test_what_a_rival_lost_to(make: Any) -> None:
    timeline = make(step(1), step(2))
    winner = one("hw.gpu", Tier.PROVEN, rows=[0], signature="t.gpu", rule="signatures")
    waiting = one("desync.missing_rank", Tier.STRONG, rows=[1], rule="stalls")
    (lost,) = rival_reasons(rank([waiting, winner]), timeline)
    assert (lost.outcome, lost.subject, lost.rule) == ("lost", "desync.missing_rank", "stalls")
    assert (lost.beaten_by, lost.predicate, lost.tier) == ("hw.gpu", "explained", "strong")
    assert lost.text == "a consequence of hw.gpu (t.gpu), whose class explains it"
    assert [(place.source, place.line) for place in lost.places] == [timeline.at(1).place]


def test_whose_consequence_the_winner_is_not() -> None:
    winner = one("data.loader", Tier.PROVEN, rule="signatures")
    killed = one("crash.killed", Tier.CIRCUMSTANTIAL, explains=["data.loader"], rule="exit_codes")
    reasons = rival_reasons(rank([winner, killed]), Timeline())
    assert [(reason.outcome, reason.subject, reason.predicate) for reason in reasons] == [
        ("lost", "crash.killed", "explained_by_stronger"),
        ("resisted", "data.loader", "of_higher_tier"),
    ]


def test_what_became_of_each_proposal() -> None:
    strong = one(
        "net.fabric",
        Tier.PROVEN,
        rule="signatures",
        grounds=["decisive", "generic"],
    )
    weak = one("net.fabric", Tier.STRONG, rule="stacks")
    other = one("stall.host", Tier.LIKELY, rule="host_blocked", basis="monitor")
    hint = one("env.config", Tier.NONE, rule="plugged")
    dropped = [Dropped(other, "stacks_know_what", weak), Dropped(hint, "below_threshold")]
    reasons = proposal_reasons(
        [strong, weak, other, hint], rank(merge([strong, weak])), dropped, Timeline()
    )
    assert [(one.outcome, one.rule, one.predicate, one.beaten_by) for one in reasons] == [
        ("proposed", "signatures", "signatures", None),
        ("merged", "stacks", "same_class", "net.fabric"),
        ("dropped", "host_blocked", "stacks_know_what", "net.fabric"),
        ("dropped", "plugged", "below_threshold", None),
    ]
    assert reasons[0].text.endswith("Tier: proven (decisive, generic).")
    assert [reason.tier for reason in reasons] == ["proven", "strong", "likely", "none"]


def test_many_are_counted_and_not_listed() -> None:
    many = [one("net.fabric", rule="x") for number in range(50)]
    reasons = proposal_reasons(many, [], [], Timeline())
    assert len(reasons) == MAX_PROPOSALS + 1
    assert (reasons[-1].outcome, reasons[-1].count) == ("left_out", 10)
    assert reasons[-1].text == "10 more hypotheses not listed"


def test_dumps_that_are_not_believed() -> None:
    reason = disbelieved_reason("stepped_since")
    assert (reason.outcome, reason.rule) == ("dropped", "collectives")


def test_every_predicate_has_its_sentence() -> None:
    assert set(_RESISTS) == set(_RESISTED)
    more = {
        "explained_by_likely", "explained_by_stronger", "explained_by_first_death",
        "ended_a_hang", "ended_after_a_death",
    }  # fmt: skip
    assert {lost.value for lost in Lost} | more == set(_LOST)
