"""What won, whom the verdict names and whom not, and how sure it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.infer.decide.culprits import Naming, name_culprits
from diagnose.infer.decide.ranking import conditions, confidence, rank
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.rules.base import Tier
from diagnose.infer.why import decision, events
from diagnose.infer.why.decision import confidence_reasons, culprit_reasons, verdict_reasons
from diagnose.stories.story import Passed
from diagnose.timeline.event import Timeline

from ..rows import context, ended, step, stories_of
from ..rows import hypothesis as one

CLASSES = load_catalog().classes


def told(reasons: Any) -> list[tuple[str, str, str]]:
    return [(reason.outcome, reason.subject, reason.predicate) for reason in reasons]


def test_the_winner_has_its_rule_signature_score_and_lines(make: Any) -> None:
    timeline = make(step(1), step(2))
    winner = one("hw.gpu", Tier.PROVEN, rows=[1], rule="signatures", signature="t.gpu")
    won, decided = verdict_reasons(winner, ("hung", "waited"), [], timeline, None)
    assert (won.outcome, won.rule, won.signature, won.tier) == (
        "won",
        "signatures",
        "t.gpu",
        "proven",
    )
    assert [(place.source, place.line) for place in won.places] == [timeline.at(1).place]
    assert (decided.subject, decided.predicate) == ("hung", "waited")


def test_what_shows_a_silent_hang_is_said() -> None:
    given = one("data.loader", rule="stacks"), ("hung", "no_failure_line"), []
    _, decided = verdict_reasons(*given, Timeline(), "stacks")  # type: ignore[arg-type]
    assert decided.text.endswith("; the hang is shown by stacks of the ranks")


def named(make: Any, *ranked: Any, world: int | None = None, rows: Any = (), **more: Any) -> Any:
    timeline = make(*rows)
    found = [*ranked]
    naming = name_culprits(found, stories_of(timeline), CLASSES, world)
    return told(culprit_reasons(found, naming, context(timeline, world=world, **more)))


def test_who_is_named_and_why(make: Any) -> None:
    oom = one("crash.host_oom", Tier.PROVEN)
    killed = one("crash.killed", Tier.STRONG, ranks=[3], why="was killed")
    assert named(make, oom, killed) == [("named", "rank 3", "struck_by_it")]
    only = named(make, one("env.config", Tier.PROVEN), rows=[ended(1, exitcode="1")])
    assert only == [("named", "rank 1", "only_exit")]
    hosts = named(make, one("hw.node", Tier.PROVEN, hosts=["a", "b"]))
    assert hosts == [("named", "hosts a, b", "by_its_rule")]


def test_why_nobody_is_named(make: Any) -> None:
    assert named(make, one("scheduler.limit", Tier.PROVEN)) == [
        ("not_named", "nobody", "strikes_whole_job")
    ]
    several = one("crash.exception", ranks=[0, 1, 2], kind="crashed")
    assert named(make, several, world=4) == [("not_named", "ranks 0-2", "too_many")]


def test_who_waited_or_was_blamed_by_a_loser_is_not_named(make: Any) -> None:
    winner = one("hw.gpu", Tier.PROVEN, ranks=[3])
    loser = one("desync.missing_rank", Tier.STRONG, ranks=[3, 5])
    waits = dict.fromkeys((0, 1, 3))
    stall = Verdict("missing", group="g", op="ALLREDUCE", waits=waits)  # type: ignore[arg-type]
    assert named(make, winner, loser, stalls=[stall]) == [
        ("named", "rank 3", "by_its_rule"),
        ("not_named", "rank 5", "blamed_by_loser"),
        ("not_named", "ranks 0-1", "joined"),
    ]


@pytest.mark.parametrize(
    ("winner", "level", "reached"),
    [
        ({"tier": Tier.PROVEN, "sure": True}, "high", "every condition of high is met"),
        (
            {"tier": Tier.PROVEN},
            "medium",
            "every condition of medium is met; high would need more: its evidence does not prove "
            "the class by itself",
        ),
        (
            {"tier": Tier.WEAK},
            "low",
            "neither high nor medium; medium would need more: its tier is weak, medium needs "
            "likely",
        ),
    ],
)
def test_how_the_confidence_came_about(winner: dict[str, Any], level: str, reached: str) -> None:
    asked = conditions(rank([one("env.version", **winner)]))
    assert confidence(asked) == level
    first, *others = confidence_reasons(confidence(asked), asked)
    assert (first.subject, first.text) == (level, reached)
    assert {other.outcome for other in others if other.subject == level} <= {"met"}
    assert len(others) == (4 if level == "high" else 5)


def test_every_predicate_has_its_sentence() -> None:
    assert set(get_args(Passed)) <= set(events._WHY)
    assert set(decision._NAMED).isdisjoint({"too_many", "nobody_shown"})
    assert Naming("too_many").predicate in decision._NOBODY


def test_who_waits_is_said_with_the_call_that_it_waits_in() -> None:
    job = Path(__file__).parents[3] / "fixtures" / "eval-gather-on-main-only"
    found = diagnose.diagnose(diagnose.load([str(job)]))
    waiting = {one.subject: one.text for one in found.reasons if one.predicate == "joined"}
    assert waiting == {"ranks 1-3": "waited in ALLREDUCE"}
