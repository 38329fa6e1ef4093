"""Track slow: plans, their truths, and the recorded tape."""

from __future__ import annotations

import re

from benchmarks.hangbench.case import Answer, Case, Truth
from benchmarks.hangbench.score import marks
from benchmarks.hangbench.slow import TAPE, make
from benchmarks.hangbench.slow.plan import plan_of
from benchmarks.hangbench.slow.record import RUNS

SEEDS = range(RUNS)


def test_a_seed_is_one_plan_and_odd_ones_are_well() -> None:
    assert all(plan_of(seed) == plan_of(seed) for seed in SEEDS)
    assert {plan_of(seed).fault == "none" for seed in SEEDS if seed % 2} == {True}
    assert {plan_of(seed).fault == "none" for seed in SEEDS if not seed % 2} == {False}


def test_a_rank_is_asked_for_only_where_the_lines_show_it() -> None:
    for plan in map(plan_of, SEEDS):
        truth = plan.truth
        if plan.fault == "none":
            assert (truth.culprits, truth.classes) == ((), ("none",))
        elif plan.style in ("hf", "lightning", "torchtitan", "megatron-minmax"):
            assert (truth.determines, truth.classes) == ("nothing", ())
        elif plan.style in ("imagenet", "mmengine"):
            assert (truth.determines == "rank") == (plan.fault in ("loader", "disk"))
        else:
            assert (truth.determines, truth.culprits) == ("rank", (plan.rank,))


def test_the_tape_has_all_runs_and_says_nothing_of_the_fault() -> None:
    cases = [found for seed in SEEDS if (found := make(seed)) is not None]
    assert TAPE.stat().st_size < 1 << 20
    assert len(cases) == RUNS
    assert {case.labels["style"] for case, _ in cases} == {plan_of(s).style for s in SEEDS}
    for case, files in cases:
        assert case.truth == plan_of(case.seed).truth
        assert files
        for name, content in files.items():
            if not name.startswith("dumps/"):
                assert not re.search(rb"/tmp/|inject|straggl|\bfault|slow(?!down)", content)


def test_a_cause_of_a_job_that_is_well_is_an_alarm_and_a_slow_one_is_none() -> None:
    well = Case(
        "slow-1", "slow", 1, False, "console", 4, Truth(("running",), ("none",), determines="none")
    )
    slow = Case(
        "slow-2", "slow", 2, False, "console", 4, Truth(("running",), ("slow.straggler",), (3,))
    )
    named = Answer("slow-1", "mine", verdict="running", cause="slow.straggler", ranks=(3,))
    calm = Answer("slow-1", "mine", verdict="running", cause="none")
    assert (marks(well, named).alarm, marks(well, calm).alarm) == (True, False)
    assert (marks(slow, named).alarm, marks(slow, named).exact) == (None, True)
