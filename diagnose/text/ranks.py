"""Lists of ranks for people: `rank 3`, `ranks 0-6, 8`. Every list of ranks is written here."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

MAX_RUNS = 16  # in one list


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The (first, last) of each run of consecutive numbers, sorted, repeats left out."""
    distinct = numbers if isinstance(numbers, set) else set(numbers)
    if not distinct:
        return []
    low, high = min(distinct), max(distinct)
    if high - low < len(distinct):  # without a gap, as most
        return [(low, high)]
    ordered = sorted(distinct)
    cuts = [at for at, (one, other) in enumerate(pairwise(ordered), 1) if other - one > 1]
    return [(ordered[a], ordered[b - 1]) for a, b in pairwise([0, *cuts, len(ordered)])]


def fold_ranks(ranks: Iterable[int]) -> str:
    """`0-6, 8-15`: sorted, without repeats. Of very ragged lists the first, and how many follow."""
    found = runs(ranks)
    kept = found if len(found) <= MAX_RUNS else found[: MAX_RUNS - 1]
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in kept)
    left = sum(last - first + 1 for first, last in found[len(kept) :])
    return f"{text} and {left} more" if left else text


def ranks_phrase(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-6, 8`; `no rank` of none."""
    numbers = ranks if isinstance(ranks, set) else set(ranks)
    if not numbers:
        return "no rank"
    return f"{plural(len(numbers), 'rank')} {fold_ranks(numbers)}"


def counted(count: int, one: str, many: str = "") -> str:
    """A count with its noun: `1 job`, `2 jobs`, `1,500 ranks`."""
    return f"{count:,} {plural(count, one, many)}"


def plural(count: int, one: str, many: str = "") -> str:
    """The noun or verb that goes with a count: `plural(1, 'rank')`, `plural(2, 'is', 'are')`."""
    return one if count == 1 else many or f"{one}s"
