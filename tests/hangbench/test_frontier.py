"""What the simulator computes is what real processes do: the same programs over gloo."""

from __future__ import annotations

import random

import pytest

from benchmarks.hangbench.sim.faults import Struck, strike
from benchmarks.hangbench.sim.machine import Machine
from benchmarks.hangbench.sim.programs import NAMES, Layout, draw
from benchmarks.hangbench.sim.simulate import synchronous

FAULTS = ("stuck", "slow", "killed", "raised", "left", "skip", "extra", "uneven", "swapped", "node")
PER_NODE = 2


def job(seed: int) -> tuple[Layout, Struck, Machine] | None:
    """A job with a fault; None where gloo does not define what two different calls do."""
    rng = random.Random(seed)
    layout = draw(rng, NAMES[seed % len(NAMES)], 4, 3)
    struck = strike(rng, layout, rng.choice(FAULTS), PER_NODE)
    if struck is None:
        return None
    programs = [synchronous(program) for program in struck.programs]
    machine = Machine(layout.groups, programs, ranks_per_node=PER_NODE, ahead=64)
    kinds: dict[tuple[str, int], set[tuple[str, int, int]]] = {}
    for rank in machine.ranks:
        for work in rank.pending:
            if not work.p2p:
                uneven = work.op == "all_to_all"  # its sizes differ by nature
                kind = (work.op, 0, 0) if uneven else (work.op, work.numel_in, work.numel_out)
                kinds.setdefault((work.group, work.seq), set()).add(kind)
    return None if any(len(alike) > 1 for alike in kinds.values()) else (layout, struck, machine)


SEEDS = [seed for seed in range(40) if job(seed) is not None][:12]


@pytest.mark.lab
@pytest.mark.parametrize("seed", SEEDS)
def test_the_frontier_is_that_of_real_processes(seed: int) -> None:
    pytest.importorskip("torch.distributed")  # loaded before the ranks are forked
    from benchmarks.hangbench.sim.gloo import frontier

    found = job(seed)
    assert found is not None
    layout, struck, machine = found
    simulated = [sum(work.finished is not None for work in rank.works) for rank in machine.ranks]
    assert frontier(layout.groups, struck.programs) == simulated
