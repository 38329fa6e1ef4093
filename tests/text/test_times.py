from __future__ import annotations

import pytest

from diagnose.text.times import duration, iso, moment

TIME = 1_717_315_200_000_000_000


def test_whole_seconds_and_fractions() -> None:
    assert iso(TIME) == "2024-06-02T08:00:00"
    assert iso(TIME + 642_999_999) == "2024-06-02T08:00:00.642"
    assert iso(None) is None


def test_moments_are_exact_to_the_microsecond() -> None:
    assert moment(TIME + 642_137_999).microsecond == 642_137


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.4 s"),
        (8, "8 s"),
        (60, "1 min"),
        (663.2, "11 min 3 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (8040, "2 h 14 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
