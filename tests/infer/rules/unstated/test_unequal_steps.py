"""Ranks that wait after their bars stood at different steps."""

from __future__ import annotations

from typing import Any

from diagnose.infer.judge.lines import stalls
from diagnose.infer.rules.base import Tier
from diagnose.infer.rules.unstated import RULES

from ...rows import bar, context, wait

propose = RULES["unequal_steps"]


def test_ranks_that_wait_after_that_had_uneven_work(make: Any) -> None:
    timeline = make(bar(None, 1000, 49), bar(None, 1000, 46), wait(0))
    seen = context(timeline, stalls=stalls(timeline, None))
    (found,) = propose(seen)
    assert (found.cause, found.tier, found.ranks) == ("desync.uneven_work", Tier.WEAK, [])
    assert found.rows == [0, 1]
    assert list(propose(context(timeline))) == [], "where nobody waits it is no trouble"


def test_the_first_bars_that_are_apart_are_shown(make: Any) -> None:
    later = [bar(None, 1000, step, source="a.log") for step in (80, 70)]
    timeline = make(bar(None, 5, 1, source="a.log"), bar(None, 9, 49), bar(None, 9, 46), *later)
    (found,) = propose(context(timeline, stalls=stalls(make(wait(0)), None)))
    assert found.rows == [1, 2]
