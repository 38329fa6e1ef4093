"""Candidates that no line states: what the missing rank was busy with, or that nobody knows."""

from typing import Any

import pandas as pd
import pytest

from diagnose.infer.events.onset import Start, find_activity
from diagnose.infer.events.watchdogs import stalls
from diagnose.infer.rules.base import Candidate
from diagnose.infer.rules.stalls import inferred, unfinished_gathering

from ..rows import bar, barrier, catalog, finished, marker, signature, stack, step, wait

CATALOG = catalog(signature("t.any"))
SITE = "/opt/site-packages/torch/distributed/c10d.py"


def found(frame: pd.DataFrame, world: int | None) -> list[Candidate]:
    waits = frame.index[frame["tells"] == "timeout"]
    stalled = stalls(frame, world)
    waiting = {rank for stall in stalled for rank in stall.joined if rank >= 0}
    end = int(waits[0]) if len(waits) else None
    activity = find_activity(frame, Start(None, None, ""), end, waiting)
    return inferred(stalled, activity, frame, CATALOG)


def only(frame: pd.DataFrame, world: int | None) -> Candidate:
    candidates = found(frame, world)
    assert len(candidates) == 1
    return candidates[0]


def test_a_missing_rank_that_saves_is_slow(make: Any) -> None:
    candidate = only(make(marker("checkpoint", rank=2), barrier(0), barrier(1), barrier(3)), 4)
    assert (candidate.cause, candidate.ranks, candidate.kind) == ("slow.checkpoint", [2], "slow")
    assert (candidate.score, candidate.rows) == (4.0, [0, 1, 2, 3])
    assert candidate.summary == (
        "Rank 2 was still saving a checkpoint while the others waited in ALLREDUCE of 1 element "
        "(SeqNum 7)."
    )
    assert candidate.title == "Title of slow.checkpoint"


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
    candidate = only(make(marker(phase, rank=0), barrier(1), barrier(2)), 3)
    assert (candidate.cause, candidate.ranks) == (cause, [0])


def test_a_bar_as_long_as_the_wait_proves_it(make: Any) -> None:
    frame = make(bar("preprocessing", 590, 40, rank=0), barrier(1), barrier(2))
    candidate = only(frame, 3)
    assert (candidate.cause, candidate.score, candidate.sure) == ("data.preparation", 5.0, True)


def test_in_front_of_a_large_collective_work_explains_less(make: Any) -> None:
    small = only(make(marker("checkpoint", rank=0), barrier(1), barrier(2)), 3)
    large = only(make(marker("checkpoint", rank=0), wait(1), wait(2)), 3)
    assert (small.score, large.score) == (4.0, 3.0)


def test_work_of_a_rank_that_joined_explains_nothing(make: Any) -> None:
    frame = make(marker("checkpoint", rank=0), barrier(0), barrier(1), barrier(3))
    candidate = only(frame, 4)
    assert (candidate.cause, candidate.ranks) == ("desync.missing_rank", [2])


def test_the_main_rank_is_meant_where_nobody_is_proven_missing(make: Any) -> None:
    frame = make(marker("checkpoint"), barrier(5), barrier(6))
    candidate = only(frame, None)
    assert (candidate.cause, candidate.ranks) == ("slow.checkpoint", [0])


def test_a_missing_rank_without_a_known_reason(make: Any) -> None:
    candidate = only(make(step(5), wait(0), wait(1), wait(3)), 4)
    assert (candidate.cause, candidate.score) == ("desync.missing_rank", 4.0)
    assert (candidate.ranks, candidate.kind) == ([2], "missing")
    assert candidate.why == "rank 2 of 4 printed no timeout"
    assert candidate.summary == (
        "Rank 2 never joined ALLREDUCE of 1,000 elements (SeqNum 7); the log does not say why."
    )


def test_an_absence_without_proof_names_nobody(make: Any) -> None:
    candidate = only(make(step(5), wait(1), wait(2), wait(3)), None)
    assert (candidate.cause, candidate.score) == ("desync.missing_rank", 2.5)
    assert (candidate.ranks, candidate.kind, candidate.why) == ([], None, "")


def test_an_early_barrier_most_often_guards_the_data(make: Any) -> None:
    candidate = only(make(barrier(1, 2), barrier(2, 2)), 3)
    assert (candidate.cause, candidate.score, candidate.ranks) == ("data.preparation", 2.5, [0])


def test_a_late_barrier_does_not(make: Any) -> None:
    assert only(make(barrier(1, 6), barrier(2, 6)), 3).cause == "desync.missing_rank"


def test_all_joined_is_nobodys_absence(make: Any) -> None:
    candidate = only(make(wait(0), wait(1), wait(2)), 3)
    assert (candidate.cause, candidate.score, candidate.ranks) == ("unknown", 2.0, [])


def test_a_rank_that_finished_had_less_to_do(make: Any) -> None:
    candidate = only(make(finished(2), wait(0), wait(1), wait(3)), 4)
    assert (candidate.cause, candidate.score) == ("desync.uneven_work", 5.0)
    assert (candidate.ranks, candidate.kind) == ([2], "missing")


def test_a_rank_that_finished_and_is_not_missing_says_nothing(make: Any) -> None:
    assert only(make(finished(1), wait(0), wait(1), wait(3)), 4).cause == "desync.missing_rank"


def test_a_mismatch_names_the_odd_rank(make: Any) -> None:
    candidate = only(make(wait(0), wait(1), wait(2, op="BROADCAST"), wait(3)), 4)
    assert (candidate.cause, candidate.score, candidate.sure) == ("desync.mismatch", 4.5, True)
    assert (candidate.ranks, candidate.kind) == ([2], "mismatched")
    assert candidate.why == "rank 2 differs from the others"


def test_a_tie_names_nobody(make: Any) -> None:
    candidate = only(make(wait(0), wait(1, op="BROADCAST")), 2)
    assert (candidate.cause, candidate.ranks, candidate.kind) == ("desync.mismatch", [], None)
    assert candidate.why == ""


def test_a_barrier_against_a_large_collective_is_a_branch(make: Any) -> None:
    candidate = only(make(wait(0, op="_ALLGATHER_BASE"), barrier(1), barrier(2)), 3)
    assert (candidate.cause, candidate.score, candidate.ranks) == ("desync.conditional", 5.0, [0])


# --------------------------------------------------------------------------- stacks


def standing(rank: int, phase: str) -> list[dict[str, Any]]:
    return stack(rank, ("train.py", 9, "loop"), (SITE, 3, "all_reduce"), phase=phase)


def test_a_minority_beyond_training_had_fewer_batches(make: Any) -> None:
    rows = [row for rank in (0, 1, 2) for row in standing(rank, "training")]
    candidate = only(make(*rows, *standing(3, "evaluation")), 4)
    assert (candidate.cause, candidate.score) == ("desync.uneven_work", 4.75)
    assert (candidate.ranks, candidate.kind) == ([3], "mismatched")
    assert candidate.rows == [7, 1, 3]


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


def at_the_store(rank: int) -> dict[str, Any]:
    return {"tells": "store_wait", "role": "effect", "rank": rank}


def test_waits_at_the_store_mean_that_somebody_did_not_come(make: Any) -> None:
    candidate = only(make(at_the_store(1), at_the_store(2)), 3)
    assert (candidate.cause, candidate.score, candidate.ranks) == ("rendezvous.timeout", 2.5, [])
    assert candidate.rows == [0, 1]


def test_the_main_rank_keeps_the_store_waiting_while_it_works(make: Any) -> None:
    frame = make(marker("preprocessing", rank=0), at_the_store(1), at_the_store(2))
    candidate = only(frame, 3)
    assert (candidate.cause, candidate.score) == ("data.preparation", 3.5)
    assert (candidate.ranks, candidate.kind, candidate.rows) == ([0], "slow", [0, 1, 2])


def test_if_the_main_rank_waits_too_it_is_not_named(make: Any) -> None:
    frame = make(marker("preprocessing"), at_the_store(0), at_the_store(1))
    assert only(frame, 3).ranks == []


def gathered(joined: int, world: int) -> dict[str, Any]:
    return {"fields": {"joined": str(joined), "world_size": str(world)}}


@pytest.mark.parametrize(
    ("joined", "summary"),
    [
        (3, "Only 3 of 4 processes came to the rendezvous."),
        (
            6,
            "6 processes registered for a job of 4: left over from an earlier attempt, or started "
            "more than once.",
        ),
    ],
)
def test_a_wrong_count_at_the_rendezvous(make: Any, joined: int, summary: str) -> None:
    candidate = only(make(gathered(1, 4), gathered(joined, 4)), 4)
    assert (candidate.cause, candidate.score) == ("rendezvous.timeout", 4.0)
    assert (candidate.summary, candidate.rows) == (summary, [1])


def test_only_the_last_count_matters(make: Any) -> None:
    assert found(make(gathered(3, 4), gathered(4, 4)), 4) == []


def test_a_job_that_went_on_was_complete(make: Any) -> None:
    assert unfinished_gathering(make(gathered(3, 4), step(1))) is not None
    assert unfinished_gathering(make(gathered(3, 4), step(1), step(2))) is None


@pytest.mark.parametrize(
    ("ranks", "score", "named", "kind"),
    [([2], 3.5, [2], "stuck_host"), ([1, 2], 2.5, [], None)],
)
def test_a_stuck_host_thread(
    make: Any, ranks: list[int], score: float, named: list[int], kind: str | None
) -> None:
    rows = [{"tells": "host_blocked", "role": "effect", "rank": rank} for rank in ranks]
    candidate = only(make(*rows), 4)
    assert (candidate.cause, candidate.score) == ("stall.host", score)
    assert (candidate.ranks, candidate.kind) == (named, kind)
