"""A rank that says itself that a thread is stuck."""

from functools import partial
from typing import Any

import pytest

from diagnose.infer.rules.base import Tier
from diagnose.infer.rules.unstated import RULES

from ...rows import alone, proposed

found, only = partial(proposed, RULES["host_blocked"]), partial(alone, RULES["host_blocked"])


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
    rows += [{"signal": "host_blocked", "role": "effect", "rank": rank} for rank in ranks]
    hypothesis = only(make(*rows), 4)
    assert (hypothesis.cause, hypothesis.tier) == ("stall.host", tier)
    assert (hypothesis.ranks, hypothesis.kind) == (named, kind)
