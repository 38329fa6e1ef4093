"""Lists of ranks for people."""

from __future__ import annotations

import pytest

from diagnose.text.ranks import fold_ranks, plural, ranks_phrase, runs


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


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([], ""),
        ([3], "3"),
        ([1, 0], "0-1"),
        ([0, 1, 2], "0-2"),
        ([8, 9, 10, 11, 12, 13, 14, 15, *range(7)], "0-6, 8-15"),
        ([5, 5, 5], "5"),
        (range(16384), "0-16383"),
        (range(0, 32, 2), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30"),
        (range(0, 34, 2), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28 and 2 more"),
    ],
)
def test_fold_ranks(ranks: list[int], expected: str) -> None:
    assert fold_ranks(ranks) == expected


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [([], "no rank"), ([3, 3], "rank 3"), ([0, 2], "ranks 0, 2"), (iter([4, 5]), "ranks 4-5")],
)
def test_ranks_phrase(ranks: list[int], expected: str) -> None:
    assert ranks_phrase(ranks) == expected


def test_plural() -> None:
    assert (plural(1, "rank"), plural(0, "rank"), plural(2, "is", "are")) == (
        "rank", "ranks", "are",
    )  # fmt: skip
