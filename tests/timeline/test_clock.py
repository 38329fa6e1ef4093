from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from diagnose.parse.prefix import peel
from diagnose.parse.stamps import SECOND, Stamp
from diagnose.timeline.clock import offset_between, resolve

# (source, a printed line, mtime of the source)
Printed = tuple[str, str, str | None]

NEW_YEAR_EVE = "[E1231 23:59:59.000000001 a.cpp:1] x"
NEW_YEAR = "[E101 00:00:01.000000001 a.cpp:1] x"


@dataclass
class Line:
    source: str
    line: int
    stamp: Stamp | None
    mtime: float | None


def lines(printed: list[Printed]) -> list[Line]:
    found = []
    for number, (source, text, mtime) in enumerate(printed, 1):
        newest = datetime.fromisoformat(mtime).replace(tzinfo=UTC).timestamp() if mtime else None
        found.append(Line(source, number, peel(text).stamp, newest))
    return found


def times(printed: list[Printed], now: datetime | None = None) -> list[str | None]:
    """Resolved times as text; checked to be the same whatever the order of the lines."""
    given = lines(printed)
    found = resolve(given, now)
    assert resolve(given[::-1], now) == found[::-1]
    return [None if time is None else _text(time) for time in found]


def _text(time: int) -> str:
    return str(datetime.fromtimestamp(time // 1_000_000_000, UTC).replace(tzinfo=None))


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        # from the full dates of the job, also over New Year
        (
            [("a", NEW_YEAR_EVE, None), ("a", NEW_YEAR, None),
             ("b", "2024-01-01 00:00:05 x", None)],
            ["2023-12-31 23:59:59", "2024-01-01 00:00:01", "2024-01-01 00:00:05"],
        ),
        # the source's own full dates count first
        (
            [
                ("a", "[E501 10:00:00.000000001 a.cpp:1] x", None),
                ("a", "2021-05-01 10:00:01 x", None),
                ("b", "2024-05-01 10:00:00 x", None),
            ],
            ["2021-05-01 10:00:00", "2021-05-01 10:00:01", "2024-05-01 10:00:00"],
        ),
        # from the file: the latest year in which it is not newer than the file
        (
            [("a", NEW_YEAR_EVE, "2025-06-01"), ("a", NEW_YEAR, "2025-06-01")],
            ["2024-12-31 23:59:59", "2025-01-01 00:00:01"],
        ),
        # a line that another writer printed late is not another New Year
        (
            [("a", NEW_YEAR, "2025-06-01"), ("a", NEW_YEAR_EVE, "2025-06-01"),
             ("a", NEW_YEAR, "2025-06-01")],
            ["2025-01-01 00:00:01", "2024-12-31 23:59:59", "2025-01-01 00:00:01"],
        ),
        # a zone ahead of UTC prints times after the file's
        (
            [("a", "[E601 09:00:00.000000001 a.cpp:1] x", "2025-06-01 01:00")],
            ["2025-06-01 09:00:00"],
        ),
        # an archive's empty mtime says nothing: `now` does
        (
            [("a", "[E601 09:00:00.000000001 a.cpp:1] x", "1980-01-01")],
            ["2025-06-01 09:00:00"],
        ),
        (
            [("a", "[E229 09:00:00.000000001 a.cpp:1] x", None)],
            ["2024-02-29 09:00:00"],
        ),
    ],
)  # fmt: skip
def test_missing_year(printed: list[Printed], expected: list[str]) -> None:
    assert times(printed, now=datetime(2026, 3, 1, tzinfo=UTC)) == expected


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        # counted on from the dated line before, over midnight
        (
            [("a", "2024-05-01 22:00:00 x", None), ("a", "[23:30:00] x", None),
             ("a", "[00:10:00] x", None), ("a", "[23:00:00] x", None), ("a", "[01:00:00] x", None)],
            ["2024-05-01 22:00:00", "2024-05-01 23:30:00", "2024-05-02 00:10:00",
             "2024-05-02 23:00:00", "2024-05-03 01:00:00"],
        ),
        # back from the one after
        (
            [("a", "[23:30:00] x", None), ("a", "[00:10:00] x", None),
             ("a", "2024-05-02 01:00:00 x", None)],
            ["2024-05-01 23:30:00", "2024-05-02 00:10:00", "2024-05-02 01:00:00"],
        ),
        # interleaved writers: a little back is not the next day
        (
            [("a", "2024-05-01 10:00:00 x", None), ("a", "[09:59:58] x", None)],
            ["2024-05-01 10:00:00", "2024-05-01 09:59:58"],
        ),
        # no date in the source: the job's last dated line
        (
            [("a", "[23:30:00] x", None), ("a", "[00:10:00] x", None),
             ("b", "2024-05-02 00:20:00 x", None)],
            ["2024-05-01 23:30:00", "2024-05-02 00:10:00", "2024-05-02 00:20:00"],
        ),
        # else the file
        ([("a", "[23:30:00] x", "2024-05-02 00:20")], ["2024-05-01 23:30:00"]),
        # else none, but durations hold
        (
            [("a", "[23:30:00] x", None), ("a", "[00:10:00] x", None)],
            ["1970-01-01 23:30:00", "1970-01-02 00:10:00"],
        ),
        # lines without a time have none, in between too
        (
            [("a", "2024-05-01 10:00:00 x", None), ("a", "x", None), ("a", "[10:00:01] x", None)],
            ["2024-05-01 10:00:00", None, "2024-05-01 10:00:01"],
        ),
    ],
)  # fmt: skip
def test_missing_date(printed: list[Printed], expected: list[str | None]) -> None:
    assert times(printed) == expected


def test_explicit_offsets_come_to_the_jobs_zone_and_naive_times_stay() -> None:
    printed: list[Printed] = [
        ("a", "2024-05-01T10:00:00Z x", None),
        ("b", "2024-05-01T12:00:01+02:00 x", None),
        ("c", "2024-05-01 12:00:02 x", None),
    ]

    assert times(printed) == [
        "2024-05-01 12:00:00",
        "2024-05-01 12:00:01",
        "2024-05-01 12:00:02",
    ]
    assert times([printed[0], printed[2]]) == ["2024-05-01 10:00:00", "2024-05-01 12:00:02"]


def test_since_boot_is_not_known() -> None:
    assert times([("dmesg", "[100.500000] x", None), ("dmesg", "no time", None)]) == [None, None]


def test_microseconds_are_exact() -> None:
    printed = [("a", "2024-07-09 14:02:27,642137 x", None)]
    assert [time % 1_000_000_000 for time in resolve(lines(printed)) if time] == [642_137_000]


def test_no_rows() -> None:
    assert resolve([]) == []


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([7200.4], 7200),  # a zone
        ([0.0, 1.5], 0),  # equal
        ([-19800.0, -19803.0], -19800),
        ([437.0, 439.0], 438),  # a wrong clock, seen twice
        ([437.0], None),  # seen once: may be no shared event
        ([0.0, 60.0], None),  # contradiction
        ([], None),
    ],
)
def test_offset_between(seconds: list[float], expected: int | None) -> None:
    one = 1_714_557_600 * SECOND
    pairs = [(one, one + int(second * SECOND)) for second in seconds]
    assert offset_between(pairs) == (None if expected is None else expected * SECOND)


def test_offset_between_skips_unknown_times() -> None:
    assert offset_between([(None, 0)]) is None
