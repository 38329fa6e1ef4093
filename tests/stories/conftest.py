"""Timelines made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from diagnose.timeline.event import Timeline
from tests.timeline.told import event

Make = Callable[..., Timeline]


@pytest.fixture
def make() -> Make:
    """`make({...}, {...})`: a timeline with one event per dict, one line apart, one source."""

    def build(*rows: dict[str, Any]) -> Timeline:
        defaults: dict[str, Any] = {
            "source": "job.log", "attempt": 0, "text": "", "kind": "signature", "fields": {},
            "role": "context",
        }  # fmt: skip
        return Timeline(
            event(**(defaults | {"index": i, "line": i + 1, "offset": i * 100} | row))
            for i, row in enumerate(rows)
        )

    return build
