"""How much of a sweep the default run does: a few cases; the slow one does all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], count: int) -> list[Any]:
    """Parameters for all cases, of which `count`, spread evenly, are tried by default.

    A case that is a tuple stands for several parameters.
    """
    every = [case if isinstance(case, tuple) else (case,) for case in cases]
    chosen = {number * len(every) // count for number in range(count)}
    return [
        pytest.param(*case, marks=() if number in chosen else pytest.mark.slow)
        for number, case in enumerate(every)
    ]
