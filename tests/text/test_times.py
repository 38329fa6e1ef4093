from __future__ import annotations

from diagnose.text.times import iso, moment

TIME = 1_717_315_200_000_000_000


def test_whole_seconds_and_fractions() -> None:
    assert iso(TIME) == "2024-06-02T08:00:00"
    assert iso(TIME + 642_999_999) == "2024-06-02T08:00:00.642"
    assert iso(None) is None


def test_moments_are_exact_to_the_microsecond() -> None:
    assert moment(TIME + 642_137_999).microsecond == 642_137
