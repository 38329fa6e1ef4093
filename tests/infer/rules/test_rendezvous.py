"""Who did not come to the rendezvous, or to a key of the store."""

from functools import partial
from typing import Any

import pytest

import diagnose
from diagnose.infer.rules.base import Tier
from diagnose.infer.rules.unstated import propose_gathering as propose

from ..rows import alone, marker, proposed, step


def at_the_store(rank: int) -> dict[str, Any]:
    return {"signal": "store_wait", "role": "effect", "rank": rank}


def gathered(joined: int, world: int) -> dict[str, Any]:
    return {"fields": {"joined": str(joined), "world_size": str(world)}}


found, only = partial(proposed, propose), partial(alone, propose)


def test_waits_at_the_store_mean_that_somebody_did_not_come(make: Any) -> None:
    hypothesis = only(make(at_the_store(1), at_the_store(2)), 3)
    assert (hypothesis.cause, hypothesis.tier, hypothesis.ranks) == (
        "rendezvous.timeout",
        Tier.CIRCUMSTANTIAL,
        [],
    )
    assert hypothesis.rows == [0, 1]


def test_the_main_rank_keeps_the_store_waiting_while_it_works(make: Any) -> None:
    timeline = make(marker("preprocessing", rank=0), at_the_store(1), at_the_store(2))
    hypothesis = only(timeline, 3)
    assert (hypothesis.cause, hypothesis.tier) == ("data.preparation", Tier.LIKELY)
    assert (hypothesis.ranks, hypothesis.kind, hypothesis.rows) == ([0], "slow", [0, 1, 2])


def test_if_the_main_rank_waits_too_it_is_not_named(make: Any) -> None:
    timeline = make(marker("preprocessing"), at_the_store(0), at_the_store(1))
    assert only(timeline, 3).ranks == []


@pytest.mark.parametrize(
    ("joined", "summary"),
    [
        (3, "Only 3 of 4 processes joined the rendezvous."),
        (
            6,
            "6 processes registered for a job of 4: leftovers of an earlier attempt, or started "
            "more than once.",
        ),
    ],
)
def test_a_wrong_count_at_the_rendezvous(make: Any, joined: int, summary: str) -> None:
    hypothesis = only(make(gathered(1, 4), gathered(joined, 4)), 4)
    assert (hypothesis.cause, hypothesis.tier) == ("rendezvous.timeout", Tier.STRONG)
    assert (hypothesis.summary, hypothesis.rows) == (summary, [1])


def test_a_job_that_went_on_was_complete(make: Any) -> None:
    assert [one.cause for one in found(make(gathered(3, 4), step(1)), 4)] == ["rendezvous.timeout"]
    assert found(make(gathered(3, 4), step(1), step(2)), 4) == []


def test_a_rank_that_no_job_of_the_size_has_is_named(make: Any) -> None:
    lines = [
        gathered(3, 2) | {"fields": gathered(3, 2)["fields"] | {"rank": str(n)}} for n in (0, 2)
    ]
    hypothesis = only(make(*lines), None)
    assert hypothesis.cause == "rendezvous.rank_mapping"
    assert (hypothesis.ranks, hypothesis.kind) == ([2], None)  # it made no other call
    assert hypothesis.why == "in a job of 2, whose last rank is 1"
    assert only(make(gathered(1, 2)), None).ranks == []


def test_who_was_asked_through_the_store_is_missing(make: Any) -> None:
    asked = [at_the_store(rank) | {"fields": {"from_rank": "0"}} for rank in (2, 3)]
    hypothesis = only(make(*asked), None)
    assert (hypothesis.cause, hypothesis.ranks, hypothesis.kind) == (
        "rendezvous.timeout",
        [0],
        "missing",
    )
    two = [asked[0], at_the_store(3) | {"fields": {"from_rank": "1"}}]
    assert only(make(*two), None).ranks == []


def test_of_a_model_that_all_load_nobody_is_blamed(make: Any) -> None:
    hypothesis = only(make(marker("model_load"), at_the_store(5)), None)
    assert (hypothesis.cause, hypothesis.ranks) == ("slow.model_load", [])
    assert only(make(marker("preprocessing"), at_the_store(5)), None).ranks == [0]


@pytest.mark.parametrize(
    ("waiting", "absent"), [([0, 1, 3], [2]), ([0, 3], []), ([0, 1, 2, 3], []), ([], [])]
)
def test_who_does_not_say_that_it_waits_is_absent(
    make: Any, waiting: list[int], absent: list[int]
) -> None:
    rows = [{"fields": gathered(3, 4)["fields"] | {"rank": str(rank)}} for rank in waiting]
    assert only(make(gathered(3, 4), *rows), 4).ranks == absent


@pytest.mark.parametrize(("came", "absent"), [(1, []), (3, []), (4, [4, 5, 6, 7])])
def test_where_most_of_the_job_is_absent_nobody_is_named(
    make: Any, came: int, absent: list[int]
) -> None:
    rows = [{"fields": gathered(came, 8)["fields"] | {"rank": str(rank)}} for rank in range(came)]
    assert only(make(gathered(came, 8), *rows), 8).ranks == absent


@pytest.mark.parametrize(
    ("ranks", "cause"),
    [
        ([0, 1, 0, 1], "rendezvous.rank_mapping"),  # each of two nodes counts from 0
        ([0, 1, 0], "rendezvous.timeout"),
        ([0, 1, 0, 2], "rendezvous.timeout"),
    ],
)
def test_ranks_that_are_told_twice_are_numbers_of_several_processes(
    make: Any, ranks: list[int], cause: str
) -> None:
    assert (
        only(make(*(banner(*row) for row in enumerate(ranks, 1)), gathered(2, 4)), 4).cause == cause
    )


def test_the_lines_that_state_equal_ranks_are_the_evidence_and_blame_nobody(make: Any) -> None:
    rows = [banner(*row) for row in enumerate([0, 1, 0, 1], 1)]
    found = only(make(*rows, gathered(2, 4)), 4)
    assert (found.rows, found.ranks, found.hosts) == ([0, 1, 2, 3, 4], [], [])


def test_a_count_that_a_rank_repeats_makes_no_other_process(make: Any) -> None:
    count = gathered(2, 4)["fields"]
    rows = [{"line": line, "fields": count | {"rank": str(line % 2)}} for line in range(1, 5)]
    assert only(make(*rows), 4).cause == "rendezvous.timeout"


def banner(line: int, rank: int) -> dict[str, Any]:
    """The line by which a rank of 4 introduces itself."""
    begin = {"kind": "phase", "role": "phase", "phase": "init", "line": line}
    return begin | {"fields": {"world_size": "4", "rank": str(rank)}}


BANNER = "Initializing distributed: GLOBAL_RANK: {}, MEMBER: {}/4\n"
RAISED = 'Traceback (most recent call last):\n  File "/app/train.py", line 12, in training_step\n'


@pytest.mark.parametrize(
    ("text", "verdict", "cause"),
    [
        (BANNER.format(2, 3), "unknown", "unknown"),
        (BANNER.format(0, 1) + BANNER.format(2, 3), "unknown", "unknown"),
        (BANNER.format(2, 3) + RAISED + "ValueError: bad batch\n", "failed", "crash.exception"),
    ],
)
def test_the_banner_of_a_rank_of_lightning_counts_nobody(
    text: str, verdict: str, cause: str
) -> None:
    result = diagnose.diagnose(diagnose.load_text(text))
    assert (result.verdict, result.root_cause.cause) == (verdict, cause)
    assert result.culprits.ranks == []
