"""Who is missing, who differs, who is behind: from log lines, whatever their order."""

import itertools
from typing import Any

import pytest

from diagnose.infer.judge import lines
from diagnose.infer.judge.lines import stalls
from tests.counting import Count

from ..rows import ended, stack, step


def wait(
    rank: int | None,
    seq: int | None = 7,
    op: str | None = "ALLREDUCE",
    size: int | None = 1000,
    **more: Any,
) -> dict[str, Any]:
    return {
        "signal": "timeout", "kind": "collective", "role": "effect", "rank": rank, "seq": seq,
        "op": op, "size_in": size, "size_out": size, "timeout_ms": 600_000, "elapsed_ms": 600_050,
    } | more  # fmt: skip


def frontier(rank: int, enqueued: int, completed: int, **more: Any) -> dict[str, Any]:
    fields = {"enqueued": str(enqueued), "completed": str(completed)}
    return {
        "signal": "frontier",
        "kind": "collective",
        "role": "effect",
        "rank": rank,
        "fields": fields,
    } | more


def missing(ranks: str) -> dict[str, Any]:
    return {
        "signal": "missing",
        "kind": "collective",
        "role": "effect",
        "fields": {"missing": ranks},
    }


def only(make: Any, world: int | None, *rows: dict[str, Any]) -> Any:
    found = stalls(make(*rows), world)
    assert len(found) == 1
    return found[0]


def test_the_rank_without_a_timeout_is_missing(make: Any) -> None:
    stall = only(make, 4, wait(0), wait(1), wait(3))
    assert (stall.kind, stall.missing, stall.sure) == ("missing", (2,), True)
    assert stall.why == "rank 2 of 4 printed no timeout"


def test_whose_lines_are_lost_and_who_aborted_like_its_peers_waited_too(make: Any) -> None:
    ends = [ended(rank, exitcode="-6") for rank in range(4)]
    stall = only(make, 4, wait(0), wait(1), wait(3), *ends)
    assert (stall.kind, stall.absent) == ("unclear", ())
    assert stall.why == "every rank seen is waiting for the same collective"
    stopped = [*ends[:2], ended(2, exitcode="-15"), ends[3]]
    assert only(make, 4, wait(0), wait(1), wait(3), *stopped).ranks == (2,), "it did not abort"
    heard = [step(9, rank=2), *ends]
    assert only(make, 4, wait(0), wait(1), wait(3), *heard).ranks == (2,), "it printed no timeout"


def test_where_one_file_is_left_the_one_that_did_not_abort_is_missing(make: Any) -> None:
    ends = [ended(rank, exitcode="-6") for rank in range(8) if rank != 5]
    stall = only(make, 8, wait(0), *ends)
    assert (stall.kind, stall.ranks, stall.sure) == ("missing", (5,), True)
    alone = only(make, 8, wait(0))
    assert (alone.kind, alone.ranks) == ("unclear", ())


def test_who_waits_in_a_call_with_others_is_not_apart(make: Any) -> None:
    """A watchdog prints each group: of rank 3 the line on the call that all wait in was lost."""
    waits = [*(wait(rank, 3) for rank in (0, 1, 2)), wait(0, 6, op="BROADCAST")]
    assert only(make, 4, *waits, wait(3, 6, op="BROADCAST")).ranks == ()
    apart = only(make, 4, *waits, wait(3, 6, op="ALLGATHER"))
    assert (apart.kind, apart.ranks) == ("mismatched", (3,))


def test_whose_wait_is_lost_may_be_with_the_few(make: Any) -> None:
    waits = [wait(0), wait(1, op="ALLGATHER"), wait(3), *(wait(rank) for rank in (4, 5))]
    lost = ended(2, exitcode="-6")
    stall = only(make, 4, *waits[:3], lost)
    assert (stall.kind, stall.ranks, stall.sure) == ("mismatched", (), False)
    assert only(make, 6, *waits, lost).ranks == (1,), "two of six are few"


def test_without_a_world_size_a_gap_is_only_a_hint(make: Any) -> None:
    stall = only(make, None, wait(1), wait(2), wait(3))
    assert (stall.kind, stall.missing, stall.sure) == ("missing", (0,), False)


def test_one_waiting_rank_of_many_accuses_nobody(make: Any) -> None:
    stall = only(make, 64, wait(5))
    assert (stall.kind, stall.missing) == ("unclear", ())


def test_all_ranks_waiting_for_the_same_call_have_joined(make: Any) -> None:
    stall = only(make, 3, wait(0), wait(1), wait(2))
    assert (stall.kind, stall.missing) == ("all_joined", ())


def test_a_group_in_which_every_rank_of_the_job_waits_is_complete(make: Any) -> None:
    rows = [wait(rank, group="1") for rank in range(3)]
    assert only(make, 3, *rows).kind == "all_joined"
    stall = only(make, 4, *rows)
    assert (stall.kind, stall.missing) == ("missing", (3,)), "nobody else of the job is silent"


def test_an_all_gather_tells_its_group_size(make: Any) -> None:
    rows = [wait(r, op="_ALLGATHER_BASE", size=10, size_out=20) for r in (4, 5)]
    assert only(make, 8, *rows).kind == "all_joined"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_minority_of_a_mismatch_is_odd_in_any_order(make: Any, order: tuple[int, ...]) -> None:
    rows = [wait(0), wait(1), wait(2, op="BROADCAST"), wait(3)]
    stall = only(make, 4, *[rows[i] for i in order])
    assert (stall.kind, stall.ranks, stall.sure) == ("mismatched", (2,), True)


@pytest.mark.parametrize(("group", "proven"), [(None, False), ("0", True)])
def test_beside_a_silent_rank_only_a_named_group_proves_a_mismatch(
    make: Any, group: str | None, proven: bool
) -> None:
    rows = [wait(r, group=group, op="REDUCE" if r == 2 else "ALLREDUCE") for r in range(4)]
    stall = only(make, 6, *rows)
    assert (stall.kind, stall.ranks, stall.sure) == ("mismatched", (2,), proven)


def test_two_against_two_is_a_tie(make: Any) -> None:
    stall = only(make, 4, wait(0), wait(1), wait(2, size=5), wait(3, size=5))
    assert (stall.kind, stall.ranks) == ("mismatched", ())


def test_uneven_all_to_all_sizes_are_no_mismatch(make: Any) -> None:
    rows = [wait(0, op="ALLTOALL_BASE", size=10), wait(1, op="ALLTOALL_BASE", size=12)]
    assert only(make, 2, *rows).kind == "all_joined"


def test_a_barrier_against_a_gather_is_a_branch(make: Any) -> None:
    rows = [wait(0, op="_ALLGATHER_BASE", size=5000), wait(1, size=1), wait(2, size=1)]
    stall = only(make, 3, *rows)
    assert (stall.kind, stall.ranks) == ("conditional", (0,))


def test_different_numbers_of_the_same_call_are_a_shift(make: Any) -> None:
    stall = only(make, 3, wait(0, seq=9), wait(1, seq=9), wait(2, seq=8))
    assert (stall.kind, stall.ranks) == ("shifted", (2,))


def test_a_line_cut_before_its_sizes_is_no_other_call(make: Any) -> None:
    cut = {"size_out": None}
    stall = only(make, 8, *(wait(rank) for rank in range(1, 7)), wait(7, **cut))
    assert (stall.kind, stall.missing, stall.ranks) == ("missing", (0,), (0,))
    stall = only(make, 4, wait(0), wait(1), wait(2), wait(3, size_in=5, **cut))
    assert (stall.kind, stall.ranks) == ("mismatched", (3,)), "what it does say differs"


def test_numbers_too_far_apart_are_those_of_several_groups(make: Any) -> None:
    (near,) = stalls(make(wait(0, 96_117), wait(7, 96_117 - 1_024)), 8)
    assert (near.kind, near.ranks) == ("shifted", (7,))
    (far,) = stalls(make(wait(0, 96_117), wait(7, 96_117 - 1_025)), 8)
    assert (far.kind, far.ranks) == ("unclear", ())


def test_the_first_pending_collective_counts(make: Any) -> None:
    rows = [wait(0, seq=9, op="BROADCAST"), wait(0, seq=7), wait(1, seq=7), wait(1, seq=12)]
    stall = only(make, 3, *rows)
    assert (stall.seq, stall.kind, stall.missing) == (7, "missing", (2,))


def test_a_rank_that_enqueued_less_and_completed_it_is_behind(make: Any) -> None:
    rows = [wait(0), wait(1), frontier(0, 9, 6), frontier(2, 6, 6)]
    stall = only(make, None, *rows)
    assert (stall.missing, stall.sure) == ((2,), True)
    assert stall.why == "rank 2 never launched collective 7, which other ranks are waiting on"


def test_groups_are_not_compared_with_each_other(make: Any) -> None:
    rows = [
        wait(0, seq=5, group="tp"), wait(1, seq=5, group="tp"),
        wait(2, seq=90, op="BROADCAST", group="dp"), wait(3, seq=90, op="BROADCAST", group="dp"),
    ]  # fmt: skip
    assert {stall.kind for stall in stalls(make(*rows), 4)} <= {"unclear", "all_joined"}


def test_named_missing_ranks_win_over_gaps(make: Any) -> None:
    stall = only(make, 8, wait(0), wait(1), missing("5, 6"))
    assert (stall.kind, stall.missing, stall.sure) == ("missing", (5, 6), True)


def test_names_alone_are_enough(make: Any) -> None:
    stall = only(make, None, missing("2"))
    assert (stall.kind, stall.missing, stall.waits) == ("missing", (2,), {})


def test_a_stated_mismatch_is_one(make: Any) -> None:
    fields = {
        "rank": "1",
        "other_rank": "0",
        "op": "BROADCAST",
        "other_op": "ALLREDUCE",
        "seq": "3",
    }
    row = {"signal": "mismatch", "kind": "collective", "role": "cause", "fields": fields}
    stall = only(make, 2, row)
    assert (stall.kind, stall.ranks, stall.sure, stall.seq) == ("mismatched", (), True, 3)


def test_lines_folded_by_ray_make_absence_mean_nothing(make: Any) -> None:
    rows = [wait(0), wait(1, repeated=6), wait(3)]
    stall = only(make, 8, *rows)
    assert (stall.kind, stall.missing, stall.sure) == ("unclear", (), False)


def test_send_and_recv_numbers_are_not_compared(make: Any) -> None:
    rows = [wait(0, seq=3, op="SEND"), wait(1, seq=8, op="RECV")]
    assert [stall.kind for stall in stalls(make(*rows), 2)] == ["unclear"]


def test_a_high_rank_costs_nothing_in_each_of_many_groups(make: Any) -> None:
    counts = []
    for highest in (5, 99_999):
        waits = [wait(n % 4, group=f"group {n}") for n in range(40)]
        timeline, count = make(*waits, {"rank": highest}), Count()
        count.during(lambda timeline=timeline: stalls(timeline, None))
        counts.append(count.work)
    assert counts[1] < counts[0] + 5000


def test_lists_of_missing_ranks_are_read_up_to_a_limit(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_NAMED_LIMIT", 100)
    lists = [f"{n}-{n + 59}" for n in (0, 60, 120)]
    stall = only(make, None, *(missing(ranks) for ranks in [*lists, lists[0]]))
    assert stall.missing == tuple(range(120))
    assert stall.rows == (0, 1, 3)


def test_ranks_that_lack_different_operations_wait_for_each_other(make: Any) -> None:
    rows = [missing(str(rank)) | {"op": op} for rank, op in enumerate(["ALLREDUCE"] * 3)]
    assert only(make, None, *rows).kind == "missing"
    assert only(make, None, *rows, missing("9") | {"op": "BROADCAST"}).kind == "conditional"


# --------------------------------------------------------------------------- sends and receives


def p2p(rank: int, op: str, **more: Any) -> dict[str, Any]:
    return wait(rank, None, op, None, **more)


def test_a_send_and_a_receive_are_a_pair_and_the_rank_with_neither_is_missing(make: Any) -> None:
    rows = [p2p(0, "SEND"), p2p(1, "SEND"), p2p(3, "RECV")]
    (stall,) = stalls(make(*rows, step(4, rank=2)), None)
    assert (stall.kind, stall.missing, stall.ranks, stall.sure) == ("missing", (2,), (2,), True)
    (unheard,) = stalls(make(*rows), None)
    assert (unheard.kind, unheard.missing, unheard.sure) == ("missing", (2,), False)
    (pair,) = stalls(make(p2p(0, "SEND"), p2p(1, "RECV")), 2)
    assert (pair.kind, pair.missing, pair.ranks) == ("unclear", (), ())


def test_stacks_that_end_in_a_send_and_in_a_receive_do_not_disagree(make: Any) -> None:
    waits = [unnamed(rank) for rank in range(3)]
    stacks = [row for rank, op in enumerate(["send", "recv", "send"]) for row in stopped(rank, op)]
    (stall,) = stalls(make(*waits, *stacks, step(1, rank=3)), 4)
    assert (stall.kind, stall.missing, stall.group) == ("missing", (3,), None)


def test_who_waits_for_a_partner_is_not_missing_from_a_collective(make: Any) -> None:
    rows = [wait(0), wait(1), wait(2), p2p(3, "RECV")]
    found = stalls(make(*rows, step(1, rank=4)), 5)
    assert [(s.kind, s.missing) for s in found if s.kind == "missing"] == [("missing", (4,))]


# --------------------------------------------------------------------------- stacks instead


def unnamed(rank: int) -> dict[str, Any]:
    """A wait that tells neither which operation nor its number."""
    return wait(rank, None, op=None, size=None)


def stopped(rank: int, call: str) -> list[dict[str, Any]]:
    return stack(rank, ("train.py", 9, "main"), ("torch/distributed/c10d.py", 3, call))


def test_where_no_wait_tells_its_operation_the_stacks_do(make: Any) -> None:
    waits = [unnamed(rank) for rank in (0, 1, 2)]
    calls = ["all_reduce", "all_reduce", "broadcast"]
    stacks = [row for rank, call in enumerate(calls) for row in stopped(rank, call)]
    (stall,) = stalls(make(*waits, *stacks), 3)
    assert (stall.kind, stall.ranks) == ("mismatched", (2,))
    assert [(w.op, w.timeout_ms, w.row) for w in stall.waits.values()] == [
        ("ALLREDUCE", 600_000, 4), ("ALLREDUCE", 600_000, 6), ("BROADCAST", 600_000, 8),
    ]  # fmt: skip
    assert [s.kind for s in stalls(make(*waits), 3)] == ["all_joined"]


def test_where_a_wait_tells_its_operation_the_stacks_are_not_asked(make: Any) -> None:
    rows = [wait(0), wait(1), *stopped(0, "all_reduce"), *stopped(1, "broadcast")]
    assert [stall.kind for stall in stalls(make(*rows), 2)] == ["all_joined"]


def test_one_gap_in_the_numbers_of_many_is_proof_whatever_the_size_of_the_job(make: Any) -> None:
    stall = only(make, None, *(wait(rank) for rank in range(128) if rank != 57))
    assert (stall.kind, stall.missing, stall.sure) == ("missing", (57,), True)
    few = only(make, None, *(wait(rank) for rank in range(7) if rank != 3))
    assert (few.missing, few.sure) == ((3,), False), "six lines may be an excerpt"


def test_of_two_sides_of_one_operation_the_earlier_call_is_behind(make: Any) -> None:
    stall = only(make, None, wait(0, seq=7931), wait(1, seq=7933))
    assert (stall.kind, stall.ranks) == ("shifted", (0,))


def came(rank: int, asked: int) -> dict[str, Any]:
    fields = {"ranks": str(rank), "from_rank": str(asked)}
    return {"signal": "joined", "kind": "collective", "role": "effect", "fields": fields}


def test_who_answers_nobody_at_a_barrier_is_waited_for(make: Any) -> None:
    stall = only(make, None, came(3, 0), came(5, 0))
    assert (stall.kind, stall.missing, stall.waiting, stall.tiny) == ("missing", (0,), [3, 5], True)
    assert not stall.sure, "it may have failed because another rank did not come"
    assert stalls(make(came(3, 0), came(0, 3)), None) == []


@pytest.mark.parametrize(
    ("waiting", "missing", "accused"),
    [((1, 2, 3), (0,), (0,)), ((1, 2), (0,), ()), ((0, 1, 3), (2,), ())],
)
def test_rank_0_is_missing_below_several_others(
    make: Any, waiting: tuple[int, ...], missing: tuple[int, ...], accused: tuple[int, ...]
) -> None:
    stall = only(make, None, *(wait(rank) for rank in waiting))
    assert (stall.absent, stall.awaited) == (missing, accused)


def test_of_three_kinds_the_most_frequent_is_no_measure_without_a_majority(make: Any) -> None:
    sizes = {1: 56, 4: 56, 6: 76, 7: 107}
    stall = only(make, None, *(wait(rank, size=size) for rank, size in sizes.items()))
    assert (stall.kind, stall.ranks) == ("mismatched", ())
    more = only(make, None, *(wait(r, size=s) for r, s in {**sizes, 0: 56}.items()))
    assert more.ranks == (6, 7)


def test_whose_call_ended_with_an_error_had_joined_it(make: Any) -> None:
    fields = {"op": "ALLREDUCE", "seq": "7", "timeout_ms": "600000", "reason": "NCCL error"}
    error = wait(0, signal=None, fields=fields, elapsed_ms=None)
    (stall,) = stalls(make(wait(1), wait(2), step(1, rank=0), error), None)
    assert stall.missing == ()
    assert stall.waiting == [0, 1, 2]
    # In another call it may have been anywhere.
    (stall,) = stalls(make(wait(1), wait(2), error | {"seq": 6}), None)
    assert 0 not in stall.waiting


def test_half_of_a_large_job_may_be_silent(make: Any) -> None:
    (found,) = stalls(make(*(wait(rank, group="0") for rank in range(0, 4096, 2))), 4096)
    assert (found.kind, found.ranks, len(found.suspects)) == ("missing", (), 2048)
