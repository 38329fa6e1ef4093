"""A rank that says itself that a thread is stuck."""

from typing import Any

import pytest

from diagnose.infer.events.phases import find_activity
from diagnose.infer.judge.lines import stalls
from diagnose.infer.rules.base import Hypothesis
from diagnose.infer.rules.unstated import RULES
from diagnose.infer.tiers import Tier
from diagnose.timeline.event import Timeline

from ...rows import context

SITE = "/opt/site-packages/torch/distributed/c10d.py"


def found(timeline: Timeline, world: int | None) -> list[Hypothesis]:
    stalled = stalls(timeline, world)
    waiting = {rank for stall in stalled for rank in stall.joined if rank >= 0}
    end = next(iter(timeline.telling("timeout")), None)
    activity = find_activity(timeline, end, waiting)
    return list(
        RULES["host_blocked"](context(timeline, world=world, stalls=stalled, activity=activity))
    )


def only(timeline: Timeline, world: int | None) -> Hypothesis:
    hypotheses = found(timeline, world)
    assert len(hypotheses) == 1
    return hypotheses[0]


@pytest.mark.parametrize(
    ("ranks", "heard", "tier", "named", "kind"),
    [
        ([2], [0, 2], Tier.LIKELY, [2], "stuck_host"),
        ([1, 2], [0, 1, 2], Tier.CIRCUMSTANTIAL, [], None),
        (
            [2],
            [2],
            Tier.CIRCUMSTANTIAL,
            [],
            None,
        ),  # the only log there is: of its peers nothing is known
    ],
)
def test_a_stuck_host_thread(
    make: Any, ranks: list[int], heard: list[int], tier: Tier, named: list[int], kind: str | None
) -> None:
    rows = [{"kind": "progress", "rank": rank} for rank in heard]
    rows += [{"tells": "host_blocked", "role": "effect", "rank": rank} for rank in ranks]
    hypothesis = only(make(*rows), 4)
    assert (hypothesis.cause, hypothesis.tier) == ("stall.host", tier)
    assert (hypothesis.ranks, hypothesis.kind) == (named, kind)
