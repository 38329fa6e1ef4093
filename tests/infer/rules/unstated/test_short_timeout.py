"""Timeouts that no job could keep."""

from typing import Any

import pytest

from diagnose.infer.rules.base import Tier
from diagnose.infer.rules.unstated import RULES

from ...rows import context, wait

propose = RULES["short_timeout"]


def test_a_timeout_of_a_millisecond_is_the_cause_itself(make: Any) -> None:
    (found,) = propose(context(make(wait(0, timeout_ms=1), wait(3, timeout_ms=1))))
    assert (found.cause, found.tier, found.rows) == ("env.config", Tier.STRONG, [0, 1])
    assert found.longer_timeout == "yes"
    assert found.summary == (
        "The timeout of the process group is 1 ms, which no job can keep; it may be given in the "
        "wrong unit."
    )


@pytest.mark.parametrize("waits", [[5001], [1, 600_000], [None], []])
def test_other_timeouts_say_nothing(make: Any, waits: list[int | None]) -> None:
    timeline = make(*(wait(0, timeout_ms=timeout) for timeout in waits))
    assert list(propose(context(timeline))) == []
