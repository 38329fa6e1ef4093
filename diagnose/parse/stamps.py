"""Printed times to `Stamp`: the pieces which the prefix families share.

Every function takes text that its caller's regular expression has already shaped (digits where
digits belong) and gives None where the numbers are no time, e.g. month 13.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from diagnose.parse.who import Prefix, Stamp

# Fragments for regular expressions. ISO_TIME has two groups, ISO_ZONE one.
ISO_DATE = r"(\d{4}[-/]\d\d[-/]\d\d)"
ISO_TIME = r"(\d\d:\d\d:\d\d)(?:[.,](\d{1,9})(?!\d))?"
ISO_ZONE = r"(Z|[+-]\d\d:?\d\d| UTC|)"

MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}

# Stands for a year that was not printed: a leap year, so that Feb 29 is a date.
NO_YEAR = 1972

SECOND = 1_000_000_000
_DAY = 86_400 * SECOND
_EPOCH = date(1970, 1, 1).toordinal()
_OFFSET_LIMIT_S = 15 * 3600


@dataclass(slots=True)
class Refusals:
    """How often printed numbers were no time: whoever looks twice knows if any were in between."""

    count: int = 0


refusals = Refusals()


@lru_cache(maxsize=1024)
def day(year: int, month: int, day_of_month: int) -> int | None:
    """Nanoseconds since 1970 of midnight; None if there is no such day or it is out of range."""
    if not 1970 <= year < 2200:
        return None
    try:
        return (date(year, month, day_of_month).toordinal() - _EPOCH) * _DAY
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def iso_day(text: str) -> int | None:
    """`day` of "2024-05-01" or "2024/05/01"."""
    return day(int(text[:4]), int(text[5:7]), int(text[8:10]))


@lru_cache(maxsize=8192)
def clock(text: str) -> int | None:
    """Nanoseconds since midnight of "HH:MM:SS"; second 60 is a leap second."""
    hour, minute, second = int(text[:2]), int(text[3:5]), int(text[6:8])
    if hour > 23 or minute > 59 or second > 60:
        return None
    return (hour * 3600 + minute * 60 + second) * SECOND


@lru_cache(maxsize=64)
def zone(text: str) -> int | None:
    """Seconds east of UTC of "Z", "UTC", "+02:00" or "-0700"; None for anything else."""
    text = text.strip()
    if text in ("Z", "UTC", "GMT"):
        return 0
    if len(text) < 5 or text[0] not in "+-":
        return None
    seconds = int(text[1:3]) * 3600 + int(text[-2:]) * 60
    if seconds > _OFFSET_LIMIT_S:
        return None
    return -seconds if text[0] == "-" else seconds


def stamp(
    midnight: int | None,
    time: str,
    fraction: str | None = None,
    offset: str = "",
    *,
    has_date: bool = True,
    has_year: bool = True,
) -> Stamp | None:
    """A Stamp of a day (see `day`), "HH:MM:SS", the digits after the point and a zone."""
    seconds = clock(time)
    if midnight is None or seconds is None:
        refusals.count += 1
        return None
    ns, resolution = midnight + seconds, SECOND
    if fraction:
        ns += int(fraction.ljust(9, "0"))
        resolution = 10 ** (9 - len(fraction))
    return Stamp(ns, has_date, has_year, zone(offset) if offset else None, resolution)


def since_boot(seconds: str, fraction: str) -> Stamp | None:
    """A Stamp of "12345", "678901": since boot, or since 1970 if that is what the size says."""
    ns = int(seconds) * SECOND + int(fraction.ljust(9, "0"))
    if ns >= 7_000_000_000 * SECOND:
        refusals.count += 1
        return None
    resolution = 10 ** (9 - len(fraction))
    if ns >= 946_684_800 * SECOND:  # 2000-01-01; no machine is up for thirty years
        return Stamp(ns, utc_offset_s=0, resolution_ns=resolution)
    return Stamp(ns, has_date=False, has_year=False, resolution_ns=resolution, boot=True)


def keep(prefix: Prefix, found: Stamp) -> None:
    """Give `prefix` this time unless an outer prefix gave one that says as much.

    The outermost time is the one all lines of a source share, whoever wrote them; it yields only
    where it lacks the date (or counts from boot) and the inner one does not.
    """
    known = prefix.stamp
    if known is None or (not known.has_date and found.has_date):
        prefix.stamp = found


NO_TIME = Stamp(0)  # of a prefix that may have a time, and has none
_Found = re.Match[str]


def time_reader(groups: Sequence[str]) -> Callable[[_Found], Stamp | None] | None:
    """What reads the time of an expression with these groups; None if they are none of a time.

    A day is a `date`, or `month` or `month_name`, `day` and `year` or `yy`, or `month_day` as glog
    has it; its `time` is of a clock of 12 hours with `half`. Without a day, `seconds` or
    `microseconds` count from boot. Where what it finds is no time, the reader gives None.
    """
    if "seconds" in groups:
        return lambda found: since_boot(found["seconds"], found["fraction"])
    if "microseconds" in groups:
        return _of_microseconds
    if "time" not in groups:
        return None
    day_of = next((reads for name, reads in _DAYS.items() if name in groups), None)
    dated = "date" in groups or "yy" in groups
    fractions = [group for group in groups if group.startswith("fraction")]

    def read(found: _Found) -> Stamp | None:
        time = found["time"]
        if time is None:
            return NO_TIME
        if "half" in groups and found["half"]:
            time = f"{int(time[:2]) % 12 + 12 * (found['half'] == 'PM'):02d}{time[2:]}"
        has_year = dated or ("year" in groups and found["year"] is not None)
        if day_of is _month_day:
            has_year = len(found["month_day"]) == 8
        printed = stamp(
            day_of(found) if day_of is not None else 0,
            time if len(time) > 5 else f"{time}:00",
            "".join(found[name] or "" for name in fractions),
            found["zone"] or "" if "zone" in groups else "",
            has_date=day_of is not None,
            has_year=has_year,
        )
        if printed is not None and len(time) == 5:
            printed.resolution_ns *= 60
        return printed

    return read


def _of_microseconds(found: _Found) -> Stamp | None:
    digits = found["microseconds"].zfill(7)
    return since_boot(digits[:-6], digits[-6:])


def _month_day(found: _Found) -> int | None:
    """Of `0517` or `20240517`, also not padded."""
    number = int(found["month_day"])
    year, number = divmod(number, 10_000)
    return day(year or NO_YEAR, number // 100, number % 100)


def _named_day(found: _Found) -> int | None:
    named, groups = found["month_name"], found.re.groupindex
    year = found["year"] if "year" in groups else None
    return day(int(year or NO_YEAR), MONTHS[named], int(found["day"]))


def _numbered_day(found: _Found) -> int | None:
    groups = found.re.groupindex
    year = int(found["year"]) if "year" in groups else NO_YEAR
    year = 2000 + int(found["yy"]) if "yy" in groups else year
    return day(year, int(found["month"]), int(found["day"]))


_DAYS: dict[str, Callable[[_Found], int | None]] = {
    "date": lambda found: iso_day(found["date"]),
    "month_day": _month_day,
    "month_name": _named_day,
    "month": _numbered_day,
}
