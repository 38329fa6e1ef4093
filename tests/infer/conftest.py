"""Frames made by hand, in the shape of the timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from diagnose.timeline.build import COLUMNS, _typed

Make = Callable[..., pd.DataFrame]


@pytest.fixture
def make() -> Make:
    """`make({...}, {...})`: a timeline with one row per dict, one line apart, one source."""

    def build(*rows: dict[str, Any]) -> pd.DataFrame:
        defaults: dict[str, Any] = {
            "source": "job.log", "attempt": 0, "text": "", "kind": "signature", "fields": {},
            "role": "context",
        }  # fmt: skip
        full = [defaults | {"line": i + 1, "offset": i * 100} | row for i, row in enumerate(rows)]
        for row in full:
            row["fields"] = dict(row["fields"])
        return _typed(pd.DataFrame(full).reindex(columns=[*COLUMNS, "ends_phase", "repeated"]))

    return build
