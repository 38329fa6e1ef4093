"""Which candidate wins, what it explains, and how sure that is."""

import itertools
from typing import Any

import pytest

from diagnose.infer.decide.ranking import borrow_culprits, confidence, merge, rank
from diagnose.infer.rules.base import Candidate, explains

from ..rows import ended


def one(cause: str, score: float = 4.0, **more: Any) -> Candidate:
    return Candidate(cause, score, f"Title of {cause}", "", **more)


def order(*candidates: Candidate) -> list[str]:
    """Causes from the winner on; the same for every order of the candidates."""
    orders = {
        tuple(c.cause for c in rank([Candidate(**fields(c)) for c in permutation]))
        for permutation in itertools.permutations(candidates)
    }
    assert len(orders) == 1
    return list(orders.pop())


def fields(candidate: Candidate) -> dict[str, Any]:
    return {name: getattr(candidate, name) for name in candidate.__dataclass_fields__}


# --------------------------------------------------------------------------- explains


@pytest.mark.parametrize(
    ("cause", "other", "answer"),
    [
        ("crash.gpu_oom", "desync.missing_rank", True),  # a dead rank explains every wait
        ("hw.gpu", "crash.cuda_error", True),
        ("net.shm", "data.loader", True),
        ("crash.host_oom", "crash.killed", True),
        ("crash.cuda_error", "hw.gpu", False),
        ("desync.missing_rank", "crash.gpu_oom", False),
        ("crash.gpu_oom", "crash.gpu_oom", False),
    ],
)
def test_what_classes_explain(cause: str, other: str, answer: bool) -> None:
    assert explains(one(cause), one(other)) is answer


def test_an_entry_may_explain_more() -> None:
    cause = one("env.config", explains=["hw.*", "t.special"])
    assert explains(cause, one("hw.node"))
    assert explains(cause, one("net.p2p", signature="t.special"))
    assert not explains(cause, one("net.p2p", signature="t.other"))


# --------------------------------------------------------------------------- rank


def test_the_cause_wins_over_what_it_explains() -> None:
    ranked = rank([one("desync.missing_rank", 4.0), one("crash.gpu_oom", 6.0)])
    assert [c.cause for c in ranked] == ["crash.gpu_oom", "desync.missing_rank"]
    assert ranked[1].lost == "it follows from the verdict: Title of crash.gpu_oom"
    assert ranked[0].lost == ""


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
    assert [loser.lost for loser in losers] == [
        "less of the evidence speaks for it",
        "it follows from the verdict: Title of crash.gpu_oom",
    ]


def test_a_late_cause_does_not_explain_what_came_before() -> None:
    late = one("crash.gpu_oom", 4.0, late=True)
    assert order(late, one("desync.missing_rank", 4.5))[0] == "desync.missing_rank"
    assert order(late, one("desync.missing_rank", 3.9))[0] == "crash.gpu_oom"


def test_of_two_that_explain_each_other_the_stronger_wins() -> None:
    # A full /dev/shm explains dying workers; dying workers explain no shm error, but waits.
    pair = (one("crash.gpu_oom", 4.0), one("data.loader", 5.0, explains=["crash.gpu_oom"]))
    assert order(*pair)[0] == "data.loader"


@pytest.mark.parametrize(
    ("winner", "loser", "why"),
    [
        ({}, {"late": True}, "its first sign comes after the first failure"),
        ({}, {"score": 2.0}, "only a weak hint speaks for it"),
        (
            {"sure": True},
            {},
            "the evidence for the root cause is decisive, this is circumstantial",
        ),
        ({"rows": [3]}, {"rows": [9]}, "it shows only after the root cause"),
        ({"rows": [9]}, {"rows": [3]}, "less of the evidence speaks for it"),
    ],
)
def test_why_a_rival_lost(winner: dict[str, Any], loser: dict[str, Any], why: str) -> None:
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
    ranked += [one("net.p2p", rival, lost="less")] if rival is not None else []
    assert confidence(ranked) == level


def test_what_is_explained_is_no_rival() -> None:
    explained = one("desync.missing_rank", 9.0, lost="it follows from the verdict: x")
    assert confidence([one("hw.gpu", 6.0, sure=True), explained]) == "high"


# --------------------------------------------------------------------------- culprits


def test_a_cause_without_a_rank_names_the_one_it_struck(make: Any) -> None:
    oom = one("crash.host_oom", 6.0)
    killed = one("crash.killed", 4.0, ranks=[3], hosts=["a"], why="was killed")
    borrow_culprits([oom, killed], make())
    assert (oom.ranks, oom.hosts, oom.kind, oom.why) == ([3], ["a"], "crashed", "was killed")


def test_not_if_many_were_struck(make: Any) -> None:
    oom = one("crash.host_oom", 6.0)
    borrow_culprits([oom, one("crash.killed", 4.0, ranks=[1, 2, 3])], make())
    assert oom.ranks == []


def test_the_only_exception_names_the_rank(make: Any) -> None:
    exception = {"kind": "exception", "tells": "exception", "role": "cause", "rank": 2}
    config = one("env.config", 6.0)
    borrow_culprits([config], make(exception, ended(0, exitcode="1"), ended(1, exitcode="1")))
    assert (config.ranks, config.why) == ([2], "the only rank with an exception of its own")


def test_the_only_exit_names_the_rank(make: Any) -> None:
    config = one("env.config", 6.0)
    borrow_culprits([config], make(ended(1, exitcode="1")))
    assert (config.ranks, config.why) == ([1], "the only rank with an exit of its own")
    other = one("env.config", 6.0)
    borrow_culprits([other], make(ended(1, exitcode="1"), ended(2, exitcode="1")))
    assert other.ranks == []


def test_a_slow_class_takes_the_rank_the_others_waited_for(make: Any) -> None:
    storage = one("slow.storage", 6.0)
    waited = one("slow.checkpoint", 4.0, ranks=[0], kind="slow", why="busy saving")
    borrow_culprits([storage, waited], make())
    assert (storage.ranks, storage.kind, storage.why) == ([0], "slow", "busy saving")


@pytest.mark.parametrize("cause", ["scheduler.preempted", "user.interrupt", "desync.mismatch"])
def test_what_strikes_the_whole_job_borrows_nobody(make: Any, cause: str) -> None:
    ending = one(cause, 6.0)
    borrow_culprits([ending], make(ended(1, exitcode="1")))
    assert ending.ranks == []
