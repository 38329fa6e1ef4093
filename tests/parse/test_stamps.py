from __future__ import annotations

import pytest

from diagnose.parse.stamps import Stamp, clock, day, iso_day, since_boot, stamp, zone

DAY = 86_400_000_000_000


@pytest.mark.parametrize(
    ("year", "month", "day_of_month", "expected"),
    [
        (1970, 1, 1, 0),
        (1972, 2, 29, 789 * DAY),
        (2024, 2, 29, 19782 * DAY),
        (2023, 2, 29, None),
        (2024, 13, 1, None),
        (1969, 12, 31, None),
        (2200, 1, 1, None),
    ],
)
def test_day(year: int, month: int, day_of_month: int, expected: int | None) -> None:
    assert day(year, month, day_of_month) == expected


def test_iso_day_reads_both_separators() -> None:
    assert iso_day("2024-02-29") == iso_day("2024/02/29") == 19782 * DAY


def test_clock() -> None:
    assert clock("01:02:03") == 3723 * 10**9
    assert clock("23:59:60") == 86400 * 10**9
    assert clock("24:00:00") is None
    assert clock("00:60:00") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("Z", 0), (" UTC", 0), ("+02:00", 7200), ("-0730", -27000), ("+99:00", None), ("CET", None)],
)
def test_zone(text: str, seconds: int | None) -> None:
    assert zone(text) == seconds


def test_stamp_keeps_the_printed_resolution() -> None:
    assert stamp(0, "00:00:01", "25") == Stamp(1_250_000_000, resolution_ns=10_000_000)
    assert stamp(None, "00:00:01") is None


def test_since_boot_tells_seconds_since_1970_by_their_size() -> None:
    assert since_boot("5", "000001") == Stamp(5_000_001_000, False, False, None, 1000, True)
    assert since_boot("1714564800", "000001") == Stamp(
        1714564800000001000, utc_offset_s=0, resolution_ns=1000
    )
    assert since_boot("9999999999", "000000") is None
