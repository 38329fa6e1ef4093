"""One clock for a job: fills in what printed times leave out, and brings zones together.

The job's clock is wall-clock time as its logs print it. Naive times stay as printed. Times with an
explicit offset are converted to one zone: the most frequent non-zero offset in the job (then naive
times most likely are in it too), else UTC. That a naive source is in another zone than the rest is
not guessed; `offset_between` proves it by events seen in both.

All times are nanoseconds since 1970.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Protocol

from diagnose.parse.stamps import Stamp

_SECOND = 1_000_000_000
_HOUR = 3600 * _SECOND
_DAY = 24 * _HOUR
_HALF_YEAR = 182 * _DAY
_EPOCH = date(1970, 1, 1).toordinal()
# A file is not older than its last line, but for time zones and sloppy clocks.
_MTIME_SLACK = 2 * _DAY
_SANE_MTIME = 946_684_800.0  # 2000-01-01; archives without times give 1970 or 1980
# Interleaved writers print times up to this much older than the line before.
_BACKWARDS = _HOUR
_QUARTER_HOUR = 900 * _SECOND
_UNTIMED = Stamp(0)  # of lines without a time, whose time is None


class Printed(Protocol):
    """A line's place, and the time that it tells.

    `mtime` is that of its source, in seconds since 1970, None where unknown.
    """

    source: str
    line: int
    stamp: Stamp | None
    mtime: float | None


def resolve(lines: Sequence[Printed], now: datetime | None = None) -> list[int | None]:
    """The time of each line on the job's clock, None where unknown; the order changes nothing.

    - A missing year: the one nearest to the full dates of the source, else of the job; else the
      latest that is not after the newest mtime; else not after `now`. A step back of more than
      half a year inside a source is a New Year.
    - A missing date: counted on from the dated line before (else back from the one after) in the
      source, over midnight; a source without any gets the date nearest to the job's last dated
      line, else to the newest mtime, else 1970-01-01, so that durations hold.
    - Since boot: unknown.
    """
    stamps = [line.stamp or _UNTIMED for line in lines]
    times: list[int | None] = [
        None if stamp is _UNTIMED or stamp.boot else stamp.ns for stamp in stamps
    ]
    parts = _parts(lines, times)
    newest = _newest(set(map(attrgetter("mtime"), lines)))
    printed = {id(stamp): stamp for stamp in stamps}.values()  # many lines share theirs
    if any(stamp.has_date and not stamp.has_year for stamp in printed):
        _fill_years(stamps, times, parts, newest, now or datetime.now(UTC))
    if any(stamp.utc_offset_s is not None for stamp in printed):
        _one_zone(stamps, times)
    if not all(stamp.has_date for stamp in printed):
        _fill_dates(stamps, times, parts, newest)
    return times


def offset_between(pairs: Iterable[tuple[int | None, int | None]]) -> int | None:
    """What to add to the times of one source to get those of another; None if not proven.

    `pairs` are the same events as seen by both (first: the source to shift). They prove an offset
    if they agree within 5 s and, where only one is given, if it is whole quarters of an hour
    within 5 s (a zone). Zones are rounded; up to 2 s is called equal.
    """
    found = [other - one for one, other in pairs if one is not None and other is not None]
    if not found or max(found) - min(found) > 5 * _SECOND:
        return None
    middle = _median(found)
    zone = round(middle / _QUARTER_HOUR) * _QUARTER_HOUR
    if abs(middle - zone) <= 5 * _SECOND:
        return zone
    return middle if len(found) > 1 else None


def _median(values: Sequence[int]) -> int:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) // 2


def _parts(lines: Sequence[Printed], times: Sequence[int | None]) -> list[list[int]]:
    """The positions of the lines with a time, by source and in its order."""
    found: dict[str, list[int]] = defaultdict(list)
    sources, numbers = map(attrgetter("source"), lines), [*map(attrgetter("line"), lines)]
    for position, (source, time) in enumerate(zip(sources, times, strict=True)):
        if time is not None:
            found[source].append(position)
    for part in found.values():
        part.sort(key=numbers.__getitem__)
    return list(found.values())


def _newest(mtimes: Iterable[float | None]) -> int | None:
    """The newest believable mtime in ns; later than any line of the job."""
    seconds = [mtime for mtime in mtimes if mtime is not None and _SANE_MTIME < mtime < 2**33]
    return int(max(seconds) * _SECOND) if seconds else None


def _fill_years(
    stamps: Sequence[Stamp],
    times: list[int | None],
    parts: Sequence[Sequence[int]],
    newest: int | None,
    now: datetime,
) -> None:
    limit = int(now.timestamp()) * _SECOND if newest is None else newest
    full = [
        [times[i] or 0 for i in part if stamps[i].has_year and stamps[i].has_date] for part in parts
    ]
    everywhere = [time for own in full for time in own]
    job = _median(everywhere) if everywhere else None
    for part, own in zip(parts, full, strict=True):
        yearless = [i for i in part if stamps[i].has_date and not stamps[i].has_year]
        if not yearless:
            continue
        printed = [times[i] or 0 for i in yearless]
        year = _last_year(printed[-1], _median(own) if own else job, limit)
        day = min(printed) // _DAY
        if day == max(printed) // _DAY:  # as in most sources
            shift = _shift(day, year)
            for i, time in zip(yearless, printed, strict=True):
                times[i] = time + shift
            continue
        wraps, wrap = [], 0
        for before, time in zip([printed[0], *printed], printed, strict=False):
            wrap += (time - before < -_HALF_YEAR) - (time - before > _HALF_YEAR)
            wraps.append(wrap)
        for i, time, turn in zip(yearless, printed, wraps, strict=True):
            times[i] = _in_year(time, year + turn - wrap)


def _last_year(printed: int, near: int | None, limit: int) -> int:
    """The year of a line: nearest to `near`, else the latest with the line not after `limit`."""
    about = _date(limit if near is None else near).year
    candidates = range(about - 4, about + 5)
    day = _date(printed)
    if (day.month, day.day) == (2, 29):
        candidates = range(about - 4 + -(about - 4) % 4, about + 5, 4)
    if near is not None:
        return min(candidates, key=lambda year: abs(_in_year(printed, year) - near))
    return max(year for year in candidates if _in_year(printed, year) <= limit + _MTIME_SLACK)


def _in_year(printed: int, year: int) -> int:
    """A time printed without a year, put into this one (Feb 29 becomes Mar 1 where it must)."""
    return printed + _shift(printed // _DAY, year)


@lru_cache(maxsize=1024)
def _shift(days: int, year: int) -> int:
    """What brings the times of a day, so many since 1970, into a year."""
    day = date.fromordinal(_EPOCH + days)
    return _month(year, day.month) - _month(day.year, day.month)


def _month(year: int, month: int) -> int:
    return (date(year, month, 1).toordinal() - _EPOCH) * _DAY


def _date(time: int) -> date:
    return date.fromordinal(_EPOCH + time // _DAY)


def _one_zone(stamps: Sequence[Stamp], times: list[int | None]) -> None:
    explicit = [
        (position, stamp.utc_offset_s)
        for position, stamp in enumerate(stamps)
        if stamp.utc_offset_s is not None and stamp.has_date and times[position] is not None
    ]
    counts = Counter(offset for _, offset in explicit if offset)
    zone = max(counts, key=lambda offset: (counts[offset], -offset), default=0)
    for position, offset in explicit:
        times[position] = (times[position] or 0) + (zone - offset) * _SECOND


def _fill_dates(
    stamps: Sequence[Stamp],
    times: list[int | None],
    parts: Sequence[Sequence[int]],
    newest: int | None,
) -> None:
    dated = [t for stamp, t in zip(stamps, times, strict=True) if t is not None and stamp.has_date]
    job = max(dated) if dated else newest
    for part in parts:
        if any(not stamps[position].has_date for position in part):
            _count_on(stamps, times, part, job)


def _count_on(
    stamps: Sequence[Stamp], times: list[int | None], part: Sequence[int], job: int | None
) -> None:
    """Dates of one source, counted from its dated lines; `job` is when the whole job ended."""
    printed = [times[position] or 0 for position in part]
    walked, far = [], 0  # time since the first line, if no gap is longer than 23 h
    before = printed[0] % _DAY
    for time in printed:
        far += (time % _DAY - before + _BACKWARDS) % _DAY - _BACKWARDS
        before = time % _DAY
        walked.append(far)
    anchors = [number for number, position in enumerate(part) if stamps[position].has_date]
    if not anchors:
        first = printed[0] % _DAY
        if job is not None:
            first += round((job - first - far) / _DAY) * _DAY
        for position, since in zip(part, walked, strict=True):
            times[position] = first + since
        return
    anchor, later = anchors[0], iter([*anchors[1:], len(part)])
    following = next(later)
    for number, position in enumerate(part):
        if number == following:
            anchor, following = number, next(later)
        times[position] = printed[anchor] + walked[number] - walked[anchor]
