"""Bars of several ranks that stand at different steps."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.infer.judge.lines import stalls
from diagnose.infer.ranks.apart import bars_apart
from diagnose.infer.rules.apart import propose
from diagnose.infer.tiers import Tier

from ..rows import bar, context, wait


@pytest.mark.parametrize(
    ("second", "apart"),
    [
        (bar(None, 1000, 46), True),
        (bar(None, 1050, 46), True),
        (bar(None, 1000, 48), False),
        (bar(None, 1000, 60), False),
        (bar(None, 5, 3), False),
        (bar(None, 1500, 46), False),
        (bar(None, 1000, 46, total=90), False),
        (bar(None, 1000, 46, rank=1), False),
    ],
    ids=[
        "behind", "behind a little later", "one step behind", "ahead", "the bar of the next epoch",
        "long after", "another bar", "the bar of a rank that is told",
    ],
)  # fmt: skip
def test_a_bar_that_steps_back_while_its_clock_does_not_is_of_another_rank(
    make: Any, second: dict[str, Any], apart: bool
) -> None:
    timeline = make(bar(None, 1000, 49), second)
    assert [event.step for event in bars_apart(timeline)] == ([49, 46] if apart else [])


def test_ranks_that_wait_after_that_had_uneven_work(make: Any) -> None:
    timeline = make(bar(None, 1000, 49), bar(None, 1000, 46), wait(0))
    seen = context(timeline, stalls=stalls(timeline, None))
    (found,) = propose(seen)
    assert (found.cause, found.tier, found.ranks) == ("desync.uneven_work", Tier.WEAK, [])
    assert found.rows == [0, 1]
    assert list(propose(context(timeline))) == [], "where nobody waits it is no trouble"
