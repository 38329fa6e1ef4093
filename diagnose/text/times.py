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
