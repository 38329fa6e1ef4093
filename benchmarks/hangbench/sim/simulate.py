"""A job run to where it stands still."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from benchmarks.hangbench.sim.faults import Struck, strike
from benchmarks.hangbench.sim.machine import WAIT, Call, Machine, Mark, Program
from benchmarks.hangbench.sim.outcome import Outcome
from benchmarks.hangbench.sim.programs import READ_LOSS, Layout

_FIRST_DAY, _DAYS = datetime(2026, 2, 1), 250
_TIMEOUTS_S = (600.0, 600.0, 600.0, 1800.0, 300.0, 3600.0)
_AHEAD = (3, 6, 12, 64)  # works that a host may have unfinished
_STEPS_PRINTED = 25  # of those that are not simulated


def simulate(
    rng: random.Random, layout: Layout, fault: str, per_node: int, *, timing: bool = False
) -> Outcome | None:
    """The job with one fault; None where the fault has no place in it or does no harm."""
    struck = Struck(layout.programs) if not fault else strike(rng, layout, fault, per_node)
    if struck is None:
        return None
    ahead, severed_s = rng.choice(_AHEAD), 0.0
    if struck.severed is not None:
        whole = Machine(layout.groups, layout.programs, ranks_per_node=per_node, ahead=ahead)
        severed_s = max(rank.ended or 0.0 for rank in whole.ranks) * rng.uniform(0.3, 0.8)
    machine = Machine(
        layout.groups, struck.programs, ranks_per_node=per_node, ahead=ahead,
        severed=struck.severed or (lambda _: False), severed_s=severed_s,
    )  # fmt: skip
    ranks = machine.ranks
    if fault and not any(rank.end == "waiting" for rank in ranks):
        return None
    waits = [work.created for rank in ranks if rank.end == "waiting" for work in rank.pending[:1]]
    outcome = Outcome(
        layout.name,
        fault,
        layout.groups,
        ranks,
        per_node,
        _FIRST_DAY + timedelta(seconds=rng.randrange(_DAYS * 86_400)),
        rng.choice(_TIMEOUTS_S),
        onset=min(waits, default=None),
        culprits=struck.culprits,
        link=struck.link,
        crossed=struck.crossed,
        timing=timing,
        ids=[layout.created] * len(ranks),
    )
    if fault == "node":
        _lose(outcome)
    if fault:
        outcome.fault_at = severed_s or (_struck_s(outcome) if struck.culprits else outcome.onset)
    _begin_earlier(outcome, layout, rng)
    return outcome


def _lose(outcome: Outcome) -> None:
    """Take down all ranks of the node, those too that waited for another of them by then."""
    ranks = [outcome.ranks[rank] for rank in outcome.culprits]
    last = max(rank.ended or 0.0 for rank in ranks)
    for rank in ranks:
        rank.end, rank.ended = "lost", last


def _struck_s(outcome: Outcome) -> float:
    """When the first culprit ended, or did the last of what it did."""
    ranks = [outcome.ranks[rank] for rank in outcome.culprits]
    if all(rank.ended is not None for rank in ranks):
        return min(rank.ended or 0.0 for rank in ranks)
    return max((work.created for work in ranks[0].works), default=0.0)


def _begin_earlier(outcome: Outcome, layout: Layout, rng: random.Random) -> None:
    """Put start-up and steps that are not simulated before what is, as if it had run for long."""
    early = rng.choice((0, 0, rng.randrange(10, 60), rng.randrange(100, 4_000))) // 2 * 2
    early *= any(rank.steps for rank in outcome.ranks)
    setup_s, step_s = rng.uniform(20.0, 90.0), _pace(outcome, layout)
    shift_s = setup_s + early * step_s
    every = max(early // _STEPS_PRINTED, 1)
    for rank, program in zip(outcome.ranks, layout.programs, strict=True):
        calls = _calls_a_step(program)
        printed = [
            (setup_s + (step + 1) * step_s, layout.first_step + step)
            for step in range(0, early, every)
        ]
        now = [
            (time + shift_s, layout.first_step + early + step)
            for time, step in rank.steps
            if (early + step) % every == 0
        ]
        rank.steps = printed + now
        for work in rank.works:
            work.seq += int(calls[work.group, work.p2p] * early)
            work.created += shift_s
            work.started = None if work.started is None else work.started + shift_s
            work.finished = None if work.finished is None else work.finished + shift_s
        rank.ended = None if rank.ended is None else rank.ended + shift_s
    for name in ("fault_at", "onset"):
        value = getattr(outcome, name)
        setattr(outcome, name, None if value is None else value + shift_s)


def _pace(outcome: Outcome, layout: Layout) -> float:
    """Seconds between two steps of the simulated job, so that those before are as far apart."""
    for rank in outcome.ranks:
        if len(rank.steps) > 1:
            return rank.steps[1][0] - rank.steps[0][0]
    return layout.step_s


def _calls_a_step(program: Program) -> dict[tuple[str, bool], float]:
    """How many calls a step has in each group on average; layouts repeat after two steps."""
    ends = [n for n, one in enumerate(program) if isinstance(one, Mark) and one.kind == "step"]
    if len(ends) < 3:
        return Counter()
    two = program[ends[0] + 1 : ends[2] + 1]
    calls = Counter((one.group, bool(one.parts)) for one in two if isinstance(one, Call))
    return Counter({key: count / 2 for key, count in calls.items()})


def synchronous(program: Program) -> Program:
    """The program with a host that waits for each call, as gloo's does."""
    calls: Program = []
    for one in program:
        if isinstance(one, Call):
            calls += [replace(one, later=False), WAIT, Mark("sync", READ_LOSS)]
        else:
            calls.append(one)
    return calls
