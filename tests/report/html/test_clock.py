from datetime import datetime

import pytest

from diagnose.report.html import clock


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("2026-06-02T08:15:11.184", "2 June 2026, 08:15:11.184"),
        ("2026-06-02T08:15:11", "2 June 2026, 08:15:11"),
        ("2026-12-31T23:59:59+02:00", "31 December 2026, 23:59:59"),
        (datetime(2025, 1, 1), "1 January 2025, 00:00:00"),
        (1_735_689_600_250_999_999, "1 January 2025, 00:00:00.250"),
        (None, ""),
        ("not a time", ""),
    ],
)
def test_moment(time: clock.Time, text: str) -> None:
    assert clock.moment(time) == text


def test_the_date_is_left_out_beside_the_same_date() -> None:
    assert clock.moment("2026-06-02T08:15:11", "2026-06-02T00:00:01") == "08:15:11"
    assert clock.moment("2026-06-03T08:15:11", "2026-06-02") == "3 June 2026, 08:15:11"


def test_gpu_hours() -> None:
    shown = [clock.hours(value) for value in (0.004, 1.47, 9.96, 38.4, 12_400)]
    assert shown == ["less than 0.1", "1.5", "10.0", "38", "12,400"]


def test_milliseconds_are_those_of_the_job_clock() -> None:
    assert clock.milliseconds(datetime(1970, 1, 2, 0, 0, 0, 250_000)) == 86_400_250
