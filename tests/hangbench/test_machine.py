"""The simulator: jobs without a fault end, and a fault stops just what depends on it."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from benchmarks.hangbench.sim.faults import FAULTS
from benchmarks.hangbench.sim.machine import WAIT, Call, Machine, Mark, Program
from benchmarks.hangbench.sim.outcome import Frame, Group
from benchmarks.hangbench.sim.programs import NAMES, draw
from benchmarks.hangbench.sim.simulate import simulate

HERE = (Frame("main", "/workspace/train/train.py", 1),)
SYNC = Mark("sync", HERE)


def call(group: str, numel: int = 8, op: str = "all_reduce", *, later: bool = False) -> Call:
    return Call(group, op, numel, numel, HERE, later=later)


def run(groups: dict[str, tuple[int, ...]], *programs: Program, ahead: int = 8) -> Machine:
    named = {name: Group(name, name, members) for name, members in groups.items()}
    return Machine(named, programs, ranks_per_node=8, ahead=ahead)


def heads(machine: Machine) -> list[tuple[str, int] | None]:
    return [
        (rank.pending[0].group, rank.pending[0].seq) if rank.pending else None
        for rank in machine.ranks
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("world", [4, 16, 48])
def test_without_a_fault_every_job_ends(name: str, world: int) -> None:
    for seed in range(4):
        rng = random.Random(seed)
        outcome = simulate(rng, draw(rng, name, world, 3), "", 8)
        assert outcome is not None
        assert {rank.end for rank in outcome.ranks} == {"left"}
        assert all(work.finished is not None for rank in outcome.ranks for work in rank.works)
        assert len({tuple(step for _, step in rank.steps) for rank in outcome.ranks}) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_leaves_ranks_that_wait(fault: str) -> None:
    found = Counter[bool]()
    for seed in range(12):
        rng = random.Random(seed)
        outcome = simulate(rng, draw(rng, NAMES[seed % len(NAMES)], 16, 3), fault, 4)
        found[outcome is not None] += 1
        if outcome is None:
            continue
        assert any(rank.end == "waiting" and rank.pending for rank in outcome.ranks)
        assert outcome.fault_at is not None
        assert outcome.onset is not None
    assert found[True]


def test_a_rank_that_is_stuck_stops_its_group_and_through_it_the_others() -> None:
    groups = {"0": (0, 1), "1": (2, 3), "2": (0, 2), "3": (1, 3)}
    programs: list[Program] = [
        [call(shard), call(replica), SYNC]
        for shard, replica in (("0", "2"), ("0", "3"), ("1", "2"))
    ]
    machine = run(groups, *programs, [Mark("end", HERE, what="lock")])
    assert heads(machine) == [("2", 1), ("3", 1), ("1", 1), None]
    assert [rank.end for rank in machine.ranks] == ["waiting"] * 3 + ["stuck"]


def test_a_host_runs_ahead_of_its_device_until_it_synchronises() -> None:
    alone: Program = [call("0"), call("0"), call("0"), SYNC, call("0")]
    machine = run({"0": (0, 1)}, alone, [Mark("end", HERE)])
    assert [work.seq for work in machine.ranks[0].pending] == [1, 2, 3]
    assert machine.position(0) == 3
    assert [work.seq for work in run({"0": (0, 1)}, alone, [], ahead=2).ranks[0].pending] == [1, 2]


def test_what_is_later_does_not_hold_up_what_follows_before_the_next_wait() -> None:
    groups = {"0": (0, 1), "1": (0, 2)}
    first: Program = [call("0", later=True), call("1"), SYNC, WAIT, SYNC]
    machine = run(groups, first, [Mark("end", HERE)], [call("1"), SYNC])
    assert machine.ranks[2].end == "left"
    assert heads(machine)[0] == ("0", 1)


def test_another_size_under_the_same_number_never_finishes() -> None:
    programs: list[Program] = [[call("0", size), SYNC] for size in (8, 8, 9)]
    machine = run({"0": (0, 1, 2)}, *programs)
    assert heads(machine) == [("0", 1)] * 3
    assert {rank.end for rank in machine.ranks} == {"waiting"}


def test_a_device_that_is_stuck_enqueues_and_never_starts() -> None:
    programs: list[Program] = [[call("0"), SYNC], [Mark("device"), call("0"), SYNC]]
    machine = run({"0": (0, 1)}, *programs)
    assert [rank.works[0].started is None for rank in machine.ranks] == [False, True]


def test_a_send_waits_for_its_receive() -> None:
    def exchange(op: str, peer: int) -> Call:
        return Call("0", op, 8, 8, HERE, parts=((op, peer),))

    together = run({"0": (0, 1)}, [exchange("send", 1), SYNC], [exchange("recv", 0), SYNC])
    assert {rank.end for rank in together.ranks} == {"left"}
    both_send = run({"0": (0, 1)}, [exchange("send", 1), SYNC], [exchange("send", 0), SYNC])
    assert {rank.end for rank in both_send.ranks} == {"waiting"}


def test_times_follow_from_what_is_waited_for() -> None:
    slow: Program = [Mark("busy", seconds=5.0), call("0"), SYNC, Mark("step", number=1)]
    machine = run({"0": (0, 1)}, slow, [call("0"), SYNC, Mark("step", number=1)])
    first, second = (rank.works[0] for rank in machine.ranks)
    assert second.created < 0.01
    assert first.created == pytest.approx(5.0, abs=0.01)
    assert first.finished == second.finished
    assert first.finished > 5.0
    assert machine.ranks[0].steps == machine.ranks[1].steps


def test_nothing_passes_a_severed_link() -> None:
    named = {"0": Group("0", "0", (0, 1)), "1": Group("1", "1", (0, 2))}
    programs: list[Program] = [[call("0"), call("1"), SYNC], [call("0"), SYNC], [call("1"), SYNC]]
    machine = Machine(named, programs, ranks_per_node=2, ahead=8, severed=lambda ranks: 2 in ranks)
    assert heads(machine) == [("1", 1), None, ("1", 1)]
