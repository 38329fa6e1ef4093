"""What stacks in the log say."""

from typing import Any

from diagnose.infer.events.phases import find_activity
from diagnose.infer.judge.lines import stalls
from diagnose.infer.rules.base import Hypothesis
from diagnose.infer.rules.printed_stacks import propose
from diagnose.timeline.event import Timeline

from ..rows import context, stack

SITE = "/opt/site-packages/torch/distributed/c10d.py"


def standing(rank: int, phase: str) -> list[dict[str, Any]]:
    return stack(rank, ("train.py", 9, "loop"), (SITE, 3, "all_reduce"), phase=phase)


def found(timeline: Timeline, world: int | None) -> list[Hypothesis]:
    stalled = stalls(timeline, world)
    waiting = {rank for stall in stalled for rank in stall.joined if rank >= 0}
    end = next(iter(timeline.telling("timeout")), None)
    activity = find_activity(timeline, end, waiting)
    return list(propose(context(timeline, world=world, stalls=stalled, activity=activity)))


def only(timeline: Timeline, world: int | None) -> Hypothesis:
    hypotheses = found(timeline, world)
    assert len(hypotheses) == 1
    return hypotheses[0]


def test_a_minority_beyond_training_had_fewer_batches(make: Any) -> None:
    rows = [row for rank in (0, 1, 2) for row in standing(rank, "training")]
    hypothesis = only(make(*rows, *standing(3, "evaluation")), 4)
    assert (hypothesis.cause, hypothesis.score) == ("desync.uneven_work", 4.75)
    assert (hypothesis.ranks, hypothesis.kind) == ([3], "mismatched")
    assert hypothesis.rows == [7, 1, 3]


def test_stacks_of_a_job_that_stood_still_show_what_it_did(make: Any) -> None:
    taken = stack(0, ("train.py", 9, "save"), (SITE, 3, "write"), dump=True, phase="checkpoint")
    hypothesis = only(make(*taken), None)
    assert (hypothesis.cause, hypothesis.score) == ("slow.checkpoint", 2.25)
    assert (hypothesis.rows, hypothesis.ranks) == ([0, 1], [])
    printed = stack(0, ("train.py", 9, "save"), phase="checkpoint")
    assert found(make(*printed), None) == []
