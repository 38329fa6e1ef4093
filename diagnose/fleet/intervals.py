"""Intervals of rates: what chance alone leaves open, at 95 % unless asked otherwise.

Wilson's for a share, Byar's for a count of events, and for the ratio of two rates Wilson's of the
share that the second count has in both.
"""

from __future__ import annotations

from math import inf, sqrt
from statistics import NormalDist

import numpy as np

Z = 1.959964  # 95 %, both sides


def z_of(tests: int) -> float:
    """The deviate for an interval of 95 % that is one of so many looked at (Bonferroni)."""
    return NormalDist().inv_cdf(1 - 0.05 / 2 / max(1, tests))


def cdf(deviate: float) -> float:
    """The share of a normal distribution below a deviate."""
    return NormalDist().cdf(deviate)


def share(some: float, of: float, z: float = Z) -> tuple[float, float]:
    """Wilson's interval of `some` out of `of`; all from 0 to 1 where there are none."""
    if of <= 0:
        return 0.0, 1.0
    p = some / of
    middle, width = p + z * z / 2 / of, z * sqrt(p * (1 - p) / of + z * z / 4 / of / of)
    whole = 1 + z * z / of
    return max(0.0, (middle - width) / whole), min(1.0, (middle + width) / whole)


def count(events: float, z: float = Z) -> tuple[float, float]:
    """Byar's interval of the mean of a Poisson count."""
    low = 0.0 if events <= 0 else _byar(events, -z)
    return max(0.0, low), _byar(events + 1, z)


def _byar(events: float, z: float) -> float:
    found: float = events * (1 - 1 / (9 * events) + z / (3 * sqrt(events))) ** 3
    return found


def ratio(
    before: float, of_before: float, now: float, of_now: float, z: float = Z, spread: float = 1.0
) -> tuple[float | None, float, float]:
    """How many times as large a rate has become, and its interval; None, 0 and inf: no saying.

    `spread` is by how much the counts vary more than chance does (1: not at all).
    """
    both = before + now
    if both <= 0 or of_before <= 0 or of_now <= 0:
        return None, 0.0, inf
    scale = of_before / of_now
    low, high = share(now / spread, both / spread, z)
    odds = [inf if p >= 1 else p / (1 - p) * scale for p in (now / both, low, high)]
    return (None if odds[0] == inf else odds[0]), odds[1], odds[2]


def dispersion(counts: np.ndarray, expected: np.ndarray, fitted: int) -> float:
    """Pearson's χ² a degree of freedom of counts around what is expected of them; at least 1."""
    free = len(counts) - fitted
    known = expected > 0
    if free < 1 or not known.any():
        return 1.0
    return max(1.0, float(((counts - expected)[known] ** 2 / expected[known]).sum() / free))
