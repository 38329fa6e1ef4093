"""Consecutive numbers folded."""

from __future__ import annotations

import pytest

from diagnose.text.ranks import fold_ranks, runs


@pytest.mark.parametrize(
    ("numbers", "folded"),
    [
        ([], []),
        ([3], [(3, 3)]),
        ([8, 0, 1, 2, 1], [(0, 2), (8, 8)]),
        ([1, 3, 4], [(1, 1), (3, 4)]),
    ],
)
def test_runs(numbers: list[int], folded: list[tuple[int, int]]) -> None:
    assert runs(numbers) == folded


def test_folded_ranks() -> None:
    assert fold_ranks([3, 0, 1, 2, 7]) == "0-3,7"
    assert fold_ranks([5], prefix=True) == "rank 5"
    assert fold_ranks([], prefix=True) == "ranks "
