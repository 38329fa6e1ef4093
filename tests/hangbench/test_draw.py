"""Cases of track sim are like real ones: their launchers, their steps, and what is left to see."""

from __future__ import annotations

import itertools
import random

import pytest

from benchmarks.hangbench.sim import draw, make, ranks
from benchmarks.hangbench.sim.programs import NAMES
from benchmarks.hangbench.sim.programs import draw as draw_layout
from benchmarks.hangbench.sim.simulate import simulate


@pytest.mark.slow
def test_a_seed_gives_one_case() -> None:
    for seed in range(8):
        assert make(seed) == make(seed)


def test_the_size_of_a_job_is_known_before_it_is_made() -> None:
    for seed in range(40):
        found = make(seed) if ranks(seed) <= 32 else None
        if found is not None:
            assert ranks(seed) / 2 <= found[0].world <= max(ranks(seed), 8)


@pytest.mark.parametrize("fault", ["killed", "raised"])
def test_an_agent_of_torchrun_ends_the_ranks_of_its_node_at_once(fault: str) -> None:
    rng = random.Random(1)
    outcome = simulate(rng, draw_layout(rng, "ddp", 16, 3), fault, 8)
    assert outcome is not None
    asked = [draw._teardown(rng, outcome, "torchrun", ("abort", "none")) for _ in range(5)]
    assert asked == ["node"] * 5
    assert draw._teardown(rng, outcome, "srun", ("job",)) == "job"


def test_steps_are_printed_at_one_interval_up_to_the_last() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        outcome = simulate(rng, draw_layout(rng, NAMES[seed % len(NAMES)], 8, 4), "stuck", 8)
        if outcome is None:
            continue
        for rank in outcome.ranks:
            numbers = [number for _, number in rank.steps]
            assert len({b - a for a, b in itertools.pairwise(numbers)}) <= 1
