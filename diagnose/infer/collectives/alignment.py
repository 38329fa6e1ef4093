"""Streams of calls, aligned with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Key = tuple[Any, ...]


WINDOW = 192  # calls aligned behind the first difference


def majority(frame: pd.DataFrame, columns: list[str]) -> dict[int, Key]:
    """What most ranks called, by sequence number; the smallest key on a tie."""
    counted = frame.groupby(["seq", *columns], sort=True).size().reset_index(name="votes")
    best = counted.sort_values("votes", ascending=False, kind="stable").drop_duplicates("seq")
    keys = zip(*(best[column].tolist() for column in columns), strict=True)
    return dict(zip(best["seq"].tolist(), keys, strict=True))


def run_from(stream: dict[int, Key], start: int) -> list[Key]:
    """The calls from `start` on, without a gap, at most a window."""
    found = []
    for seq in range(start, start + WINDOW):
        if seq not in stream:
            break
        found.append(stream[seq])
    return found


def align(a: list[Key], b: list[Key]) -> tuple[int, int, int]:
    """Calls of `a` and of `b` before the two are in step again, and how many then agree.

    Of all first pairs the one with the longest common subsequence behind it; the least shift when
    several are as good.
    """
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    best = (0, 0, 0)
    rank = (0, 0, 0)
    for i in range(len(a) - 1, -1, -1):
        row, below = lengths[i], lengths[i + 1]
        for j in range(len(b) - 1, -1, -1):
            if a[i] == b[j]:
                row[j] = below[j + 1] + 1
                order = (row[j], -abs(i - j), -(i + j))
                if order > rank:
                    rank, best = order, (i, j, row[j])
            else:
                row[j] = max(below[j], row[j + 1])
    return best
