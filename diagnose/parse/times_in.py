"""A date with its time, or a duration, anywhere in a text, as schedulers and scripts print them."""

from __future__ import annotations

from diagnose.lazy import expression
from diagnose.parse.stamps import ISO_DATE, ISO_TIME, MONTHS, clock, day, iso_day

_ISO = expression(rf"\b{ISO_DATE}(?:T|,? ){ISO_TIME}")
# As `date` prints it: Sun Jul 12 04:01:23 [PM] [UTC] 2026.
_DATE = expression(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<month>[A-Z][a-z]{2}) +(?P<day>\d\d?) "
    r"(?P<time>\d\d:\d\d:\d\d)(?: (?P<half>[AP]M))?(?: [A-Z]{2,5}| [+-]\d\d)? (?P<year>\d{4})\b"
)
# 1h2m3s, 82m13.2s; walltime 01:30:00; 60 minutes, 3467 seconds, 5412 sec., walltime 2379.
_PARTS = expression(
    r"\b(?=\d)(?:(?P<h>\d+)h ?)?(?:(?P<m>\d+)m ?)?(?:(?P<s>\d+)(?:\.\d+)?s)?(?![\w.])(?<=[hms])"
)
_CLOCK = expression(r"\b(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d)\b(?![-\d])")
_WORDS = expression(
    r"\b(?:(?P<h>\d+) ?h(?:ou)?rs?|(?P<m>\d+) ?min(?:ute)?s?"
    r"|(?P<s>\d+)(?:\.\d+)? ?s(?:ec(?:ond)?s?)?)\b"
)
_BARE = expression(r"\b(?:walltime|timeout|run ?time)\b[ :=]*(?P<s>\d+)\b(?!:)")
_HALF_DAY = 43_200_000_000_000


def time_in(text: str) -> int | None:
    """The first date with a time in a text, in nanoseconds since 1970 as printed."""
    if found := _ISO.search(text):
        midnight, time = iso_day(found[1]), clock(found[2])
    elif found := _DATE.search(text):
        month = MONTHS.get(found["month"], 0)
        midnight, time = day(int(found["year"]), month, int(found["day"])), clock(found["time"])
        if found["half"] and time is not None:
            time = time % _HALF_DAY + _HALF_DAY * (found["half"] == "PM")
    else:
        return None
    return None if midnight is None or time is None else midnight + time


def duration_in(text: str) -> float | None:
    """The first duration in a text, in seconds."""
    dated = _ISO.search(text)
    text = text[dated.end() :] if dated else text
    for form in (_PARTS, _WORDS, _BARE, _CLOCK):
        if found := form.search(text):
            named = found.groupdict(default="0")
            return int(named.get("h", 0)) * 3600.0 + int(named.get("m", 0)) * 60 + int(named["s"])
    return None
