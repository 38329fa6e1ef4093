"""The one rank that its launcher did not stop."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.infer.rules.base import Hypothesis, Tier
from diagnose.infer.rules.unstated import RULES

from ...rows import context, step

propose = RULES["not_stopped"]


def stopped(rank: int, signal: str = "SIGTERM") -> dict[str, Any]:
    fields = {"signal": signal}
    return {"role": "aftermath", "signal": "teardown", "rank": rank, "fields": fields}


def test_it_ended_before_the_launcher_stopped_the_others(make: Any) -> None:
    rows = [step(1, rank=1), stopped(0), stopped(2), stopped(3)]
    (found,) = propose(context(make(*rows), world=4))
    assert (found.cause, found.ranks, found.tier) == ("crash.killed", [1], Tier.CIRCUMSTANTIAL)
    assert found.rows == [1, 2, 3]


@pytest.mark.parametrize(
    ("rows", "world"),
    [
        ([step(1, rank=1), stopped(0), stopped(1), stopped(2)], None),  # all of them
        ([step(1, rank=1), stopped(0), stopped(2)], 4),  # two are left
        ([stopped(0), stopped(2), stopped(3)], 4),  # nothing of rank 1 was collected
        ([step(1, rank=1), stopped(0)], 2),  # one alone proves little
        ([step(1, rank=1), *(stopped(rank, "SIGINT") for rank in (0, 2, 3))], 4),
        ([{"rank": 1, "role": "effect"}, stopped(0), stopped(2), stopped(3)], 4),  # it said more
    ],
)  # fmt: skip
def test_not_where_something_else_may_be(make: Any, rows: Any, world: int | None) -> None:
    assert not [*propose(context(make(*rows), world=world))]


def test_not_beside_a_cause_that_a_line_states(make: Any) -> None:
    rows = [step(1, rank=1), stopped(0), stopped(2), stopped(3)]
    cause = Hypothesis("scheduler.limit", Tier.STRONG, "", "")
    assert not [*propose(context(make(*rows), world=4, proposed=[cause]))]
