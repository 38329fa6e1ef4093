"""Numbers and lists of ranks out of captures."""

from __future__ import annotations

import pytest

from diagnose.timeline.captures import (
    captured_ranks,
    clock_seconds,
    highest_rank,
    integer,
    milliseconds,
    rank_of,
)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0, 3", [0, 3]),
        ("0-3,7", [0, 1, 2, 3, 7]),
        ("{1}", [1]),
        ("5 - 6", [5, 6]),
        ("", []),
        (None, []),
    ],
)
def test_captured_lists_of_ranks(text: str | None, ranks: list[int]) -> None:
    assert captured_ranks(text) == ranks


def test_captured_ranges_are_bounded() -> None:
    assert len(captured_ranks("0-999999")) == 100_001
    assert len(captured_ranks("0-99999,200000-299999,400000-499999")) == 100_001


@pytest.mark.parametrize(
    ("text", "rank"),
    [(None, None), ("", None), ("3", 3), ("0-3,7", 7), ("9, 2", 9), ("5-2", None), ("0-99", 99)],
)
def test_the_highest_of_captured_ranks(text: str | None, rank: int | None) -> None:
    assert highest_rank(text) == rank


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:41", 41.0),
        ("10:00", 600.0),
        ("1:00:05", 3605.0),
        ("2 days, 1:00:00", 176_400.0),
        ("?", None),
        ("1:2:3:4:5", None),
    ],
)
def test_the_clock_of_a_bar(text: str, seconds: float | None) -> None:
    assert clock_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        (" -7 ", -7),
        ("1,024", 1024),
        ("1_024", 1024),
        ("0x1f", 31),
        ("007", 7),
        ("12k", 12_000),
        ("1.5M", 1_500_000),
        ("2G", 2_000_000_000),
        ("many", None),
        ("k", None),
        ("infk", None),
        ("4611686018427387903", 2**62 - 1),
        ("4611686018427387904", None),
        ("9" * 5000, None),
    ],
)
def test_numbers_as_logs_print_them(text: str | None, number: int | None) -> None:
    assert integer(text) == number


@pytest.mark.parametrize(
    ("text", "rank"), [("3", 3), ("1000000", 1_000_000), ("1000001", None), (None, None)]
)
def test_no_job_has_more_than_a_million_ranks(text: str | None, rank: int | None) -> None:
    assert rank_of(text) == rank


@pytest.mark.parametrize(
    ("captures", "duration"),
    [
        ({}, None),
        ({"elapsed_ms": "600000"}, 600_000),
        ({"elapsed_s": "1.5"}, 1500),
        ({"elapsed": "01:40"}, 100_000),
        ({"elapsed_ms": "1000000000000"}, 10**12),
        ({"elapsed_ms": "1000000000001"}, None),  # more than thirty years
        ({"elapsed_s": "1e10"}, None),
        ({"elapsed_s": "soon"}, None),
        ({"timeout_s": "3"}, None),
    ],
)
def test_durations(captures: dict[str, str], duration: int | None) -> None:
    assert milliseconds(captures, "elapsed") == duration


def test_only_the_elapsed_time_may_be_a_clock() -> None:
    assert milliseconds({"timeout": "01:40"}, "timeout") is None
