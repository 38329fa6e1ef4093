"""Consecutive numbers folded."""

from __future__ import annotations

import pytest

from diagnose.text.ranks import runs


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
