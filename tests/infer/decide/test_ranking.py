"""Which hypothesis wins, what it explains, and how sure that is."""

import itertools
from typing import Any

import pytest

from diagnose.infer.decide.ranking import conditions, confidence, lost_by, merge, rank, resists
from diagnose.infer.rules.base import Hypothesis, Lost

from ..rows import hypothesis as one


def order(*hypotheses: Hypothesis) -> list[str]:
    """Causes from the winner on; the same for every order of the hypotheses."""
    orders = {
        tuple(c.cause for c in rank([Hypothesis(**fields(c)) for c in permutation]))
        for permutation in itertools.permutations(hypotheses)
    }
    assert len(orders) == 1
    return list(orders.pop())


def fields(hypothesis: Hypothesis) -> dict[str, Any]:
    return {name: getattr(hypothesis, name) for name in hypothesis.__dataclass_fields__}


# --------------------------------------------------------------------------- rank


def test_the_cause_wins_over_what_it_explains() -> None:
    ranked = rank([one("desync.missing_rank", 4.0), one("crash.gpu_oom", 6.0)])
    assert [c.cause for c in ranked] == ["crash.gpu_oom", "desync.missing_rank"]
    assert (ranked[1].lost, ranked[1].lost_to) == (Lost.FOLLOWS, ranked[0])
    assert (ranked[0].lost, ranked[0].lost_to) == (None, None)


def test_a_strong_cause_may_be_weaker_than_what_it_explains() -> None:
    assert order(one("crash.gpu_oom", 4.0), one("desync.missing_rank", 6.5))[0] == "crash.gpu_oom"
    assert (
        order(one("crash.gpu_oom", 3.9), one("desync.missing_rank", 6.5))[0]
        == "desync.missing_rank"
    )


def test_a_cause_that_is_not_strong_must_not_be_weaker() -> None:
    assert order(one("crash.gpu_oom", 3.4), one("slow.storage", 3.5))[0] == "slow.storage"
    assert order(one("crash.gpu_oom", 3.4), one("slow.storage", 3.4))[0] == "crash.gpu_oom"


def test_a_weak_cause_explains_nothing() -> None:
    losers = [
        rank([one("crash.gpu_oom", score), one("slow.storage", 1.5)])[1] for score in (1.9, 2.0)
    ]
    assert [loser.lost for loser in losers] == [Lost.LESS, Lost.FOLLOWS]
    assert [lost_by(loser) for loser in losers] == ["less_evidence", "explained"]


def test_a_late_cause_does_not_explain_what_came_before() -> None:
    late = one("crash.gpu_oom", 4.0, late=True)
    assert order(late, one("desync.missing_rank", 4.5))[0] == "desync.missing_rank"
    assert order(late, one("desync.missing_rank", 3.9))[0] == "crash.gpu_oom"


def test_of_two_that_explain_each_other_the_stronger_wins() -> None:
    # A full /dev/shm explains dying workers; dying workers explain no shm error, but waits.
    pair = (one("crash.gpu_oom", 4.0), one("data.loader", 5.0, explains=["crash.gpu_oom"]))
    assert order(*pair)[0] == "data.loader"


def test_who_died_before_any_wait_ended_is_not_explained_by_the_wait() -> None:
    stall = one("data.preparation", 4.5, explains=["crash.exception"], basis="wait", inferred=True)
    died = one("crash.exception", 4.0, explains=["data.preparation"], ranks=[8])
    assert order(stall, died)[0] == "crash.exception"
    for unsure in ({"late": True}, {"ranks": []}, {"inferred": True}, {"score": 3.4}):
        other = Hypothesis(**{**fields(died), **unsure})
        assert order(stall, other)[0] == "data.preparation"


@pytest.mark.parametrize(
    ("winner", "loser", "why"),
    [
        ({}, {"late": True}, Lost.LATE),
        ({}, {"score": 2.0}, Lost.WEAK),
        ({"sure": True}, {}, Lost.CIRCUMSTANTIAL),
        ({"rows": [3]}, {"rows": [9]}, Lost.AFTER),
        ({"rows": [9]}, {"rows": [3]}, Lost.LESS),
    ],
)
def test_why_a_rival_lost(winner: dict[str, Any], loser: dict[str, Any], why: Lost) -> None:
    ranked = rank(
        [one("checkpoint.corrupt", 5.0, **winner), one("net.p2p", **({"score": 4.0} | loser))]
    )
    assert (ranked[0].cause, ranked[1].lost) == ("checkpoint.corrupt", why)


# --------------------------------------------------------------------------- merge


def test_candidates_of_a_class_become_one() -> None:
    strong = one("net.fabric", 6.0, rows=[4, 5], ranks=[1], kind="crashed", hosts=["a"])
    weak = one("net.fabric", 4.0, rows=[2, 5], ranks=[3], kind="crashed", hosts=["b"], late=True)
    (merged,) = merge([weak, strong])
    assert (merged.score, merged.rows) == (6.25, [4, 5, 2])
    assert (merged.ranks, merged.hosts, merged.late) == ([1, 3], ["a", "b"], False)


def test_a_known_issue_weaker_than_its_class_stays_by_itself() -> None:
    said = one("crash.exception", 4.0, signature="t.said", rows=[1])
    issue = one("crash.exception", 1.25, signature="t.issue", rows=[2], hint="check it")
    ranked = rank(merge([said, issue]))
    assert [(c.signature, c.score, c.rows) for c in ranked] == [
        ("t.said", 4.0, [1]), ("t.issue", 1.25, [2]),
    ]  # fmt: skip


def test_a_much_weaker_one_adds_no_score() -> None:
    assert merge([one("net.fabric", 6.0), one("net.fabric", 3.0)])[0].score == 6.0


def test_what_is_inferred_does_not_add_to_whom_a_line_names() -> None:
    said = one("slow.checkpoint", 6.0, ranks=[1], kind="slow")
    guessed = one("slow.checkpoint", 4.0, ranks=[0], kind="slow", inferred=True)
    assert merge([said, guessed])[0].ranks == [1]
    nobody = one("slow.checkpoint", 6.0)
    merged = merge([nobody, guessed])[0]
    assert (merged.ranks, merged.kind) == ([0], "slow")


# --------------------------------------------------------------------------- confidence


@pytest.mark.parametrize(
    ("winner", "rival", "level"),
    [
        ({"score": 6.0, "sure": True}, None, "high"),
        ({"score": 6.0, "sure": True, "late": True}, None, "medium"),
        ({"score": 6.0}, None, "medium"),  # nothing in it is proof
        ({"score": 4.4, "sure": True}, None, "medium"),
        ({"score": 6.0, "sure": True}, 5.1, "medium"),  # a rival is close
        ({"score": 6.0, "sure": True}, 5.0, "high"),
        ({"score": 3.5}, 3.5, "medium"),
        ({"score": 3.4}, None, "low"),
    ],
)
def test_confidence(winner: dict[str, Any], rival: float | None, level: str) -> None:
    ranked = [one("env.version", **winner)]
    ranked += [one("net.p2p", rival, lost=Lost.LESS)] if rival is not None else []
    assert confidence(conditions(ranked)) == level


def test_what_is_explained_is_no_rival() -> None:
    explained = one("desync.missing_rank", 9.0, lost=Lost.FOLLOWS)
    assert confidence(conditions([one("hw.gpu", 6.0, sure=True), explained])) == "high"


def test_what_is_of_the_same_class_is_no_rival() -> None:
    issue = one("crash.gpu_oom", 5.5, hint="known issue")
    assert confidence(conditions([one("crash.gpu_oom", 6.0, sure=True), issue])) == "high"


def test_merging_leaves_the_hypotheses_as_they_were() -> None:
    pair = [one("net.fabric", 6.0, rows=[4], ranks=[1]), one("net.fabric", 4.0, rows=[2])]
    (merged,) = merge(pair)
    assert merged.rows == [4, 2]
    assert [(given.score, given.rows) for given in pair] == [(6.0, [4]), (4.0, [2])]


def test_what_a_process_states_first_does_not_follow_from_what_it_states_later() -> None:
    cuda = one("crash.cuda_error", 4.0, explains=["net.*"], rows=[9])
    fabric = one("net.fabric", 4.0, rows=[0])
    assert order(cuda, fabric)[0] == "crash.cuda_error"
    cuda.behind = frozenset({"net.fabric"})
    assert order(cuda, fabric)[0] == "net.fabric"
    fabric.score = 3.0  # hardly a cause
    assert order(cuda, fabric)[0] == "crash.cuda_error"


# --------------------------------------------------------------------------- predicates


@pytest.mark.parametrize(
    ("one_more", "other_more", "predicate"),
    [
        ({}, {"score": 1.9}, "explained_too_weakly"),
        ({}, {"behind": frozenset({"data.loader"})}, "stated_first"),
        ({"ranks": [1]}, {"basis": "wait"}, "died_first"),
        ({"score": 6.6}, {}, "beyond_margin"),
        ({}, {"late": True}, "seen_before"),
        ({"score": 5.0, "basis": "issue", "rows": [3]}, {"rows": [3]}, "reads_closer"),
        ({"score": 5.0, "explains": ["crash.killed"]}, {}, "explains_back"),
        ({}, {}, None),
    ],
)
def test_by_what_it_is_no_consequence(
    one_more: dict[str, Any], other_more: dict[str, Any], predicate: str | None
) -> None:
    loader = one("data.loader", **({"score": 4.0} | one_more))
    killed = one("crash.killed", **({"score": 4.0, "explains": ["data.loader"]} | other_more))
    assert resists(loader, killed) == predicate


@pytest.mark.parametrize(
    ("winner", "loser", "predicate"),
    [
        ({"score": 4.0, "explains": ["net.p2p"]}, {}, "explained"),
        ({"score": 4.0, "explains": ["net.p2p"]}, {"score": 6.5}, "explained_within_margin"),
        (
            {"score": 5.0, "explains": ["net.p2p"]},
            {"explains": ["checkpoint.corrupt"]},
            "explained_by_stronger",
        ),
        (
            {"score": 4.0, "explains": ["net.p2p"], "ranks": [1]},
            {"score": 4.5, "explains": ["checkpoint.corrupt"], "basis": "wait", "inferred": True},
            "explained_by_first_death",
        ),
        ({}, {"late": True}, "seen_late"),
        ({}, {"score": 2.0}, "weak_evidence"),
        ({"sure": True}, {}, "circumstantial"),
        ({"rows": [3]}, {"rows": [9]}, "seen_after"),
        ({"rows": [9]}, {"rows": [3]}, "less_evidence"),
    ],
)
def test_by_what_a_rival_lost(
    winner: dict[str, Any], loser: dict[str, Any], predicate: str
) -> None:
    ranked = rank(
        [
            one("checkpoint.corrupt", **({"score": 5.0} | winner)),
            one("net.p2p", **({"score": 4.0} | loser)),
        ]
    )
    assert ranked[0].cause == "checkpoint.corrupt"
    assert ranked[1].lost_to is ranked[0]
    assert lost_by(ranked[1]) == predicate


def test_what_is_merged_is_kept_with_what_it_supports() -> None:
    strong, weak = one("net.fabric", 6.0), one("net.fabric", 4.0)
    (merged,) = merge([weak, strong])
    assert merged.merged == [weak]
    assert merged.weights == {"corroborated": 0.25}


def test_the_conditions_of_confidence_have_their_numbers() -> None:
    ranked = [one("env.version", 6.0, sure=True), one("net.p2p", 5.5, lost=Lost.LESS)]
    high = {asked.predicate: asked for asked in conditions(ranked) if asked.level == "high"}
    assert {name: asked.met for name, asked in high.items()} == {
        "proven": True, "score": True, "lead": False, "timely": True,
    }  # fmt: skip
    assert high["lead"].text == "its lead over net.p2p is 0.5, high needs a lead of 1"


def test_how_a_job_ended_that_was_seen_to_hang_is_only_its_end() -> None:
    seen = one("stall.host", 2.5, hung=True)
    limit = one("scheduler.limit", 6.0, outside=True, sure=True)
    assert [h.cause for h in rank([limit, seen])] == ["stall.host", "scheduler.limit"]
    assert lost_by(limit) == "ended_a_hang"
    died = one("crash.gpu_oom", 6.0, sure=True)
    assert rank([died, one("unknown", 2.5, hung=True)])[0] is died
