"""One clock for a job: fills in what printed times leave out, and brings zones together.

The job's clock is wall-clock time as its logs print it. Naive times stay as printed. Times with an
explicit offset are converted to one zone: the most frequent non-zero offset in the job (then naive
times most likely are in it too), else UTC. That a naive source is in another zone than the rest is
not guessed; whoever can prove it by an event seen in both (`offset_between`) passes `shifts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

_SECOND = 1_000_000_000
_HOUR = 3600 * _SECOND
_DAY = 24 * _HOUR
_NAT = np.iinfo(np.int64).min
_HALF_YEAR = 182 * _DAY
# A file is not older than its last line, but for time zones and sloppy clocks.
_MTIME_SLACK = 2 * _DAY
_SANE_MTIME = 946_684_800.0  # 2000-01-01; archives without times give 1970 or 1980
# Interleaved writers print times up to this much older than the line before.
_BACKWARDS = _HOUR
_QUARTER_HOUR = 900 * _SECOND


def resolve(
    frame: pd.DataFrame,
    shifts: Mapping[str, pd.Timedelta] | None = None,
    now: datetime | None = None,
) -> pd.Series[pd.Timestamp]:
    """Times on the job's clock (datetime64[ns], NaT where unknown), aligned with `frame`'s index.

    `frame` has one row a line, in any order, with columns `source`, `line` (order inside the
    source), the fields `ns`, `has_date`, `has_year`, `utc_offset_s`, `boot` of its Stamp (`ns`
    missing where the line has no time) and `mtime` (seconds since 1970 or missing) of the source.

    - A missing year: the one nearest to the full dates of the source, else of the job; else the
      latest that is not after the newest mtime; else not after `now`. A step back of more than
      half a year inside a source is a New Year.
    - A missing date: counted on from the dated line before (else back from the one after) in the
      source, over midnight; a source without any gets the date nearest to the job's last dated
      line, else to the newest mtime, else 1970-01-01, so that durations hold.
    - Since boot: NaT, unless `shifts` has the time of boot of that source.

    `shifts` gives per source what is proven to be missing in its times.
    """
    rows = frame.reset_index(drop=True)
    rows = rows.sort_values(["source", "line"], kind="stable")
    ns = rows["ns"].astype("Int64")
    known = ns.notna().to_numpy()
    values = ns.fillna(0).to_numpy(dtype=np.int64, copy=True)
    if rows["ns"].dtype.kind == "f":  # a float of today's nanoseconds is exact to 256 of them
        values = (values + 500) // 1000 * 1000
    boot = _flag(rows["boot"]) & known
    dated = _flag(rows["has_date"]) & known & ~boot
    timed = ~_flag(rows["has_date"]) & known & ~boot
    yearless = dated & ~_flag(rows["has_year"])
    parts = _parts(rows["source"])

    newest = _newest(rows["mtime"])
    today = int((now or datetime.now(UTC)).timestamp()) * _SECOND
    limit = today if newest is None else newest
    _fill_years(values, dated & ~yearless, yearless, parts, limit)
    _one_zone(values, rows["utc_offset_s"], known & dated)
    _fill_dates(values, dated, timed, parts, newest)

    result = np.where(known & ~boot, values, _NAT)
    if shifts:
        for name, part in parts.items():
            if name in shifts:
                shift = int(shifts[name].value)
                moved = known[part]
                result[part] = np.where(moved, values[part] + shift, _NAT)
    times = pd.Series(result.view("datetime64[ns]"), index=rows.index).sort_index()
    times.index = frame.index
    return times


def offset_between(pairs: Iterable[tuple[pd.Timestamp, pd.Timestamp]]) -> pd.Timedelta | None:
    """What to add to the times of one source to get those of another; None if not proven.

    `pairs` are the same events as seen by both (first: the source to shift). They prove an offset
    if they agree within 5 s and, where only one is given, if it is whole quarters of an hour
    within 5 s (a zone). Zones are rounded; up to 2 s is called equal.
    """
    found = [(other - one).value for one, other in pairs if not (pd.isna(one) or pd.isna(other))]
    if not found or max(found) - min(found) > 5 * _SECOND:
        return None
    middle = int(np.median(found))
    zone = round(middle / _QUARTER_HOUR) * _QUARTER_HOUR
    if abs(middle - zone) <= 5 * _SECOND:
        return pd.Timedelta(zone, unit="ns")
    return pd.Timedelta(middle, unit="ns") if len(found) > 1 else None


def _flag(column: pd.Series[bool]) -> _Flags:
    flags: _Flags = column.astype("boolean").fillna(False).to_numpy(dtype=bool)
    return flags


def _parts(sources: pd.Series[str]) -> dict[str, slice]:
    """Where each source's rows lie (they are sorted by source)."""
    codes, names = pd.factorize(sources)
    starts = np.flatnonzero(np.diff(codes, prepend=-2))
    ends = [*starts[1:], len(codes)][: len(starts)]
    return {
        str(names[codes[start]]): slice(int(start), int(end))
        for start, end in zip(starts, ends, strict=True)
    }


def _newest(mtimes: pd.Series[float]) -> int | None:
    """The newest believable mtime in ns; later than any line of the job."""
    seconds = pd.to_numeric(mtimes, errors="coerce")
    seconds = seconds[(seconds > _SANE_MTIME) & (seconds < 2**33)]
    return int(seconds.max() * _SECOND) if len(seconds) else None


def _fill_years(
    values: _Ints,
    full: _Flags,
    yearless: _Flags,
    parts: Mapping[str, slice],
    limit: int,
) -> None:
    if not yearless.any():
        return
    job = int(np.median(values[full])) if full.any() else None
    for part in parts.values():
        where = np.flatnonzero(yearless[part]) + part.start
        if not len(where):
            continue
        own = full[part]
        near = int(np.median(values[part][own])) if own.any() else job
        printed = values[where]
        steps = np.diff(printed, prepend=printed[0])
        wraps = np.cumsum((steps < -_HALF_YEAR).astype(int) - (steps > _HALF_YEAR).astype(int))
        wraps -= wraps[-1]
        year = _last_year(int(printed[-1]), near, limit)
        values[where] = _in_year(printed, year + wraps)


def _last_year(printed: int, near: int | None, limit: int) -> int:
    """The year of a line: nearest to `near`, else the latest with the line not after `limit`."""
    about = pd.Timestamp(limit if near is None else near).year
    candidates = np.arange(about - 4, about + 5)
    if pd.Timestamp(printed).strftime("%m-%d") == "02-29":
        candidates = candidates[(candidates % 4 == 0)]
    times = _in_year(np.full(len(candidates), printed), candidates)
    if near is not None:
        return int(candidates[np.argmin(np.abs(times - near))])
    return int(candidates[times <= limit + _MTIME_SLACK].max())


def _in_year(printed: _Ints, years: _Ints) -> _Ints:
    """Times printed without a year, put into these years (Feb 29 becomes Mar 1 where it must)."""
    times = printed.view("datetime64[ns]")
    months = times.astype("datetime64[M]")
    rest = times - months.astype("datetime64[ns]")
    number = months.astype(np.int64) % 12
    moved = ((years - 1970) * 12 + number).astype("datetime64[M]")
    values: _Ints = (moved.astype("datetime64[ns]") + rest).astype(np.int64)
    return values


def _one_zone(values: _Ints, offsets: pd.Series[float], dated: _Flags) -> None:
    seconds = pd.to_numeric(offsets, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    explicit = ~np.isnan(seconds) & dated
    if not explicit.any():
        return
    shifts = seconds[explicit].astype(np.int64)
    zones, counts = np.unique(shifts[shifts != 0], return_counts=True)
    zone = int(zones[np.argmax(counts)]) if len(zones) else 0
    values[explicit] += (zone - shifts) * _SECOND


def _fill_dates(
    values: _Ints, dated: _Flags, timed: _Flags, parts: Mapping[str, slice], newest: int | None
) -> None:
    if not timed.any():
        return
    job = int(values[dated].max()) if dated.any() else newest
    for part in parts.values():
        if not timed[part].any():
            continue
        where = np.flatnonzero(dated[part] | timed[part]) + part.start
        clocks = values[where] % _DAY
        steps = (np.diff(clocks, prepend=clocks[0]) + _BACKWARDS) % _DAY - _BACKWARDS
        walked = np.cumsum(steps)  # time since the first row, if no gap is longer than 23 h
        anchors = np.flatnonzero(dated[where])
        if not len(anchors):
            first = int(clocks[0])
            if job is not None:
                first += round((job - first - int(walked[-1])) / _DAY) * _DAY
            values[where] = first + walked
            continue
        before = np.searchsorted(anchors, np.arange(len(where)), side="right") - 1
        anchor = anchors[np.maximum(before, 0)]
        values[where] = values[where[anchor]] + walked - walked[anchor]
