"""Times and durations for readers: English, in the job's own clock."""

from __future__ import annotations

from datetime import datetime, timedelta

from diagnose.cost import moment as parse
from diagnose.text import times

__all__ = ["date", "hours", "milliseconds", "moment", "parse", "time_of_day"]

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)

# A datetime or an ISO text of a diagnosis, or nanoseconds since 1970 of an event.
Time = datetime | str | int | None


def milliseconds(stamp: datetime) -> int:
    """Milliseconds since 1970 in the job's clock."""
    return (stamp - _EPOCH) // _MILLISECOND


def date(stamp: datetime) -> str:
    """`2 June 2026`."""
    return f"{stamp.day} {MONTHS[stamp.month - 1]} {stamp.year}"


def time_of_day(stamp: datetime) -> str:
    """`08:15:11`, with milliseconds where there are any: `08:15:11.184`."""
    text = f"{stamp:%H:%M:%S}"
    thousandths = stamp.microsecond // 1000
    return f"{text}.{thousandths:03d}" if thousandths else text


def moment(time: Time, beside: Time = None) -> str:
    """`2 June 2026, 08:15:11`; empty where there is no time.

    Without the date when it is that of `beside`, which stands next to it.
    """
    stamp, other = _stamp(time), _stamp(beside)
    if stamp is None:
        return ""
    if other is not None and other.date() == stamp.date():
        return time_of_day(stamp)
    return f"{date(stamp)}, {time_of_day(stamp)}"


def _stamp(time: Time) -> datetime | None:
    if isinstance(time, int):
        return times.moment(time)
    return parse(time) if isinstance(time, str) else time


def hours(value: float) -> str:
    """GPU-hours for people: `less than 0.1`, `1.5`, `38`, `12,400`."""
    if value < 0.1:
        return "less than 0.1"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
