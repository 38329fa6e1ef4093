"""Who is slow: by times of steps, arrivals, waits, reports and clocks; and what is no slow rank."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from diagnose.infer.judge.pace import find_slow, find_slowdown
from diagnose.parse.pace import Clock, Extreme
from diagnose.timeline.pace import Pace, Track, Watched

Value = Callable[[int, int], float]  # rank, step → seconds
STEPS = range(1, 61)


def even(rank: int, step: int) -> float:
    return 0.1 + 0.001 * ((rank * 7 + step * 3) % 5)


def slow(who: int, factor: float = 2.0, since: int = 0) -> Value:
    return lambda rank, step: even(rank, step) * (factor if rank == who and step >= since else 1.0)


def jobs(ranks: int = 4, **phases: Value) -> Pace:
    pace = Pace()
    for rank in range(ranks):
        track = pace.ranks[rank] = Track()
        for step in STEPS:
            track.add(
                step, {name: of(rank, step) for name, of in phases.items()}, (f"{rank}.log", step)
            )
    return pace


def test_a_rank_whose_own_work_takes_longer_is_slow() -> None:
    found = find_slow(jobs(forward=slow(2), backward=slow(2), data=even), {})
    assert found is not None
    assert (found.basis, found.ranks, found.phase, found.since) == (
        "own_work",
        (2,),
        "compute",
        None,
    )
    assert found.factor == pytest.approx(2.0, rel=0.05)


def test_the_step_from_which_on_it_is_slow_is_found() -> None:
    found = find_slow(jobs(data=slow(1, 3.0, since=31), forward=even), {})
    assert found is not None
    assert (found.ranks, found.phase, found.since) == ((1,), "data", 31)


def test_of_a_rank_that_was_as_fast_as_its_peers_less_counts() -> None:
    found = find_slow(jobs(forward=slow(1, 1.2, since=31), backward=even), {})
    assert found is not None
    assert (found.ranks, found.since) == ((1,), 31)
    assert find_slow(jobs(forward=slow(1, 1.2), backward=even), {}) is None
    assert find_slow(jobs(forward=slow(1, 1.06, since=31), backward=even), {}) is None


def test_whoever_waits_for_a_slow_rank_is_not_slow() -> None:
    """Backward passes overlap the exchange: they end when the slow rank has come."""
    backward: Value = lambda rank, step: 0.1 if rank == 2 else 0.2  # noqa: E731
    found = find_slow(jobs(forward=slow(2), backward=backward), {})
    assert found is not None
    assert (found.ranks, found.phase) == ((2,), "forward")


def test_of_two_ranks_with_opposite_lags_nobody_is_named() -> None:
    backward: Value = lambda rank, step: 0.1 if rank else 0.2  # noqa: E731
    assert find_slow(jobs(2, forward=slow(1), backward=backward), {}) is None


@pytest.mark.parametrize(
    "value",
    [
        even,
        slow(0, 1.15),
        lambda rank, step: 0.1 * Random(rank * 999 + step).lognormvariate(0, 0.4),
        lambda rank, step: 1.0 if step % 10 == rank else 0.1,
        lambda rank, step: 2.0 if rank == 0 and step in (1, 2, 25, 50) else 0.1,
        lambda rank, step: 0.3 if rank == 2 and step < 30 else 0.1,
    ],
    ids=["even", "a little more to do", "noise", "in turn", "checkpoints of rank 0", "recovered"],
)
def test_these_are_no_slow_ranks(value: Value) -> None:
    assert find_slow(jobs(forward=value, backward=even, wait=even), {}) is None


def test_whole_steps_that_are_alike_name_nobody() -> None:
    assert find_slow(jobs(total=lambda rank, step: 0.3), {}) is None


def test_a_difference_that_costs_a_step_nothing_is_none() -> None:
    assert find_slow(jobs(data=slow(2), total=lambda rank, step: 9.0), {}) is None


def test_half_of_the_ranks_are_not_slow_but_one_node_of_three_is() -> None:
    value: Value = lambda rank, step: 0.3 if rank >= 4 else 0.1  # noqa: E731
    assert find_slow(jobs(8, forward=value, backward=even), {}) is None
    hosts = {rank: f"node{rank // 2}" for rank in range(6)}
    found = find_slow(jobs(6, forward=value, backward=even), hosts)
    assert found is not None
    assert found.ranks == (4, 5)


def test_stages_of_a_pipeline_may_differ_from_the_first_step_on() -> None:
    assert find_slow(jobs(forward=slow(3), backward=even, pipeline=even), {}) is None
    found = find_slow(jobs(forward=slow(3, since=31), backward=even, pipeline=even), {})
    assert found is not None
    assert found.ranks == (3,)


def test_who_waits_least_is_slow_and_confirms_another_witness() -> None:
    wait: Value = lambda rank, step: 0.02 if rank == 1 else 0.2  # noqa: E731
    alone = find_slow(jobs(wait=wait, total=lambda rank, step: 0.4), {})
    assert alone is not None
    assert (alone.basis, alone.ranks, alone.agreed) == ("waits_least", (1,), False)
    both = find_slow(jobs(forward=slow(1, 3.0), wait=wait), {})
    assert both is not None
    assert (both.basis, both.agreed) == ("own_work", True)


def test_witnesses_that_disagree_name_nobody() -> None:
    wait: Value = lambda rank, step: 0.02 if rank == 1 else 0.2  # noqa: E731
    assert find_slow(jobs(forward=slow(3, 3.0), wait=wait), {}) is None


def arrivals(late: Value, *, ahead_s: float = 0.0) -> Pace:
    pace = Pace()
    for rank in range(4):
        track = pace.ranks[rank] = Track()
        for step in STEPS:
            skew = ahead_s if rank == 3 else 0.0
            for kind, lag in (("ready", late(rank, step)), ("done", 0.5)):
                track.mark(kind, step, int((step + lag + skew) * 1e9))
    return pace


def test_who_enters_last_is_slow() -> None:
    found = find_slow(arrivals(lambda rank, step: 0.4 if rank == 2 else 0.1), {})
    assert found is not None
    assert (found.basis, found.ranks) == ("arrives_last", (2,))
    assert found.lost_s == pytest.approx(0.3, abs=0.01)


def test_who_is_last_by_a_little_always_is_slow_and_by_less_is_not() -> None:
    late: Value = lambda rank, step: 0.24 if rank == 2 else 0.1 + 0.02 * ((rank + step) % 3)  # noqa: E731
    found = find_slow(arrivals(late), {})
    assert found is not None
    assert (found.basis, found.ranks) == ("arrives_last", (2,))
    assert find_slow(arrivals(lambda rank, step: 0.15 if rank == 2 else 0.1), {}) is None


def test_a_clock_that_is_ahead_is_no_late_rank() -> None:
    assert find_slow(arrivals(lambda rank, step: 0.1, ahead_s=0.4), {}) is None


def reports(names: list[int], most_s: float = 0.02) -> Pace:
    own = [
        (Extreme("forward", 0.01, 0, most_s, rank), ("a.log", at)) for at, rank in enumerate(names)
    ]
    return Pace(extremes=own)


def test_a_rank_that_a_detector_reports_again_and_again_is_slow() -> None:
    found = find_slow(reports([1, 0, *[3] * 12]), {})
    assert found is not None
    assert (found.basis, found.ranks, found.phase) == ("reports", (3,), "forward")


def test_a_forward_pass_that_is_reported_stands_for_the_backward_pass_too() -> None:
    pace = reports([3] * 12)
    pace.others[None, None, None, "a.log"] = track = Track()
    for step in STEPS:
        track.add(step, {"total": 0.15}, ("a.log", step))
    found = find_slow(pace, {})
    assert found is not None
    assert found.ranks == (3,)
    pace.extremes = [(one._replace(phase="data"), place) for one, place in pace.extremes]
    assert find_slow(pace, {}) is None


@pytest.mark.parametrize(
    ("names", "most_s"), [([0, 1, 2, 3] * 4, 0.02), ([3] * 12, 0.0105), ([3] * 3, 0.02)]
)
def test_reports_of_anybody_of_nearly_equal_ranks_or_too_few_name_nobody(
    names: list[int], most_s: float
) -> None:
    assert find_slow(reports(names, most_s), {}) is None


def gpus(slow_mhz: float, *, throttled: bool, used: float = 98.0) -> Pace:
    pace = Pace()
    for number in range(8):
        watched = pace.gpus[None, number] = Watched()
        for _ in range(10):
            mine = number == 5
            watched.add(Clock(None, number, slow_mhz if mine else 1980.0, throttled and mine, used))
    return pace


def test_a_gpu_that_hardware_holds_down_is_named() -> None:
    found = find_slow(gpus(800.0, throttled=True), {})
    assert found is not None
    assert (found.basis, found.ranks, found.clock) == ("clock", (5,), (800.0, 1980.0))


@pytest.mark.parametrize(
    ("mhz", "throttled", "used"), [(800.0, False, 98.0), (1900.0, True, 98.0), (800.0, True, 0.0)]
)
def test_a_low_clock_without_a_reason_a_small_loss_or_an_idle_gpu_is_none(
    mhz: float, throttled: bool, used: float
) -> None:
    assert find_slow(gpus(mhz, throttled=throttled, used=used), {}) is None


def test_since_when_a_job_is_slower() -> None:
    found = find_slowdown(jobs(total=lambda rank, step: 0.9 if step >= 41 else 0.5))
    assert found is not None
    assert (found.since, found.before_s, found.after_s) == (41, 0.5, 0.9)


def test_the_last_few_steps_may_take_far_longer() -> None:
    pace = jobs(total=lambda rank, step: 9.0 if step >= 58 else 1.2)
    assert find_slowdown(pace, ended=True) is None
    found = find_slowdown(pace)
    assert found is not None
    assert (found.since, found.before_s, found.after_s) == (58, 1.2, 9.0)


@pytest.mark.parametrize(
    "value",
    [
        lambda rank, step: 8.0 if step < 4 else 0.5,
        lambda rank, step: 5.0 if step % 20 == 0 else 0.5,
        lambda rank, step: 0.5 * Random(step).lognormvariate(0, 0.3),
        lambda rank, step: 0.9 if 20 < step < 40 else 0.5,
        lambda rank, step: 0.55 if step > 30 else 0.5,
    ],
    ids=["warm-up", "evaluations", "noise", "for a while", "a little"],
)
def test_these_are_no_slowdown(value: Value) -> None:
    assert find_slowdown(jobs(total=value)) is None


@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.5])
def test_times_that_only_vary_are_no_slowdown(sigma: float) -> None:
    for seed in range(60):
        rng = Random(seed)
        assert find_slowdown(jobs(1, total=lambda *_: rng.lognormvariate(0, sigma))) is None  # noqa: B023


@pytest.mark.slow
def test_ranks_whose_times_wander_seldom_seem_slow() -> None:
    """Each is slower than its peers for a while, now one and now another."""
    named = 0
    for seed in range(10):
        rng, pace = Random(seed), Pace()
        for rank in range(16):
            track, level = pace.ranks.setdefault(rank, Track()), 0.0
            for step in range(1, 401):
                level = 0.98 * level + rng.gauss(0, 0.08)
                track.add(step, {"forward": math.exp(level)}, ("a.log", step))
        named += find_slow(pace, {}) is not None
    assert named <= 2


@pytest.mark.slow
def test_times_that_vary_by_themselves_name_nobody() -> None:
    """Of ten steps or so one of few ranks is often the slowest by chance."""
    for seed in range(120):
        rng, ranks = Random(seed), 2 + seed % 5
        rows = {(r, step): rng.lognormvariate(0, 0.35) for r in range(ranks) for step in STEPS}
        late: Value = lambda rank, step: 0.3 * rows.get((rank, step), 1.0)  # noqa: B023, E731
        assert find_slow(jobs(ranks, forward=late, backward=even), {}) is None
        assert find_slow(arrivals(late), {}) is None


def test_who_was_slow_and_is_not_in_the_last_steps_is_not_slow() -> None:
    for end, named in ((60, (0,)), (58, (0,)), (48, None)):
        late: Value = lambda rank, step: 0.2 if rank == 0 and 5 < step <= end else 0.1  # noqa: B023, E731
        found = find_slow(jobs(4, forward=late, backward=even), {})
        assert (found and found.ranks) == named, end


def test_of_peers_that_are_seldom_late_no_steps_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of many slow ranks is compared with each peer: that has to be cheap."""
    followed: list[int] = []
    monkeypatch.setattr("diagnose.infer.judge.pace._longest", lambda flags: followed.append(1) or 0)
    late: Value = lambda rank, step: 0.3 if rank < 2 or step < 3 else 0.1  # noqa: E731
    found = find_slow(jobs(8, forward=late, backward=even), {})
    assert (found and found.ranks, followed) == ((0, 1), [])


@pytest.mark.slow
def test_times_of_heavy_tails_seldom_name_a_rank() -> None:
    """Some rank of them always seems slow for a while, as its peers did before."""
    named = 0
    for seed in range(0, 1400, 7):
        rng, ranks = Random(seed + 1), 2 + seed // 7 % 7
        rows = {(r, s): 0.7 + 0.3 * rng.paretovariate(1.5) for r in range(ranks) for s in STEPS}
        late: Value = lambda rank, step: 0.3 * rows.get((rank, step), 1.0)  # noqa: B023, E731
        named += find_slow(arrivals(late), {}) is not None
    assert named <= 1


def test_a_rank_that_enters_before_most_others_is_not_late_elsewhere() -> None:
    """Three of four are late: the first is no one whose clock is behind."""
    assert find_slow(arrivals(lambda rank, _: 0.1 if rank == 0 else 0.3), {}) is None
