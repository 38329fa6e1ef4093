"""The middle of some numbers; the standard library's brings more modules than a paste needs."""

from __future__ import annotations

from collections.abc import Iterable


def median(numbers: Iterable[float]) -> float:
    """The median, of an even count the mean of the middle two. Raises ValueError for none."""
    ordered = sorted(numbers)
    if not ordered:
        raise ValueError("no numbers")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
