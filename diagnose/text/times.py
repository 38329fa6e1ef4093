"""Times of the timeline (nanoseconds since 1970, no zone) as text and as datetimes."""

from __future__ import annotations

from datetime import datetime, timedelta

_EPOCH = datetime(1970, 1, 1)


def moment(time: int) -> datetime:
    """The naive datetime of a time, to the microsecond."""
    return _EPOCH + timedelta(microseconds=time // 1000)


def iso(time: int | None) -> str | None:
    """A time as ISO 8601, with milliseconds where it has a fraction; None where unknown."""
    if time is None:
        return None
    at = moment(time)
    return at.isoformat(timespec="milliseconds" if at.microsecond else "seconds")


def duration(seconds: float) -> str:
    """The two largest units: `3 d 4 h`, `2 h 14 min`, `11 min 3 s`, `8 s`, `0.4 s`."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)
