"""What evidence determines: by silence, by who waits for whom, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

import pytest

from benchmarks.hangbench.sim import oracle
from benchmarks.hangbench.sim.machine import Call, Machine, Mark, Program
from benchmarks.hangbench.sim.outcome import Frame, Group, Line, Outcome
from benchmarks.hangbench.sim.programs import NAMES, draw
from benchmarks.hangbench.sim.simulate import simulate

HERE = (Frame("main", "/workspace/train/train.py", 1),)
SYNC = Mark("sync", HERE)
GRID = {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}


def call(group: str, numel: int = 8, dtype: str = "Float") -> Call:
    return Call(group, "all_reduce", numel, numel, HERE, dtype)


def outcome(
    groups: dict[str, tuple[int, ...]], programs: Sequence[Program], *culprits: int
) -> Outcome:
    named = {name: Group(name, name, members) for name, members in groups.items()}
    ranks = Machine(named, programs, ranks_per_node=8, ahead=8).ranks
    return Outcome("ddp", "", named, ranks, 8, datetime(2026, 3, 1), 600.0, culprits=culprits)


def timeouts(job: Outcome, ranks: Collection[int], *, groups: bool = False) -> list[Line]:
    return [
        Line(1.0, rank, 0, "", shows="waits", work=work, names_rank=True, names_group=groups)
        for rank in ranks
        for work in job.ranks[rank].pending[:1]
    ]


def seen(job: Outcome, lines: list[Line], *, world: bool = True) -> oracle.Conclusion:
    return oracle.conclude(job, [oracle.of_lines(job, lines, "none", world=world)])


def stuck(rank: int) -> Outcome:
    """Rank 3 of a 2 × 2 grid never comes to its collectives."""
    programs: list[Program] = [
        [call("1" if number < 2 else "2"), call("34"[number % 2]), SYNC] for number in range(4)
    ]
    programs[rank] = [Mark("end", HERE)]
    return outcome(GRID, programs, rank)


def test_the_one_rank_without_a_timeout_is_determined() -> None:
    job = stuck(3)
    assert seen(job, timeouts(job, (0, 1, 2))) == oracle.Conclusion("rank", (), (3,))


def test_of_two_ranks_without_a_timeout_either_may_be_it() -> None:
    job = stuck(3)
    assert seen(job, timeouts(job, (0, 2))) == oracle.Conclusion("group", (), (1, 3))


def test_where_most_lines_are_lost_nothing_is_determined() -> None:
    job = stuck(3)
    assert seen(job, timeouts(job, (0,))).determines == "nothing"


def test_the_last_rank_is_not_missed_where_nothing_shows_how_many_there_are() -> None:
    job = stuck(3)
    assert seen(job, timeouts(job, (0, 1, 2)), world=False).determines == "nothing"
    job = stuck(1)
    assert seen(job, timeouts(job, (0, 2, 3)), world=False).determines == "rank"


def test_timeouts_of_ranks_that_nobody_can_name_determine_nothing() -> None:
    job = stuck(3)
    lines = timeouts(job, (0, 1, 2))
    lines[0].names_rank = False
    assert seen(job, lines).determines == "nothing"
    assert oracle.conclude(
        job, [oracle.of_lines(job, lines, "global", world=True)]
    ) == oracle.Conclusion("rank", (), (3,))


@pytest.mark.parametrize(("end", "determines"), [("raised", "rank"), ("waiting", "nothing")])
def test_a_traceback_states_the_fault_only_of_a_rank_that_raised(end: str, determines: str) -> None:
    job = stuck(3)
    job.ranks[3].end = end  # type: ignore[assignment]
    lines = [Line(1.0, 3, 0, "KeyError", shows="raised", names_rank=True)]
    assert seen(job, [*timeouts(job, (0,)), *lines]).determines == determines


def test_the_exit_of_a_victim_states_nothing() -> None:
    job = stuck(3)
    lines = [Line(1.0, None, 0, "exitcode: -6", shows="exit", subject=3, names_rank=True)]
    assert seen(job, [*timeouts(job, (0,)), *lines]).determines == "nothing"


def other_size(groups: dict[str, tuple[int, ...]], world: int) -> Outcome:
    programs: list[Program] = [[call("0", 9 if rank == 2 else 8), SYNC] for rank in range(world)]
    return outcome(groups, programs, 2)


def test_one_of_many_with_another_size_is_determined_of_two_either() -> None:
    many = other_size({"0": (0, 1, 2, 3)}, 4)
    assert seen(many, timeouts(many, range(4))).determines == "rank"
    programs: list[Program] = [[call("0", 8), SYNC], [call("0", 9), SYNC]]
    two = outcome({"0": (0, 1)}, programs, 1)
    assert seen(two, timeouts(two, range(2))) == oracle.Conclusion("group", ((0,),), (0, 1))


def test_a_mismatch_needs_the_groups_where_there_are_several() -> None:
    job = other_size(GRID, 4)
    job.ranks[0].works[0].finished = None
    job.ranks[1].works.append(
        Machine(job.groups, [[], [call("4")]], ranks_per_node=8, ahead=8).ranks[1].works[0]
    )
    assert seen(job, timeouts(job, range(4))).determines == "nothing"
    assert seen(job, timeouts(job, range(4), groups=True)).determines == "rank"


def test_types_are_seen_in_dumps_alone() -> None:
    programs: list[Program] = [
        [call("0", 8, "Half" if rank == 1 else "Float"), SYNC] for rank in range(4)
    ]
    job = outcome({"0": (0, 1, 2, 3)}, programs, 1)
    assert seen(job, timeouts(job, range(4))).determines == "nothing"
    assert oracle.conclude(job, [oracle.of_dumps(job, range(4))]).determines == "rank"


def test_a_rank_of_a_circle_is_to_blame_if_there_is_none_without_it() -> None:
    # Rank 2 calls the two groups in the other order: the others wait for it, and it for them.
    groups = {"0": (0, 1, 2), "1": (0, 1, 2)}
    order: Program = [call("0"), SYNC, call("1"), SYNC]
    other: Program = [call("1"), SYNC, call("0"), SYNC]
    three = outcome(groups, [order, order, other], 2)
    found = oracle.conclude(three, [oracle.of_dumps(three, range(3))])
    assert found == oracle.Conclusion("rank", (), (2,))
    two = outcome({"0": (0, 1), "1": (0, 1)}, [order, other], 1)
    found = oracle.conclude(two, [oracle.of_dumps(two, range(2))])
    assert found == oracle.Conclusion("group", ((0,),), (0, 1))


def test_a_line_about_several_ranks_states_the_fault_of_each() -> None:
    job = stuck(3)
    job.culprits = (2, 3)
    for rank in job.culprits:
        job.ranks[rank].end = "lost"
    about = Line(1.0, None, 0, "node1 failed", shows="exit", names_rank=True)
    about.subjects = job.culprits
    assert seen(job, [*timeouts(job, (0,)), about]).determines == "rank"


def test_a_device_that_is_stuck_shows_where_starts_are_recorded() -> None:
    programs: list[Program] = [
        [*([Mark("device")] if rank == 1 else []), call("0"), SYNC] for rank in range(4)
    ]
    job = outcome({"0": (0, 1, 2, 3)}, programs, 1)
    assert oracle.conclude(job, [oracle.of_dumps(job, range(4))]).determines == "nothing"
    job.timing = True
    assert oracle.conclude(job, [oracle.of_dumps(job, range(4))]).determines == "rank"


def test_the_best_of_all_evidence_counts() -> None:
    job = stuck(3)
    lines = oracle.of_lines(job, timeouts(job, (0,)), "none", world=True)
    dumps = oracle.of_dumps(job, range(4))
    assert oracle.conclude(job, [lines, dumps]).determines == "rank"


def test_a_communicator_that_was_never_complete_shows_nobody_who_waits() -> None:
    """Of the rank that never joined the first call a report of RAS knows as much as of all."""
    job = outcome({"0": (0, 1, 2, 3)}, [[Mark("end", HERE)], *[[call("0"), SYNC]] * 3], 0)
    assert oracle.conclude(job, [oracle.of_report(job, range(4))]).determines == "nothing"
    later = outcome({"0": (0, 1, 2, 3)}, [[call("0")], *[[call("0"), call("0"), SYNC]] * 3], 0)
    assert oracle.conclude(later, [oracle.of_report(later, range(4))]).determines == "rank"


@pytest.mark.parametrize(
    "look",
    [oracle.of_dumps, oracle.of_counts, oracle.of_report, oracle.of_stacks],
    ids=["dumps", "counts", "report", "stacks"],
)
def test_what_is_determined_is_true(
    look: Callable[[Outcome, Collection[int]], oracle.Sight],
) -> None:
    """Over many jobs: a rank is never determined that is not the culprit, a set always has it."""
    for seed in range(90):
        rng = random.Random(seed)
        layout = draw(rng, NAMES[seed % len(NAMES)], rng.choice((4, 8, 16)), 3)
        fault = rng.choice(("stuck", "killed", "skip", "extra", "other_size", "uneven", "device"))
        job = simulate(rng, layout, fault, 8)
        if job is None:
            continue
        there = [rank.rank for rank in job.ranks if rank.ended is None]
        found = oracle.conclude(job, [look(job, there)])
        if found.determines == "rank":
            assert found.suspects == job.culprits
        assert {*job.culprits} <= {*found.suspects}
        assert all({*other} <= {*found.suspects} for other in found.accepted)


def test_a_repeat_that_names_nobody_hides_no_rank_that_has_named_itself() -> None:
    job = stuck(3)
    lines = timeouts(job, (0, 1, 2))
    repeat = Line(2.0, 0, 0, "what(): …", shows="waits", work=job.ranks[0].pending[0])
    assert seen(job, [*lines, repeat]).determines == "rank"
    assert seen(job, [*lines[1:], repeat]).determines == "nothing"
