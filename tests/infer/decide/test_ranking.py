"""Which hypothesis wins, what it explains, and how sure that is."""

import itertools
from typing import Any

import pytest

from diagnose.infer.decide.ranking import conditions, confidence, lost_by, merge, rank, resists
from diagnose.infer.rules.base import Hypothesis, Lost, Tier

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
    ranked = rank([one("desync.missing_rank", Tier.STRONG), one("crash.gpu_oom", Tier.PROVEN)])
    assert [c.cause for c in ranked] == ["crash.gpu_oom", "desync.missing_rank"]
    assert (ranked[1].lost, ranked[1].lost_to) == (Lost.FOLLOWS, ranked[0])
    assert (ranked[0].lost, ranked[0].lost_to) == (None, None)


def test_a_strong_cause_may_be_weaker_than_what_it_explains() -> None:
    assert (
        order(one("crash.gpu_oom", Tier.STRONG), one("desync.missing_rank", Tier.PROVEN))[0]
        == "crash.gpu_oom"
    )
    assert (
        order(one("crash.gpu_oom", Tier.CIRCUMSTANTIAL), one("desync.missing_rank", Tier.PROVEN))[0]
        == "desync.missing_rank"
    )


def test_a_cause_that_is_not_strong_must_not_be_weaker() -> None:
    assert (
        order(one("crash.gpu_oom", Tier.CIRCUMSTANTIAL), one("slow.storage", Tier.LIKELY))[0]
        == "slow.storage"
    )
    assert (
        order(one("crash.gpu_oom", Tier.CIRCUMSTANTIAL), one("slow.storage", Tier.CIRCUMSTANTIAL))[
            0
        ]
        == "crash.gpu_oom"
    )


def test_a_weak_cause_explains_nothing() -> None:
    losers = [
        rank([one("crash.gpu_oom", tier), one("slow.storage", Tier.GUESS)])[1]
        for tier in (Tier.GUESS, Tier.WEAK)
    ]
    assert [loser.lost for loser in losers] == [Lost.LESS, Lost.FOLLOWS]
    assert [lost_by(loser) for loser in losers] == ["less_evidence", "explained"]


def test_a_late_cause_does_not_explain_what_came_before() -> None:
    late = one("crash.gpu_oom", Tier.STRONG, late=True)
    assert order(late, one("desync.missing_rank", Tier.OBSERVED))[0] == "desync.missing_rank"
    assert order(late, one("desync.missing_rank", Tier.LIKELY))[0] == "crash.gpu_oom"


def test_of_two_that_explain_each_other_the_stronger_wins() -> None:
    # A full /dev/shm explains dying workers; dying workers explain no shm error, but waits.
    pair = (
        one("crash.gpu_oom", Tier.STRONG),
        one("data.loader", Tier.OBSERVED, explains=["crash.gpu_oom"]),
    )
    assert order(*pair)[0] == "data.loader"


def test_who_died_before_any_wait_ended_is_not_explained_by_the_wait() -> None:
    stall = one(
        "data.preparation", Tier.OBSERVED, explains=["crash.exception"], basis="wait", inferred=True
    )
    died = one("crash.exception", Tier.STRONG, explains=["data.preparation"], ranks=[8])
    assert order(stall, died)[0] == "crash.exception"
    for unsure in (
        {"late": True},
        {"ranks": []},
        {"inferred": True},
        {"tier": Tier.CIRCUMSTANTIAL},
    ):
        other = Hypothesis(**{**fields(died), **unsure})
        assert order(stall, other)[0] == "data.preparation"


@pytest.mark.parametrize(
    ("winner", "loser", "why"),
    [
        ({}, {"late": True}, Lost.LATE),
        ({}, {"tier": Tier.WEAK}, Lost.WEAK),
        ({"sure": True}, {}, Lost.CIRCUMSTANTIAL),
        ({"rows": [3]}, {"rows": [9]}, Lost.AFTER),
        ({"rows": [9]}, {"rows": [3]}, Lost.LESS),
    ],
)
def test_why_a_rival_lost(winner: dict[str, Any], loser: dict[str, Any], why: Lost) -> None:
    ranked = rank(
        [
            one("checkpoint.corrupt", Tier.OBSERVED, **winner),
            one("net.p2p", **({"tier": Tier.STRONG} | loser)),
        ]
    )
    assert (ranked[0].cause, ranked[1].lost) == ("checkpoint.corrupt", why)


# --------------------------------------------------------------------------- merge


def test_candidates_of_a_class_become_one() -> None:
    strong = one("net.fabric", Tier.PROVEN, rows=[4, 5], ranks=[1], kind="crashed", hosts=["a"])
    weak = one(
        "net.fabric", Tier.STRONG, rows=[2, 5], ranks=[3], kind="crashed", hosts=["b"], late=True
    )
    (merged,) = merge([weak, strong])
    assert (merged.tier, merged.rows) == (Tier.PROVEN, [4, 5, 2])
    assert (merged.ranks, merged.hosts, merged.late) == ([1, 3], ["a", "b"], False)


def test_a_known_issue_weaker_than_its_class_stays_by_itself() -> None:
    said = one("crash.exception", Tier.STRONG, signature="t.said", rows=[1])
    issue = one("crash.exception", Tier.GUESS, signature="t.issue", rows=[2], hint="check it")
    ranked = rank(merge([said, issue]))
    assert [(c.signature, c.tier, c.rows) for c in ranked] == [
        ("t.said", Tier.STRONG, [1]), ("t.issue", Tier.GUESS, [2]),
    ]  # fmt: skip


def test_a_much_weaker_one_supports_nothing() -> None:
    assert (
        merge([one("net.fabric", Tier.PROVEN), one("net.fabric", Tier.CIRCUMSTANTIAL)])[0].support
        == 0
    )


def test_what_is_inferred_does_not_add_to_whom_a_line_names() -> None:
    said = one("slow.checkpoint", Tier.PROVEN, ranks=[1], kind="slow")
    guessed = one("slow.checkpoint", Tier.STRONG, ranks=[0], kind="slow", inferred=True)
    assert merge([said, guessed])[0].ranks == [1]
    nobody = one("slow.checkpoint", Tier.PROVEN)
    merged = merge([nobody, guessed])[0]
    assert (merged.ranks, merged.kind) == ([0], "slow")


# --------------------------------------------------------------------------- confidence


@pytest.mark.parametrize(
    ("winner", "rival", "level"),
    [
        ({"tier": Tier.PROVEN, "sure": True}, None, "high"),
        ({"tier": Tier.PROVEN, "sure": True, "late": True}, None, "medium"),
        ({"tier": Tier.PROVEN}, None, "medium"),  # nothing in it is proof
        ({"tier": Tier.STRONG, "sure": True}, None, "medium"),
        ({"tier": Tier.PROVEN, "sure": True}, Tier.PROVEN, "medium"),  # a rival is close
        ({"tier": Tier.PROVEN, "sure": True}, Tier.OBSERVED, "high"),
        ({"tier": Tier.LIKELY}, Tier.LIKELY, "medium"),
        ({"tier": Tier.CIRCUMSTANTIAL}, None, "low"),
    ],
)
def test_confidence(winner: dict[str, Any], rival: float | None, level: str) -> None:
    ranked = [one("env.version", **winner)]
    ranked += [one("net.p2p", rival, lost=Lost.LESS)] if rival is not None else []
    assert confidence(conditions(ranked)) == level


def test_what_is_explained_is_no_rival() -> None:
    explained = one("desync.missing_rank", Tier.PROVEN, lost=Lost.FOLLOWS)
    assert confidence(conditions([one("hw.gpu", Tier.PROVEN, sure=True), explained])) == "high"


def test_what_is_of_the_same_class_is_no_rival() -> None:
    issue = one("crash.gpu_oom", Tier.PROVEN, hint="known issue")
    assert confidence(conditions([one("crash.gpu_oom", Tier.PROVEN, sure=True), issue])) == "high"


def test_merging_leaves_the_hypotheses_as_they_were() -> None:
    pair = [
        one("net.fabric", Tier.PROVEN, rows=[4], ranks=[1]),
        one("net.fabric", Tier.STRONG, rows=[2]),
    ]
    (merged,) = merge(pair)
    assert merged.rows == [4, 2]
    assert [(given.tier, given.rows) for given in pair] == [(Tier.PROVEN, [4]), (Tier.STRONG, [2])]


def test_what_a_process_states_first_does_not_follow_from_what_it_states_later() -> None:
    cuda = one("crash.cuda_error", Tier.STRONG, explains=["net.*"], rows=[9])
    fabric = one("net.fabric", Tier.STRONG, rows=[0])
    assert order(cuda, fabric)[0] == "crash.cuda_error"
    cuda.preceded_by = frozenset({"net.fabric"})
    assert order(cuda, fabric)[0] == "net.fabric"
    fabric.tier = Tier.CIRCUMSTANTIAL  # hardly a cause
    assert order(cuda, fabric)[0] == "crash.cuda_error"


# --------------------------------------------------------------------------- predicates


@pytest.mark.parametrize(
    ("one_more", "other_more", "predicate"),
    [
        ({}, {"tier": Tier.GUESS}, "explained_too_weakly"),
        ({}, {"preceded_by": frozenset({"data.loader"})}, "stated_first"),
        ({"hung": True}, {"outside": True}, "ended_by_it"),
        ({"ranks": [1]}, {"basis": "wait"}, "died_first"),
        ({}, {"tier": Tier.CIRCUMSTANTIAL}, "of_higher_tier"),
        ({}, {"late": True}, "seen_before"),
        ({"tier": Tier.OBSERVED, "basis": "issue", "rows": [3]}, {"rows": [3]}, "reads_closer"),
        ({"basis": "stack", "hosts": ["n1"]}, {"basis": "line", "hosts": ["n2"]}, "elsewhere"),
        ({"basis": "stack", "hosts": ["n1"]}, {"basis": "line", "hosts": ["n1", "n2"]}, None),
        (
            {"basis": "stack", "hosts": ["n1"], "ranks": [1]},
            {"basis": "line", "hosts": ["n2"], "ranks": [1]},
            None,  # a pod's host has several names
        ),
        ({"tier": Tier.OBSERVED, "explains": ["crash.killed"]}, {}, "explains_back"),
        (
            {"basis": "stack", "hosts": ["n1"], "explains": ["crash.killed"]},
            {"basis": "line", "hosts": ["n1"], "tier": Tier.LIKELY},
            None,  # it says why
        ),
        ({}, {}, None),
    ],
)
def test_by_what_it_is_no_consequence(
    one_more: dict[str, Any], other_more: dict[str, Any], predicate: str | None
) -> None:
    loader = one("data.loader", **({"tier": Tier.STRONG} | one_more))
    killed = one(
        "crash.killed", **({"tier": Tier.STRONG, "explains": ["data.loader"]} | other_more)
    )
    assert resists(loader, killed) == predicate


@pytest.mark.parametrize(
    ("winner", "loser", "predicate"),
    [
        ({"tier": Tier.STRONG, "explains": ["net.p2p"]}, {}, "explained"),
        (
            {"tier": Tier.STRONG, "explains": ["net.p2p"]},
            {"tier": Tier.PROVEN},
            "explained_by_likely",
        ),
        (
            {"tier": Tier.OBSERVED, "explains": ["net.p2p"]},
            {"explains": ["checkpoint.corrupt"]},
            "explained_by_stronger",
        ),
        (
            {"tier": Tier.STRONG, "explains": ["net.p2p"], "ranks": [1]},
            {
                "tier": Tier.OBSERVED,
                "explains": ["checkpoint.corrupt"],
                "basis": "wait",
                "inferred": True,
            },
            "explained_by_first_death",
        ),
        ({}, {"late": True}, "seen_late"),
        ({}, {"tier": Tier.WEAK}, "weak_evidence"),
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
            one("checkpoint.corrupt", **({"tier": Tier.OBSERVED} | winner)),
            one("net.p2p", **({"tier": Tier.STRONG} | loser)),
        ]
    )
    assert ranked[0].cause == "checkpoint.corrupt"
    assert ranked[1].lost_to is ranked[0]
    assert lost_by(ranked[1]) == predicate


def test_what_is_merged_is_kept_with_what_it_supports() -> None:
    strong, weak = one("net.fabric", Tier.PROVEN), one("net.fabric", Tier.STRONG)
    (merged,) = merge([weak, strong])
    assert merged.merged == [weak]
    assert merged.support == 1


def test_the_conditions_of_confidence_name_the_tiers() -> None:
    ranked = [
        one("env.version", Tier.PROVEN, sure=True),
        one("net.p2p", Tier.PROVEN, lost=Lost.LESS),
    ]
    high = {asked.predicate: asked for asked in conditions(ranked) if asked.level == "high"}
    assert {name: asked.met for name, asked in high.items()} == {
        "proven": True, "tier": True, "lead": False, "timely": True,
    }  # fmt: skip
    assert high["lead"].text == (
        "the tier of its rival net.p2p is proven, high needs that all rivals are of a lower tier"
    )


def test_how_a_job_ended_that_was_seen_to_hang_is_only_its_end() -> None:
    seen = one("stall.host", Tier.CIRCUMSTANTIAL, hung=True)
    limit = one("scheduler.limit", Tier.PROVEN, outside=True, sure=True)
    assert [h.cause for h in rank([limit, seen])] == ["stall.host", "scheduler.limit"]
    assert lost_by(limit) == "ended_a_hang"
    died = one("crash.gpu_oom", Tier.PROVEN, sure=True)
    assert rank([died, one("unknown", Tier.CIRCUMSTANTIAL, hung=True)])[0] is died
