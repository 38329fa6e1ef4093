"""Dumps of simulated jobs with one fault: the culprit and its kind, by dumps alone."""

from __future__ import annotations

import pickle
import random
from itertools import combinations

import pytest

from diagnose.infer.collectives.analyze import _completed, judge
from diagnose.infer.collectives.by_table import ByTable
from diagnose.infer.collectives.divergence import strays
from diagnose.infer.judge.verdict import Sign, Verdict
from tests.infer.dump_jobs import AHEAD, CRASH, DEVICE, HOST, WAIT, Call, Job, grid, of, tables

WORLD, TENSOR, STEPS, AT = 8, 2, 9, 6
GROUPS = grid(WORLD, TENSOR)


def training(culprit: int, fault: list[Call], replace: bool = False) -> Job:
    """A TP × DP job; at step `AT` the culprit's program has `fault` before its second call."""

    def program(rank: int) -> list[Call]:
        tensor, data = of(GROUPS, "TENSOR_GROUP", rank), of(GROUPS, "DATA_GROUP", rank)
        calls = []
        for step in range(STEPS):
            hit = rank == culprit and step == AT
            calls.append(Call(tensor, "all_gather", 16, 10))
            calls += fault if hit else []
            if not (hit and replace):
                calls.append(Call(tensor, "all_reduce", 32, 11))
            calls.append(Call(data, "all_reduce", 64, 12))
            if step % 4 == 3:
                calls.append(Call("0", "all_reduce", 1, 13))
        return calls

    return Job(GROUPS, program)


def verdict(job: Job, only_pending: bool = False, lost: tuple[int, ...] = ()) -> Verdict:
    files = job.files(only_pending)
    found = judge(tables((n, d) for n, d in files.items() if int(n[6:]) not in lost))
    assert found is not None
    return found


def own(desc: str, rank: int) -> str:
    return of(GROUPS, desc, rank)


@pytest.mark.parametrize("only_pending", [False, True])
@pytest.mark.parametrize("culprit", [0, 3, 7])
def test_a_stuck_host(culprit: int, only_pending: bool) -> None:
    found = verdict(training(culprit, [HOST]), only_pending)

    assert (found.kind, found.ranks) == ("stuck_host", (culprit,))
    # Most wait for it in the data group; its neighbour already does in the tensor group.
    assert found.group == f"DATA_GROUP ({own('DATA_GROUP', culprit)})"
    assert (found.op, found.seq) == ("all_reduce", AT + 1)
    assert found.missing == (culprit,)
    assert found.joined == tuple(r for r in range(culprit % 2, 8, 2) if r != culprit)
    assert found.evidence[0] == Sign(
        f"_dump_{culprit}",
        0,
        culprit,
        f"rank {culprit} is idle; it last launched seq {AT} in {found.group}",
    )


def test_the_graph_and_the_roles_of_a_report() -> None:
    found = verdict(training(3, [HOST]))

    assert found.sure
    assert found.site == "/app/train.py:12"
    data, tensor = own("DATA_GROUP", 3), own("TENSOR_GROUP", 3)
    assert (2, 3, f"all_reduce seq {2 * AT + 2} of TENSOR_GROUP ({tensor})") in found.edges
    assert (1, 3, f"all_reduce seq {AT + 1} of DATA_GROUP ({data})") in found.edges
    assert {(a, b) for a, b, _ in found.edges} == {
        (2, 3), (1, 3), (5, 3), (7, 3), (0, 2), (4, 2), (6, 2),
    }  # fmt: skip
    assert found.roles == {r: "culprit" if r == 3 else "waiting" for r in range(WORLD)}


def test_ranks_without_a_dump_make_it_less_than_sure() -> None:
    found = verdict(training(3, [HOST]), lost=(6,))
    assert (found.ranks, found.sure, found.roles[6]) == ((3,), False, "no dump")


def test_ranks_that_wait_for_nobody_are_done() -> None:
    groups = {"0": ("default_pg", [0, 1, 2]), "1": ("PAIR", [0, 1])}
    found = verdict(Job(groups, lambda rank: [Call("0"), *[Call("1")] * (rank == 0)]))
    assert found.roles == {0: "waiting", 1: "culprit", 2: "done"}


@pytest.mark.parametrize("only_pending", [False, True])
@pytest.mark.parametrize("culprit", [0, 5])
def test_a_stuck_device(culprit: int, only_pending: bool) -> None:
    found = verdict(training(culprit, [DEVICE]), only_pending)

    assert (found.kind, found.ranks) == ("stuck_device", (culprit,))
    assert (found.op, found.seq) == ("all_reduce", 2 * AT + 2)
    assert found.missing == ()
    assert found.joined == tuple(sorted((culprit, culprit ^ 1)))


@pytest.mark.parametrize(
    ("op", "done", "kind", "ranks", "suspects"),
    [
        ("all_reduce", [3], "mismatched", (3,), ()),
        ("all_reduce", [3, 5], "mismatched", (), (3, 5)),
        ("all_reduce", [3, 4, 5], "stuck_device", (0, 1, 2, 6, 7), ()),
        ("broadcast", [3], "stuck_device", (0, 1, 2, 4, 5, 6, 7), ()),  # it sent what it had
    ],
)
def test_who_alone_completed_a_call_made_it_with_others(
    op: str, done: list[int], kind: str, ranks: tuple[int, ...], suspects: tuple[int, ...]
) -> None:
    """As of groups that one rank created in another order: their numbers do not mean the same."""
    groups = {"0": ("default_pg", [*range(8)])}
    job = Job(groups, lambda _: [Call("0"), DEVICE, Call("0", op)])
    contents = [job.content(rank) for rank in range(8)]
    for rank in done:
        contents[rank]["entries"][-1].update(state="completed", retired=True)
    files = ((f"_dump_{r}", pickle.dumps(content, 2)) for r, content in enumerate(contents))
    found = judge(tables(files))
    assert found is not None
    assert (found.kind, found.ranks, found.suspects) == (kind, ranks, suspects)


def test_who_only_made_the_call_has_not_completed_it() -> None:
    groups = {"0": ("default_pg", [*range(8)])}
    job = Job(groups, lambda _: [Call("0"), DEVICE, Call("0")])
    contents = [job.content(rank) for rank in range(8)]
    contents[3]["entries"][-1].update(state="completed", retired=True)
    table = tables((f"_dump_{r}", pickle.dumps(one, 2)) for r, one in enumerate(contents))
    standing = ByTable(table)
    assert _completed(standing, 0, range(8)) == [3]
    assert standing.absent("0", 1) == [], "all have made it"


@pytest.mark.parametrize("culprit", [1, 6])
def test_another_call_in_place_of_one(culprit: int) -> None:
    tensor = own("TENSOR_GROUP", culprit)
    job = training(culprit, [Call(tensor, "broadcast", 5, 141)], replace=True)
    found = verdict(job)

    assert (found.kind, found.ranks) == ("mismatched", (culprit,))
    assert found.why == (
        f"rank {culprit} called broadcast [5] Float at /app/train.py:141 where the others called "
        f"all_reduce [32] Float at /app/train.py:11 at seq {2 * AT + 2}"
    )
    assert found.notes == ("no majority in its own group; decided by groups of the same kind",)


def test_an_extra_call_by_majority_and_alignment() -> None:
    groups = {"0": ("default_pg", list(range(8)))}

    def program(rank: int) -> list[Call]:
        calls = []
        for step in range(STEPS):
            calls.append(Call("0", "all_gather", 16, 10))
            calls += [Call("0", "all_reduce", 3, 141)] if (rank, step) == (3, AT) else []
            calls.append(Call("0", "all_reduce", 32, 11))
        return calls

    found = verdict(Job(groups, program))
    assert (found.kind, found.ranks) == ("mismatched", (3,))
    assert found.why == (
        f"rank 3 made one extra all_reduce at /app/train.py:141 after seq {2 * AT + 1}"
    )


def test_an_extra_call_that_looks_like_the_next() -> None:
    """Equal calls pair up wrongly and go on; only the call sites tell where."""
    groups = {"0": ("default_pg", list(range(8)))}

    def program(rank: int) -> list[Call]:
        calls = []
        for step in range(STEPS):
            calls += [Call("0", line=141)] if (rank, step) == (3, AT) else []
            calls += [Call("0", line=10), Call("0", line=11)]
        return calls

    found = verdict(Job(groups, program))
    assert (found.kind, found.ranks) == ("mismatched", (3,))
    assert found.why == f"rank 3 made one extra all_reduce at /app/train.py:141 after seq {2 * AT}"
    assert found.joined == (3,)


def test_a_call_left_out() -> None:
    found = verdict(training(5, [], replace=True))
    assert (found.kind, found.ranks) == ("mismatched", (5,))


def test_a_call_only_one_rank_makes() -> None:
    groups = {"0": ("default_pg", list(range(4)))}
    found = verdict(
        Job(groups, lambda rank: [Call("0"), Call("0")] + [Call("0", line=9)] * (rank == 0))
    )
    assert (found.kind, found.ranks) == ("mismatched", (0,))
    assert found.missing == (1, 2, 3)
    assert "only rank 0 called all_reduce [8] Float seq 3" in found.why


def test_of_three_calls_without_a_majority_the_most_frequent_is_no_measure() -> None:
    sizes = [8, 8, 16, 32]
    groups = {"0": ("default_pg", [0, 1, 2, 3])}
    job = Job(groups, lambda rank: [Call("0", "all_reduce", 4), Call("0", size=sizes[rank])])
    found = verdict(job)
    assert (found.kind, found.ranks, found.suspects) == ("mismatched", (), (0, 1, 2, 3))


def test_a_tie_is_told_as_one() -> None:
    groups = {"0": ("default_pg", list(range(8)))}
    found = verdict(Job(groups, lambda rank: [Call("0"), Call("0", size=8 if rank < 4 else 9)]))
    assert (found.kind, found.tie, found.ranks) == ("mismatched", True, ())
    assert (found.suspects, found.sure) == (tuple(range(8)), False)
    assert set(found.roles.values()) == {"waiting"}
    assert found.why.startswith("no majority at seq 2 of default_pg (0): ")
    assert "ranks 0-3 called all_reduce [8] Float" in found.why
    assert "ranks 4-7 called all_reduce [9] Float" in found.why


def test_sizes_of_all_to_all_may_differ() -> None:
    groups = {"0": ("default_pg", list(range(4)))}

    def program(rank: int) -> list[Call]:
        uneven = Call("0", "all_to_all", 8, 1)
        return [uneven, HOST] if rank == 2 else [uneven, Call("0", "all_to_all", rank)]

    found = verdict(Job(groups, program))
    assert (found.kind, found.ranks) == ("stuck_host", (2,))


@pytest.mark.parametrize("odd", range(8))
def test_the_odd_one_is_found_in_every_order_of_files(odd: int) -> None:
    groups = {"0": ("default_pg", list(range(8)))}

    def program(rank: int) -> list[Call]:
        op = "all_reduce" if rank == odd else "_all_gather_base"
        return [Call("0")] * 3 + [Call("0", op, 16)]

    files = [*Job(groups, program).files().items()]
    for turn in range(8):
        for order in (files[turn:] + files[:turn], files[turn::-1] + files[:turn:-1]):
            found = judge(tables(order))
            assert found is not None
            assert (found.kind, found.ranks, found.seq) == ("mismatched", (odd,), 4)


@pytest.mark.parametrize("seed", range(5))
def test_order_and_folders_do_not_matter(seed: int) -> None:
    files = [*training(3, [HOST]).files().items()]
    expected = judge(tables(files))
    shuffled = files[:]
    random.Random(seed).shuffle(shuffled)
    assert judge(tables(shuffled)) == expected


def pipeline(stalled: int, fault: Call) -> Job:
    """Four stages of one rank each; micro-batches go forward by send and receive."""
    stages = 4
    groups = {"0": ("default_pg", list(range(stages)))}
    groups |= {str(n): (f"PIPE_{n}", [n - 1, n]) for n in range(1, stages)}

    def program(rank: int) -> list[Call]:
        calls = [Call("0", line=1)]
        for batch in range(12):
            if rank > 0:
                calls.append(Call(str(rank), "recv", 8, 20, peer=rank - 1))
            calls += [fault] if (rank, batch) == (stalled, 6) else []
            if rank < stages - 1:
                calls.append(Call(str(rank + 1), "send", 8, 21, peer=rank + 1))
        return calls

    return Job(groups, program)


@pytest.mark.parametrize("only_pending", [False, True])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_stalled_stage_of_a_pipeline(stage: int, only_pending: bool) -> None:
    found = verdict(pipeline(stage, HOST), only_pending)
    assert (found.kind, found.ranks) == ("stuck_host", (stage,))


def test_two_groups_entered_in_different_orders_are_a_deadlock() -> None:
    groups = {"0": ("default_pg", [0, 1]), "1": ("A", [0, 1]), "2": ("B", [0, 1])}

    def program(rank: int) -> list[Call]:
        first, second = ("1", "2") if rank == 0 else ("2", "1")
        wait = [HOST]  # the host waits for its first collective before it enqueues the next
        return [Call("0"), Call(first), *wait, Call(second)]

    found = verdict(Job(groups, program))
    assert (found.kind, found.tie, found.ranks, found.suspects) == ("deadlock", True, (), (0, 1))
    assert found.why == (
        "rank 0 waits in all_reduce [8] Float seq 1 of A (1) at /app/train.py:1 for rank 1, which "
        "waits in all_reduce [8] Float seq 1 of B (2) at /app/train.py:1 for rank 0: they entered "
        "these groups in different orders, or one of them left a call out"
    )


def test_who_took_two_calls_of_two_groups_the_other_way_round_is_named() -> None:
    """In four pairs of ranks one rank enters B before A: as if it had left out a call of A."""
    groups = {"0": ("default_pg", [*range(8)])}
    for pair in range(4):
        members = [2 * pair, 2 * pair + 1]
        groups |= {f"{1 + pair}": ("A", members), f"{5 + pair}": ("B", members)}

    def program(rank: int, fault: str) -> list[Call]:
        first, second = str(1 + rank // 2), str(5 + rank // 2)
        calls: list[Call] = []
        for number in range(STEPS):
            step = [Call(first, line=10), Call(second, line=11)]
            if (rank, number) == (5, AT):
                step = step[::-1] if fault == "swapped" else [Call(second, line=12), *step]
            calls += [one for call in step for one in (call, WAIT)]
        return calls

    swapped = verdict(Job(groups, lambda rank: program(rank, "swapped")))
    assert (swapped.kind, swapped.ranks) == ("mismatched", (5,))
    extra = verdict(Job(groups, lambda rank: program(rank, "extra")))
    assert 5 in extra.ranks or 5 in extra.suspects


def test_who_closes_a_circle_alone_took_two_calls_in_another_order() -> None:
    """All others of the group agree with each other: without that one there is no circle."""
    groups = {"0": ("default_pg", [0, 1, 2, 3, 4]), "1": ("A", [0, 1, 2, 3])}

    def program(rank: int) -> list[Call]:
        calls = [Call("1"), Call("0")] if rank < 4 else [Call("0")]
        return [*reversed(calls)] if rank == 2 else calls

    found = verdict(Job(groups, program))
    assert (found.kind, found.tie, found.ranks) == ("mismatched", False, (2,))
    assert (
        "of default_pg (0) at /app/train.py:1 for ranks 0-1, 3, which wait for it in" in found.why
    )


def test_receives_that_wait_for_each_other_are_a_cycle() -> None:
    groups = {"0": ("default_pg", [0, 1])}
    found = verdict(Job(groups, lambda rank: [Call("0"), Call("0", "recv", peer=1 - rank), HOST]))
    assert (found.kind, found.tie, found.ranks, found.suspects) == ("cycle", True, (), (0, 1))


def test_calls_that_passed_each_other_do_no_harm() -> None:
    """Rank 3 swapped its last two calls, which can pass each other; rank 6 is what all wait for."""

    def program(rank: int) -> list[Call]:
        tensor, data = own("TENSOR_GROUP", rank), own("DATA_GROUP", rank)
        calls = []
        for step in range(STEPS):
            pair = [Call(data, line=12, later=True), Call("0", line=13, later=True)]
            last = step == STEPS - 1
            calls += [Call(tensor, line=10), *(pair[::-1] if last and rank == 3 else pair)]
            calls += [HOST] if last and rank == 6 else []
            calls += [WAIT, Call(tensor, line=14)]
        return calls

    job = Job(GROUPS, program)
    (swapped,) = strays(tables(job.files().items()))
    assert (swapped.rank, swapped.proven) == (3, False)
    found = verdict(job)
    assert (found.kind, found.ranks) == ("stuck_host", (6,))


def test_all_joined_and_nobody_behind_is_the_network() -> None:
    groups = {"0": ("default_pg", list(range(4)))}
    found = verdict(Job(groups, lambda _: [Call("0"), DEVICE, Call("0", line=5)]))
    assert (found.kind, found.ranks, found.seq) == ("network", (), 2)
    assert found.joined == (0, 1, 2, 3)
    assert found.missing == ()


@pytest.mark.parametrize("culprit", range(8))
def test_the_culprit_without_a_dump(culprit: int) -> None:
    found = verdict(training(culprit, [HOST]), lost=(culprit,))
    assert (found.kind, found.ranks) == ("missing", (culprit,))
    assert found.notes[-1] == f"no dump from rank {culprit}"


def test_two_that_left_no_dump_each_waited_for_alone() -> None:
    """Ranks 0 and 7 crash; the neighbour of each waits in a tensor group of its own."""

    def program(rank: int) -> list[Call]:
        tensor = own("TENSOR_GROUP", rank)
        return [Call(tensor), CRASH if rank in (0, 7) else Call(tensor), Call(tensor)]

    found = verdict(Job(GROUPS, program), lost=(0, 7))
    assert (found.kind, found.ranks, found.sure) == ("missing", (0, 7), False)


def test_which_of_the_ranks_without_a_dump_is_not_told() -> None:
    groups = {"0": ("default_pg", list(range(8)))}
    job = Job(groups, lambda rank: [Call("0"), HOST if rank == 5 else Call("0")])
    found = verdict(job, lost=(2, 5))
    assert (found.kind, found.tie, found.ranks) == ("missing", True, ())
    assert found.suspects == (2, 5)
    assert found.why == (
        "ranks 2, 5 left no dump, and 6 other ranks are waiting for them; the other dumps do not "
        "show which of them, if any, is to blame"
    )


def test_a_rank_whose_dump_was_cut_off_is_suspect_at_most() -> None:
    groups = {"0": ("default_pg", list(range(4)))}
    files = Job(groups, lambda rank: [Call("0")] * 8, dead=("0", 8)).files()
    files["_dump_2"] = files["_dump_2"][: len(files["_dump_2"]) * 4 // 5]
    found = judge(tables(files.items()))
    assert found is not None
    assert (found.kind, found.ranks, found.suspects, found.sure) == ("missing", (), (2,), False)
    assert found.why.startswith(
        "rank 2 left no complete dump, and 3 other ranks are waiting for it"
    )


def test_a_rank_whose_own_peers_left_no_dump() -> None:
    """Nobody is seen to wait for it: it is blamed as it got less far than others of its kind."""
    found = verdict(training(4, [HOST]), lost=(0, 2, 5, 6))
    assert (found.kind, found.ranks, found.sure) == ("stuck_host", (4,), False)


def test_a_rank_that_is_through_is_not_blamed() -> None:
    """Rank 0 and its peer are through with their program; ranks 1 and 3 hang in theirs."""
    groups = {"0": ("default_pg", list(range(4))), "1": ("PAIR", [0, 2]), "2": ("PAIR", [1, 3])}
    job = Job(groups, lambda rank: [Call("0"), Call("1" if rank % 2 == 0 else "2")], dead=("2", 1))
    found = verdict(job, lost=(2, 3))
    assert (found.kind, found.ranks) == ("missing", ())
    assert (found.suspects, found.roles[0]) == ((3,), "done")


@pytest.mark.parametrize("status", [True, False])
def test_a_group_whose_last_call_the_ring_has_lost(status: bool) -> None:
    groups = {"0": ("default_pg", [0, 1]), "1": ("PAIR", [0, 1])}
    job = Job(groups, lambda rank: [Call("1")] * 3 + [Call("0")] * (8 + rank))
    contents = [job.content(rank, ring=4) for rank in range(2)]
    for content in contents:
        if not status:
            del content["pg_status"]
    standing = ByTable(
        tables((f"_dump_{r}", pickle.dumps(content, 2)) for r, content in enumerate(contents))
    )
    assert standing.enqueued.get((0, "1", False)) == (3 if status else None)
    assert standing.unknown == (set() if status else {(0, "1"), (1, "1")})
    assert standing.absent("0", 9) == [0]


def test_sends_are_counted_from_the_first_record() -> None:
    """A send that the peer has received, and one that it waits for, carry numbers that mislead."""
    groups = {"0": ("default_pg", [0, 1, 2]), "1": ("PIPE", [0, 1, 2])}

    def program(rank: int) -> list[Call]:
        if rank == 0:
            return [Call("1", "send", peer=1)] * 3 + [DEVICE, Call("1", "send", peer=1)]
        if rank == 1:
            return [Call("1", "recv", peer=0), Call("1", "send", peer=2)] * 5
        return [Call("1", "recv", peer=1)] * 5

    found = verdict(Job(groups, program))
    assert (found.kind, found.ranks, found.sure) == ("stuck_device", (0,), True)


@pytest.mark.slow
def test_any_half_of_the_dumps() -> None:
    jobs = {
        "stuck_host": training(5, [HOST]),
        "mismatched": training(
            5, [Call(own("TENSOR_GROUP", 5), "broadcast", 5, 141)], replace=True
        ),
    }
    others = [rank for rank in range(WORLD) if rank != 5]
    for kind, job in jobs.items():
        for lost in combinations(others, WORLD // 2):
            found = verdict(job, lost=lost)
            assert (found.kind, found.ranks) == (kind, (5,)), lost


def test_two_culprits_in_different_groups() -> None:
    def program(rank: int) -> list[Call]:
        tensor = own("TENSOR_GROUP", rank)
        calls = [Call(tensor, line=10)] * 4
        return [*calls, HOST] if rank in (1, 6) else [*calls, Call(tensor, line=11)]

    found = verdict(Job(GROUPS, program))
    assert (found.kind, found.ranks) == ("stuck_host", (1, 6))


def test_nothing_pending_is_no_verdict() -> None:
    groups = {"0": ("default_pg", [0, 1])}
    assert judge(tables(Job(groups, lambda _: [Call("0")] * 3).files().items())) is None


def test_the_simulator_queues_behind_a_stuck_collective() -> None:
    job = training(3, [HOST])
    assert len(job.ranks[2].queue) == AHEAD
    assert job.ranks[3].queue == []
