"""Consecutive numbers taken together: what every folded list of ranks or hosts is made of."""

from __future__ import annotations

from collections.abc import Iterable


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The (first, last) of each run of consecutive numbers, sorted, repeats left out."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def fold_ranks(ranks: Iterable[int], *, prefix: bool = False) -> str:
    """`[0, 1, 2, 7]` as "0-2,7", with "rank"/"ranks" in front if `prefix`."""
    folded = runs(ranks)
    text = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in folded)
    one = len(folded) == 1 and folded[0][0] == folded[0][1]
    return f"{'rank' if one else 'ranks'} {text}" if prefix else text
