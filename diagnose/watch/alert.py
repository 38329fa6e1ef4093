"""What a watch says: one dataclass, its JSON (schema `diagnose-watch/1`) and its words.

Times of the JSON are ISO 8601 with the zone of this machine. Text from logs is clean, bounded and
without secrets from here on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from diagnose.diagnosis import WELL
from diagnose.redact.redactor import Redactor
from diagnose.report.safe import escaped, masked_strings, shown
from diagnose.text.ranks import fold_ranks, ranks_phrase
from diagnose.text.times import duration
from diagnose.watch.verdict import Verdict

SCHEMA = "diagnose-watch/1"
Kind = Literal["stalled", "recovered", "attempt", "verdict", "ended"]
_TEXT = 200  # characters of a line of a log
_SHOWN = 4  # last lines in the words
_LABEL = 12
_COLLECT = (
    "diagnose collect --triage, on its nodes and before it is ended, shows where its ranks are"
)
_TITLES = {"attempt": "A new attempt started", "recovered": "The job makes progress again"}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one rank is: its step, how long it has been without progress, and its last line.

    `last_line_s`: how long ago that came.
    """

    name: str
    rank: int | None = None
    step: int | None = None
    silent_s: float | None = None
    last_line: str = ""
    last_line_s: float | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """One message. Seconds have a fraction; what is not known is None or empty.

    `first` names who stopped first. `limit_s` is how long the job might have been silent,
    `heartbeat_s` how long it usually is. `existed`: it had stopped before the watch began.
    """

    event: Kind
    time: str
    logs: list[str] = field(default_factory=list)
    number: int = 0
    whole: bool = True
    existed: bool = False
    since: str | None = None
    silent_s: float | None = None
    limit_s: float | None = None
    heartbeat_s: float | None = None
    phase: str | None = None
    activity: str = ""
    step: int | None = None
    first: list[str] = field(default_factory=list)
    first_ranks: list[int] = field(default_factory=list)
    ranks: list[Standing] = field(default_factory=list)
    trouble: str = ""
    verdict: Verdict | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as a dict."""
        data = asdict(self)
        if self.verdict is not None:
            data["verdict"]["class"] = data["verdict"].pop("cause")
        return {"schema": SCHEMA, **data}

    def to_json(self) -> str:
        """The JSON form on one line, of printable characters."""
        return escaped(json.dumps(self.to_dict(), ensure_ascii=False))


def iso(wall: float) -> str:
    """A time in seconds since 1970 as the JSON has it."""
    return datetime.fromtimestamp(wall).astimezone().isoformat(timespec="milliseconds")


def masked(alert: Alert, *, people: bool) -> Alert:
    """A copy that may be shown; with `people` their names and addresses are masked, too."""
    redactor = Redactor(people=people, numbers=False)
    return masked_strings(alert, redactor)


def line(text: str) -> str:
    """A line of a log on its way into an alert: clean, masked, then cut."""
    return shown(text, Redactor(people=False, numbers=False), _TEXT)


def title(alert: Alert) -> str:
    """The alert in one line, without its time."""
    if alert.event == "stalled":
        what = (
            "No progress" if alert.whole else f"{_names(alert)} stopped while others go on, silent"
        )
        since = f" since {_clock(alert.since)}" if alert.since else ""
        known = ", before the watch began" if alert.existed else ""
        return f"{what}{since}{known} ({duration(alert.silent_s or 0)})"
    if alert.event == "recovered":
        return f"{_TITLES['recovered']} (after {duration(alert.silent_s or 0)})"
    if alert.event == "attempt":
        return _TITLES["attempt"]
    if alert.verdict is None:
        return "The job ended"
    found = alert.verdict
    label = "So far" if alert.event == "verdict" else "The job ended"
    if found.problem:
        return f"{label}: {found.problem}"
    if found.verdict in WELL:
        return f"{label}: {'healthy' if found.verdict == 'healthy' else 'no failure found'}"
    return f"{label}: {found.verdict.upper()}  {found.title} ({found.confidence} confidence)"


def details(alert: Alert) -> list[tuple[str, str]]:
    """What stands below the title: labels and texts."""
    rows: list[tuple[str, str]] = []
    if alert.event == "stalled":
        rows.append(("activity", _activity(alert)))
        rows.append(("heartbeat", _heartbeat(alert)))
        rows.append(("first", _names(alert) or "the logs do not show which rank stopped first"))
        if alert.trouble:
            rows.append(("error", alert.trouble))
        with_line = [one for one in alert.ranks if one.last_line]
        rows += [("last line", f"{_whose(one)}: {one.last_line}") for one in with_line[:_SHOWN]]
        rows.append(("do now", _COLLECT))
    elif alert.verdict is not None and alert.verdict.names_cause:
        rows.append(("cause", f"{alert.verdict.cause}: {alert.verdict.summary}"))
        blamed = ranks_phrase(alert.verdict.ranks) if alert.verdict.ranks else ""
        rows.append(("culprits", ", ".join(filter(None, (blamed, *alert.verdict.hosts)))))
        if alert.event == "ended" and alert.verdict.verdict not in WELL and alert.logs:
            rows.append(("more", f"diagnose triage {' '.join(alert.logs)}"))
    return [(label, text) for label, text in rows if text]


def words(alert: Alert) -> str:
    """The alert for people: its time, its title, and what stands below."""
    head = f"{_clock(alert.time)}  {title(alert)}\n"
    return head + "".join(f"          {label:<{_LABEL}}{text}\n" for label, text in details(alert))


def variables(alert: Alert) -> dict[str, str]:
    """What the hook finds in its environment."""
    return {
        "DIAGNOSE_STALL_JSON": alert.to_json(),
        "DIAGNOSE_STALL_NUMBER": str(alert.number),
        "DIAGNOSE_STALL_RANKS": ",".join(map(str, alert.first_ranks)),
        "DIAGNOSE_STALL_PHASE": alert.phase or "",
        "DIAGNOSE_STALL_SINCE": alert.since or "",
        "DIAGNOSE_STALL_SECONDS": f"{alert.silent_s or 0:.0f}",
        "DIAGNOSE_STALL_LOGS": "\n".join(alert.logs),
    }


def _whose(one: Standing) -> str:
    """Whose last line it is, and how long ago it came: of some it is a warning of the start."""
    return one.name if one.last_line_s is None else f"{one.name}, {duration(one.last_line_s)} ago"


def _names(alert: Alert) -> str:
    """Who stopped first, and at which step."""
    others = [name for name in alert.first if not name.startswith("rank ")]
    text = ", ".join(
        filter(None, (ranks_phrase(alert.first_ranks) * bool(alert.first_ranks), *others[:8]))
    )
    steps = sorted(
        {one.step for one in alert.ranks if one.name in alert.first and one.step is not None}
    )
    if not text or not steps:
        return text
    return f"{text}, at step {fold_ranks(steps)}"


def _activity(alert: Alert) -> str:
    parts = [alert.phase or "", alert.activity, "" if alert.step is None else f"step {alert.step}"]
    return ", ".join(filter(None, parts))


def _heartbeat(alert: Alert) -> str:
    if alert.limit_s is None:
        return ""
    allowed = f"silence of {duration(alert.limit_s)} is allowed here"
    if alert.heartbeat_s is None:
        return f"not known yet; {allowed}"
    return f"{_short(alert.heartbeat_s)}; {allowed}"


def _short(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 1 else duration(seconds)


def _clock(time: str | None) -> str:
    """The time of day of an ISO time."""
    return (time or "")[11:19]


def first_of(standings: Iterable[Standing], first: Iterable[str]) -> list[Standing]:
    """Standings with those who stopped first in front, then by how long they are silent."""
    names = set(first)
    return sorted(
        standings, key=lambda one: (one.name not in names, -(one.silent_s or 0.0), one.name)
    )
