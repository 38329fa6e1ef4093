"""Conditions of known issues, and what a known issue says about whom."""

from typing import Any

import pytest

from diagnose.catalog.schema import Condition, KnownIssue, Remedy
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.onset import Activity
from diagnose.infer.judge.lines import stalls
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.rules.base import Hypothesis, Tier
from diagnose.infer.rules.known_issues import Situation, holds, known, propose, situation

from ..rows import Row, bar, barrier, catalog, context, marker, step, wait

SITUATION = Situation(
    facts=Facts(
        {
            "framework": ["Axolotl", "torch"], "trainer": ["kto"], "setting.num_proc": ["96"],
            "version.torch": ["2.10.0+cu121"], "version.trl": ["0.9.6"],
        }
    ),
    signatures={"axolotl.drop-long": 9, "torch.c10d.barrier-device-unknown": 2},
    phase="preprocessing",
    ops=frozenset({"ALLREDUCE"}),
    states=frozenset({"timeout", "tiny_collective"}),
    causes=frozenset({"data.preparation"}),
    rows=[4, 7],
)  # fmt: skip


def issue(**more: Any) -> KnownIssue:
    given: dict[str, Any] = {
        "id": "t.issue", "title": "title", "cause": "desync.conditional", "summary": "summary",
        "confidence": "high", "all": [],
    }  # fmt: skip
    return KnownIssue(**(given | more))


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        ({"signature": ["axolotl.*"]}, True),
        ({"signature": ["trl.*"]}, False),
        ({"framework": ["axolotl"]}, True),  # whatever the case
        ({"framework": ["verl", "torch"]}, True),  # any of them
        ({"framework": ["verl"]}, False),
        ({"trainer": ["kto"]}, True),
        ({"trainer": ["orpo"]}, False),
        ({"fact": ["setting.num_proc=9?"]}, True),
        ({"fact": ["setting.num_proc=8"]}, False),
        ({"fact": ["setting.num_proc"]}, True),  # has any value
        ({"fact": ["setting.other"]}, False),
        ({"phase": ["init", "preprocessing"]}, True),
        ({"phase": ["training"]}, False),
        ({"op": ["BROADCAST", "ALLREDUCE"]}, True),
        ({"op": ["BROADCAST"]}, False),
        ({"state": ["mismatch", "timeout"]}, True),
        ({"state": ["mismatch"]}, False),
        ({"cause": ["data.*"]}, True),
        ({"cause": ["net.*"]}, False),
    ],
)
def test_conditions(condition: dict[str, Any], answer: bool) -> None:
    assert holds(issue(all=[Condition(**condition)]), SITUATION) is answer


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ("torch >= 2.9", True),  # numbers, not text: 2.10 is later than 2.9
        ("torch < 2.9", False),
        ("torch<2.11", True),
        ("torch == 2.10.0", True),  # without the build
        ("torch > 2.10.0", False),
        ("trl <= 0.9.6", True),
        ("trl < 0.9.6", False),
        ("torch >=2.9,<2.11", True),  # all of it
        ("torch >=2.9,<2.10", False),
        ("torch >=2.9, !=2.10.0", False),
        ("transformers < 5", None),  # unknown
        ("torch ~ 2.10", False),
    ],
)
def test_versions(version: str, answer: bool | None) -> None:
    assert holds(issue(all=[Condition(version=[version])]), SITUATION) is answer


HOLDS, FAILS = Condition(phase=["preprocessing"]), Condition(phase=["training"])
OPEN = Condition(version=["vllm <0.9"])


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ({"all": [HOLDS, HOLDS]}, True),
        ({"all": [HOLDS, FAILS]}, False),
        ({"any": [FAILS, HOLDS]}, True),
        ({"any": [FAILS]}, False),
        ({"all": [HOLDS], "none": [FAILS]}, True),
        ({"all": [HOLDS], "none": [FAILS, HOLDS]}, False),
        ({"all": [HOLDS, OPEN]}, None),
        ({"all": [OPEN, FAILS]}, False),
        ({"any": [OPEN, HOLDS]}, True),
        ({"any": [OPEN, FAILS]}, None),
        ({"all": [HOLDS], "none": [OPEN]}, None),
        ({"all": [OPEN], "none": [HOLDS]}, False),
    ],
)
def test_all_any_none(parts: dict[str, Any], answer: bool | None) -> None:
    assert holds(issue(**parts), SITUATION) is answer


@pytest.mark.parametrize(
    ("level", "tier", "sure"),
    [
        ("high", Tier.PROVEN, True),
        ("medium", Tier.STRONG, False),
        ("low", Tier.CIRCUMSTANTIAL, False),
    ],
)
def test_an_issue_that_holds_is_a_candidate(level: str, tier: Tier, sure: bool) -> None:
    remedies = [Remedy("now", "upgrade")]
    entry = issue(confidence=level, all=[HOLDS], remedies=remedies, restart="fix_first")
    (hypothesis,) = known(catalog(issues=(entry, issue(id="t.other", all=[FAILS]))), SITUATION)
    assert (hypothesis.cause, hypothesis.signature) == ("desync.conditional", "t.issue")
    assert (hypothesis.tier, hypothesis.sure, hypothesis.rows) == (tier, sure, [4, 7])
    assert (hypothesis.remedies, hypothesis.restart) == (remedies, "fix_first")
    assert (hypothesis.ranks, hypothesis.kind) == ([], None)


def test_its_evidence_begins_with_the_signatures_it_asks_for() -> None:
    asked = Condition(signature=["axolotl.*", "torch.c10d.*"])
    (hypothesis,) = known(catalog(issues=(issue(all=[asked]),)), SITUATION)
    assert hypothesis.rows == [2, 9, 4, 7]


@pytest.mark.parametrize(
    ("stall", "kind", "ranks", "said"),
    [
        (Verdict("mismatched", (3,)), None, [3], "mismatched"),
        (Verdict("missing", (2,)), None, [2], "missing"),
        (Verdict("missing", (2,)), "slow", [2], "slow"),
        (Verdict("missing", suspects=(2,)), "slow", [], None),
    ],
)
def test_its_culprits_come_from_the_collective(
    stall: Verdict, kind: str | None, ranks: list[int], said: str | None
) -> None:
    situation = SITUATION._replace(stall=stall)
    (hypothesis,) = known(catalog(issues=(issue(all=[HOLDS], kind=kind),)), situation)
    assert (hypothesis.ranks, hypothesis.kind) == (ranks, said)


# ------------------------------------------------------------------------- wording and versions

DIED = {
    "role": "cause", "cause": "crash.exception", "signature": "t.died", "strength": "strong",
    "text": "AttributeError: 'Cache' object has no attribute 'size'",
}  # fmt: skip
VLLM = Condition(version=["vllm >=0.8,<0.9", "sglang <0.4"], wording=["'Cache' object*'size'"])


@pytest.mark.parametrize(
    ("wording", "answer"),
    [
        ("Error: 'Cache' object", True),
        ("AttributeError*attribute 'size'", True),
        ("'size'*AttributeError", False),  # in this order
        ("'Cache' object*tensor.cpp", False),  # of one line
        ("the last step", False),  # of a failure
    ],
)
def test_wording_is_that_of_a_line_of_failure(make: Any, wording: str, answer: bool) -> None:
    later = {"role": "effect", "signature": "t.effect", "text": "aborted in tensor.cpp"}
    timeline = make(DIED, later, {**step(3), "text": "the last step"})
    seen = situation(context(timeline))
    assert holds(issue(all=[Condition(wording=[wording])]), seen) is answer


def seen_with(make: Any, versions: dict[str, str]) -> Situation:
    facts = Facts({f"version.{package}": [text] for package, text in versions.items()})
    return situation(context(make(step(1), DIED)))._replace(facts=facts)


def test_an_issue_of_the_version_in_the_log(make: Any) -> None:
    seen = seen_with(make, {"vllm": "0.8.5"})
    (hypothesis,) = known(catalog(issues=(issue(all=[VLLM]),)), seen)
    assert (hypothesis.tier, hypothesis.rows) == (Tier.PROVEN, [1])
    assert hypothesis.hint == "known issue of vllm >=0.8,<0.9 or sglang <0.4 (title)"


def test_an_issue_of_another_version(make: Any) -> None:
    seen = seen_with(make, {"vllm": "0.9.0", "sglang": "0.4.1"})
    assert known(catalog(issues=(issue(all=[VLLM]),)), seen) == []


def test_an_issue_of_a_version_that_the_log_does_not_say(make: Any) -> None:
    seen = seen_with(make, {"vllm": "0.9.0"})
    (hypothesis,) = known(catalog(issues=(issue(all=[VLLM]),)), seen)
    assert (hypothesis.tier, hypothesis.sure, hypothesis.rows) == (Tier.GUESS, False, [1])
    assert hypothesis.hint == (
        "known issue of vllm >=0.8,<0.9 or sglang <0.4 (title), and the log does not say the "
        "version; check with: pip show sglang"
    )


def test_few_issues_are_left_to_be_checked(make: Any) -> None:
    entries = [issue(id=f"t.{number}", all=[VLLM]) for number in range(4)]
    vague = issue(all=[Condition(version=["vllm <1"], state=["no_progress", "step_0"])])
    sure = issue(id="t.sure", all=[Condition(wording=VLLM.wording)])
    found = known(catalog(issues=(vague, *entries, sure)), seen_with(make, {}))
    assert [one.signature for one in found] == ["t.sure", "t.0", "t.1"]


# --------------------------------------------------------------------------- what may be asked


@pytest.mark.parametrize(
    ("rows", "states"),
    [
        ([], {"no_progress"}),
        ([step(0)], {"progress_then_stop", "step_0"}),
        ([step(0), step(1)], {"progress_then_stop"}),
        ([{"signal": "store_wait"}], {"no_progress", "timeout"}),
        ([wait(0), wait(1)], {"no_progress", "timeout", "missing_ranks"}),
        ([wait(0), wait(1), wait(2)], {"no_progress", "timeout", "all_joined"}),
        ([wait(0), wait(1), wait(2, op="BROADCAST")], {"no_progress", "timeout", "mismatch"}),
        ([wait(0), wait(1), wait(2, 8)], {"no_progress", "timeout", "behind"}),
        (
            [barrier(rank, 3) for rank in range(3)],
            {"no_progress", "timeout", "all_joined", "tiny_collective", "first_collectives"},
        ),
    ],
)
def test_the_state_of_a_job(make: Any, rows: list[Row], states: set[str]) -> None:
    timeline = make(*rows)
    assert situation(context(timeline, stalls=stalls(timeline, 3))).states == states


def test_the_situation_of_a_job(make: Any) -> None:
    timeline = make(
        marker("checkpoint"), wait(0), wait(1, op="BROADCAST"), wait(1), bar(None, 9, 5)
    )
    stalled = stalls(timeline, 3)
    proposed = [
        Hypothesis("crash.exception", Tier.GUESS, "", ""),
        Hypothesis("slow.checkpoint", Tier.LIKELY, "", ""),
    ]
    found = situation(
        context(timeline, stalls=stalled, activity=Activity("checkpoint", 0), proposed=proposed)
    )
    assert found.signatures == {"t.checkpoint": 0, "t.watchdog": 1, "t.bar.None": 4}
    assert (found.phase, found.ops) == ("checkpoint", {"ALLREDUCE", "BROADCAST"})
    assert (found.causes, "crashed" in found.states) == ({"slow.checkpoint"}, True)
    assert (found.stall, found.rows) == (stalled[0], [0, *stalled[0].rows])


def test_issues_are_proposed_for_a_job(make: Any) -> None:
    saving = issue(all=[Condition(phase=["checkpoint"], op=["ALLREDUCE"])])
    timeline = make(marker("checkpoint"), wait(0), wait(1))
    seen = context(
        timeline,
        catalog(issues=(saving,)),
        stalls=stalls(timeline, 3),
        activity=Activity("checkpoint", 0),
    )
    assert [(one.signature, one.rows, one.ranks) for one in propose(seen)] == [
        ("t.issue", [0, 1, 2], [2])
    ]


RAISED = {"kind": "exception", "role": "cause", "signal": "exception", "signature": "t.raised"}


@pytest.mark.parametrize(
    ("asked", "rows", "holds"),
    [
        ({"state": ["timeout", "no_progress"]}, [RAISED], False),
        ({"state": ["timeout", "no_progress"]}, [RAISED, wait(0), wait(1)], True),
        ({"state": ["timeout", "no_progress"]}, [], True),
        ({"state": ["no_progress"], "wording": ["bad batch"]}, [RAISED], True),
        ({"signature": ["t.raised"]}, [RAISED], True),
    ],
)
def test_who_failed_while_nobody_waited_hangs_in_nothing(
    make: Any, asked: dict[str, list[str]], rows: list[Row], holds: bool
) -> None:
    entries = catalog(issues=(issue(all=[Condition(**asked)]),))  # type: ignore[arg-type]
    timeline = make(*({**row, "text": "ValueError: bad batch"} for row in rows))
    seen = context(timeline, entries, stalls=stalls(timeline, 3), failing=list(timeline))
    assert bool(propose(seen)) is holds
