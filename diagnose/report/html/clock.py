"""Times and durations for readers: English, in the job's own clock."""

from __future__ import annotations

from typing import Any

import pandas as pd

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def parse(time: str | None) -> pd.Timestamp | None:
    """An ISO 8601 time of a diagnosis without its zone, or None where there is none."""
    if not time:
        return None
    stamp = pd.to_datetime(time, errors="coerce")
    if stamp is None or pd.isna(stamp):
        return None
    return pd.Timestamp(stamp).tz_localize(None)


def milliseconds(stamp: pd.Timestamp) -> int:
    """Milliseconds since 1970 in the job's clock."""
    return int(stamp.as_unit("ns").value // 1_000_000)


def date(stamp: pd.Timestamp) -> str:
    """`2 June 2026`."""
    return f"{stamp.day} {MONTHS[stamp.month - 1]} {stamp.year}"


def time_of_day(stamp: pd.Timestamp) -> str:
    """`08:15:11`, with milliseconds where there are any: `08:15:11.184`."""
    text = stamp.strftime("%H:%M:%S")
    thousandths = stamp.microsecond // 1000
    return f"{text}.{thousandths:03d}" if thousandths else text


def moment(time: Any, beside: Any = None) -> str:
    """`2 June 2026, 08:15:11` of a timestamp or an ISO text; empty where there is none.

    Without the date when it is that of `beside`, which stands next to it.
    """
    stamp, other = _stamp(time), _stamp(beside)
    if stamp is None:
        return ""
    if other is not None and other.date() == stamp.date():
        return time_of_day(stamp)
    return f"{date(stamp)}, {time_of_day(stamp)}"


def _stamp(time: Any) -> pd.Timestamp | None:
    stamp = parse(time) if isinstance(time, str) or time is None else time
    return None if stamp is None or pd.isna(stamp) else pd.Timestamp(stamp)


def hours(value: float) -> str:
    """GPU-hours for people: `less than 0.1`, `1.5`, `38`, `12,400`."""
    if value < 0.1:
        return "less than 0.1"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
