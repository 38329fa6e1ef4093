"""Hypotheses that no line states: what the missing rank was busy with, or that nobody knows."""

from functools import partial
from typing import Any

import pytest

from diagnose.infer.rules.base import Tier
from diagnose.infer.rules.stalls import propose

from ..rows import alone, bar, barrier, finished, marker, proposed, stack, step, wait

SITE = "/opt/site-packages/torch/distributed/c10d.py"


found, only = partial(proposed, propose), partial(alone, propose)


def test_a_missing_rank_that_saves_is_slow(make: Any) -> None:
    hypothesis = only(make(marker("checkpoint", rank=2), barrier(0), barrier(1), barrier(3)), 4)
    assert (hypothesis.cause, hypothesis.ranks, hypothesis.kind) == ("slow.checkpoint", [2], "slow")
    assert (hypothesis.tier, hypothesis.rows) == (Tier.STRONG, [0, 1, 2, 3])
    assert hypothesis.summary == (
        "Rank 2 was still saving a checkpoint while the other ranks waited in ALLREDUCE "
        "of 1 element (SeqNum 7)."
    )
    assert hypothesis.title == "Title of slow.checkpoint"


@pytest.mark.parametrize(
    ("phase", "cause"),
    [
        ("preprocessing", "data.preparation"),
        ("model_load", "slow.model_load"),
        ("evaluation", "slow.evaluation"),
        ("inference", "slow.evaluation"),
    ],
)
def test_every_kind_of_work_has_its_class(make: Any, phase: str, cause: str) -> None:
    hypothesis = only(make(marker(phase, rank=0), barrier(1), barrier(2)), 3)
    assert (hypothesis.cause, hypothesis.ranks) == (cause, [0])


def test_a_bar_as_long_as_the_wait_proves_it(make: Any) -> None:
    timeline = make(bar("preprocessing", 590, 40, rank=0), barrier(1), barrier(2))
    hypothesis = only(timeline, 3)
    assert (hypothesis.cause, hypothesis.tier, hypothesis.sure) == (
        "data.preparation",
        Tier.OBSERVED,
        True,
    )


def test_in_front_of_a_large_collective_work_explains_less(make: Any) -> None:
    small = only(make(marker("checkpoint", rank=0), barrier(1), barrier(2)), 3)
    large = only(make(marker("checkpoint", rank=0), wait(1), wait(2)), 3)
    assert (small.tier, large.tier) == (Tier.STRONG, Tier.CIRCUMSTANTIAL)


def test_work_of_a_rank_that_joined_explains_nothing(make: Any) -> None:
    timeline = make(marker("checkpoint", rank=0), barrier(0), barrier(1), barrier(3))
    hypothesis = only(timeline, 4)
    assert (hypothesis.cause, hypothesis.ranks) == ("desync.missing_rank", [2])


def test_the_main_rank_is_meant_where_nobody_is_proven_missing(make: Any) -> None:
    timeline = make(marker("checkpoint"), barrier(5), barrier(6))
    hypothesis = only(timeline, None)
    assert (hypothesis.cause, hypothesis.ranks) == ("slow.checkpoint", [0])
    assert hypothesis.why.endswith("the main rank does this work while the others wait")


def test_a_missing_rank_without_a_known_reason(make: Any) -> None:
    hypothesis = only(make(step(5), wait(0), wait(1), wait(3)), 4)
    assert (hypothesis.cause, hypothesis.tier) == ("desync.missing_rank", Tier.STRONG)
    assert (hypothesis.ranks, hypothesis.kind) == ([2], "missing")
    assert hypothesis.why == "rank 2 of 4 printed no timeout"
    assert hypothesis.summary == (
        "Rank 2 never reached ALLREDUCE of 1,000 elements (SeqNum 7); the reason is not logged."
    )


def test_an_absence_without_proof_names_nobody(make: Any) -> None:
    hypothesis = only(make(step(5), wait(1), wait(2), wait(3)), None)
    assert (hypothesis.cause, hypothesis.tier) == ("desync.missing_rank", Tier.CIRCUMSTANTIAL)
    assert (hypothesis.ranks, hypothesis.kind, hypothesis.why) == ([], None, "")


def test_an_early_barrier_most_often_guards_the_data(make: Any) -> None:
    hypothesis = only(make(barrier(1, 2), barrier(2, 2)), 3)
    assert (hypothesis.cause, hypothesis.tier, hypothesis.ranks) == (
        "data.preparation",
        Tier.CIRCUMSTANTIAL,
        [0],
    )


def test_a_late_barrier_does_not(make: Any) -> None:
    assert only(make(barrier(1, 6), barrier(2, 6)), 3).cause == "desync.missing_rank"


def test_all_joined_is_nobodys_absence(make: Any) -> None:
    hypothesis = only(make(wait(0), wait(1), wait(2)), 3)
    assert (hypothesis.cause, hypothesis.tier, hypothesis.ranks) == ("unknown", Tier.WEAK, [])


def test_a_rank_that_finished_had_less_to_do(make: Any) -> None:
    hypothesis = only(make(finished(2), wait(0), wait(1), wait(3)), 4)
    assert (hypothesis.cause, hypothesis.tier) == ("desync.uneven_work", Tier.OBSERVED)
    assert (hypothesis.ranks, hypothesis.kind) == ([2], "missing")


def test_a_rank_that_finished_and_is_not_missing_says_nothing(make: Any) -> None:
    assert only(make(finished(1), wait(0), wait(1), wait(3)), 4).cause == "desync.missing_rank"


def test_a_mismatch_names_the_odd_rank(make: Any) -> None:
    hypothesis = only(make(wait(0), wait(1), wait(2, op="BROADCAST"), wait(3)), 4)
    assert (hypothesis.cause, hypothesis.tier, hypothesis.sure) == (
        "desync.mismatch",
        Tier.OBSERVED,
        True,
    )
    assert (hypothesis.ranks, hypothesis.kind) == ([2], "mismatched")
    assert hypothesis.why == "rank 2 diverged from the other ranks"


def test_a_tie_names_nobody(make: Any) -> None:
    hypothesis = only(make(wait(0), wait(1, op="BROADCAST")), 2)
    assert (hypothesis.cause, hypothesis.ranks, hypothesis.kind) == ("desync.mismatch", [], None)
    assert hypothesis.why == ""


def test_a_barrier_against_a_large_collective_is_a_branch(make: Any) -> None:
    hypothesis = only(make(wait(0, op="_ALLGATHER_BASE"), barrier(1), barrier(2)), 3)
    assert (hypothesis.cause, hypothesis.tier, hypothesis.ranks) == (
        "desync.conditional",
        Tier.OBSERVED,
        [0],
    )


def shifted(*steps: int) -> list[dict[str, Any]]:
    """Ranks whose last steps are these; two of them wait for different calls of one kind."""
    told = [step(number, rank=rank) for rank, number in enumerate(steps)]
    return [*told, wait(0, 40, group="3"), wait(1, 42, group="3")]


def test_ranks_that_are_steps_apart_had_not_the_same_to_do(make: Any) -> None:
    hypothesis = only(make(*shifted(16, 26, 35)), 3)
    assert (hypothesis.cause, hypothesis.ranks, hypothesis.kind) == ("desync.uneven_work", [], None)
    assert hypothesis.summary == (
        "Ranks made different numbers of steps (35 on rank 2, 16 on rank 0), and ranks wait for "
        "different sequence numbers of the same operation."
    )


def test_a_few_steps_between_logs_are_their_delay(make: Any) -> None:
    hypothesis = only(make(*shifted(31, 35, 35)), 3)
    assert (hypothesis.cause, hypothesis.ranks) == ("desync.mismatch", [0])


# --------------------------------------------------------------------------- stacks


def standing(rank: int, phase: str) -> list[dict[str, Any]]:
    return stack(rank, ("train.py", 9, "loop"), (SITE, 3, "all_reduce"), phase=phase)


@pytest.mark.parametrize(
    "phases",
    [
        {0: "evaluation", 1: "training", 2: "training"},  # what rank 0 does alone is a branch
        {0: "training", 1: "evaluation"},  # no minority
        {0: "training", 1: "training", 2: "init"},  # behind, not beyond
    ],
)
def test_other_differences_of_phase_are_no_uneven_work(make: Any, phases: dict[int, str]) -> None:
    rows = [row for rank, phase in phases.items() for row in standing(rank, phase)]
    assert [c.cause for c in found(make(*rows), 3)] == []


# --------------------------------------------------------------------------- stores, counts


def gathered(joined: int, world: int) -> dict[str, Any]:
    return {"fields": {"joined": str(joined), "world_size": str(world)}}


def test_only_the_last_count_matters(make: Any) -> None:
    assert found(make(gathered(3, 4), gathered(4, 4)), 4) == []


def test_who_evaluates_at_the_barrier_while_others_train_had_less_to_do(make: Any) -> None:
    timeline = make(marker("evaluation", rank=1), wait(0), barrier(1))
    hypothesis = only(timeline, 2)
    assert (hypothesis.cause, hypothesis.ranks) == ("desync.uneven_work", [1])


@pytest.mark.parametrize(
    ("own", "cause"),
    [(4, "desync.uneven_work"), (5, "slow.evaluation"), (None, "slow.evaluation")],
    ids=["after fewer steps", "after as many steps", "who prints no steps"],
)
def test_who_evaluates_had_less_to_do_after_fewer_steps_than_the_others(
    make: Any, own: int | None, cause: str
) -> None:
    steps = [step(5, rank=0), *([step(own, rank=2)] if own is not None else [])]
    timeline = make(*steps, marker("evaluation", rank=2), barrier(0), barrier(1), barrier(3))
    hypothesis = only(timeline, 4)
    assert (hypothesis.cause, hypothesis.ranks) == (cause, [2])


@pytest.mark.parametrize("evaluating", [[0], [0, 1]], ids=["rank 0 for all", "both"])
def test_evaluation_that_is_no_lead_leaves_it_a_branch(make: Any, evaluating: list[int]) -> None:
    timeline = make(*(marker("evaluation", rank=r) for r in evaluating), barrier(0), wait(1))
    assert only(timeline, 2).cause == "desync.conditional"


def test_what_rank_0_hands_out_first_is_data(make: Any) -> None:
    handed = [barrier(rank, 1) | {"op": "BROADCAST"} for rank in (1, 2, 3)]
    hypothesis = only(make(*handed), None)
    assert (hypothesis.cause, hypothesis.ranks) == ("data.preparation", [0])
    assert only(make(*handed[:2]), None).cause == "desync.missing_rank", "two may be an excerpt"


def test_rank_0_alone_waits_after_the_end_in_what_only_it_does(make: Any) -> None:
    hypothesis = only(make(marker("shutdown"), barrier(0)), None)
    assert (hypothesis.cause, hypothesis.tier, hypothesis.ranks) == (
        "desync.conditional",
        Tier.CIRCUMSTANTIAL,
        [0],
    )
    assert only(make(marker("shutdown"), barrier(1)), None).cause == "desync.missing_rank"


def test_a_rank_that_alone_reached_a_call_accuses_nobody(make: Any) -> None:
    rows = [
        {
            "signal": "missing",
            "role": "effect",
            "kind": "collective",
            "fields": {"missing": "1, 2, 3"},
        }
    ]
    hypothesis = only(make(*rows, wait(0)), 4)
    assert (hypothesis.cause, hypothesis.ranks) == ("desync.missing_rank", [])
    assert hypothesis.summary.startswith("Rank 0 alone reached ")
