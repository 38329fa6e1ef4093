"""What a watch says: one dataclass, its JSON (schema `diagnose-watch/1`) and its words.

Times of the JSON are ISO 8601 with the zone of this machine. Text from logs is clean, bounded and
without secrets from here on. A verdict is that of the ordinary diagnosis of the logs so far, made
by a process of its own: it may take more memory than a watch that runs for weeks should keep, and
its time is bounded.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from diagnose.diagnosis import WELL
from diagnose.redact.redactor import Redactor
from diagnose.report.safe import escaped, masked_strings, shown
from diagnose.runtime.children import run
from diagnose.text.ranks import fold_ranks, ranks_phrase
from diagnose.text.times import duration

LIVE_S, FINAL_S = 60.0, 600.0  # how long it may take during a stall, and at the end
LIVE_BYTES = 1 << 30  # of logs, beyond which it is not cheap during a stall
_MOST = 16 << 20  # bytes of its answer
_NICE = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the diagnosis says; `problem` where there is none."""

    verdict: str = "unknown"
    cause: str = "unknown"
    title: str = ""
    summary: str = ""
    confidence: str = "low"
    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def names_cause(self) -> bool:
        """Whether it says more than that nothing is known."""
        return self.cause not in ("unknown", "none") and not self.problem


def diagnosed(
    paths: Sequence[str],
    limit_s: float,
    patterns: Sequence[Path] = (),
    stop: threading.Event | None = None,
) -> Verdict:
    """The verdict on these logs, within so many seconds, or until `stop`."""
    command = [sys.executable, "-m", "diagnose", "triage", "--format", "json", "--workers", "1"]
    command += [option for folder in patterns for option in ("--patterns", str(folder))]
    answer = BytesIO()
    ending = run(
        [*command, "--", *paths],
        answer,
        seconds=limit_s,
        limit=_MOST,
        stop=lambda: "the watch is over" if stop is not None and stop.is_set() else None,
        nice=_NICE,
        grace_s=0,
    )
    if ending.status is None:
        return Verdict(problem=f"the diagnosis has no answer: {ending.why}")
    return _read(answer.getvalue())


def _read(answer: bytes) -> Verdict:
    try:
        found: dict[str, Any] = json.loads(answer)
        cause, culprits = found["root_cause"], found["culprits"]
        return Verdict(
            found["verdict"], cause["class"], cause["title"], cause["summary"], cause["confidence"],
            culprits["ranks"], culprits["hosts"],
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return Verdict(problem="the diagnosis gave no verdict")


class Question:
    """A diagnosis under way in a thread; `answer` is None until it is made."""

    def __init__(self, paths: Sequence[str], limit_s: float, patterns: Sequence[Path] = ()) -> None:
        self.answer: Verdict | None = None
        self._stop = threading.Event()

        def ask() -> None:
            self.answer = diagnosed(paths, limit_s, patterns, self._stop)

        self._thread = threading.Thread(target=ask, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> Verdict | None:
        """The answer, if it comes so soon."""
        self._thread.join(seconds)
        return self.answer

    def cancel(self) -> None:
        """It is not needed any more."""
        self._stop.set()
        self._thread.join(5)


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
    if found.verdict in WELL and not found.names_cause:
        return f"{label}: {'healthy' if found.verdict == 'healthy' else 'no failure found'}"
    return f"{label}: {found.verdict.upper()}  {found.title} ({found.confidence} confidence)"


def details(alert: Alert) -> list[tuple[str, str]]:
    """What stands below the title: labels and texts."""
    rows: list[tuple[str, str]] = []
    if alert.event == "stalled":
        step = "" if alert.step is None else f"step {alert.step}"
        doing = (alert.phase, alert.activity, step)
        rows.append(("activity", ", ".join(filter(None, doing))))
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
    known = [ranks_phrase(alert.first_ranks)] * bool(alert.first_ranks)
    text = ", ".join([*known, *others[:8]])
    steps = {one.step for one in alert.ranks if one.name in alert.first and one.step is not None}
    return f"{text}, at step {fold_ranks(steps)}" if text and steps else text


def _heartbeat(alert: Alert) -> str:
    if alert.limit_s is None:
        return ""
    allowed = f"silence of {duration(alert.limit_s)} is allowed here"
    if alert.heartbeat_s is None:
        return f"not known yet; {allowed}"
    beat = alert.heartbeat_s
    return f"{f'{beat:.2f} s' if beat < 1 else duration(beat)}; {allowed}"


def _clock(time: str | None) -> str:
    """The time of day of an ISO time."""
    return (time or "")[11:19]


def first_of(standings: Iterable[Standing], first: Iterable[str]) -> list[Standing]:
    """Standings with those who stopped first in front, then by how long they are silent."""
    names = set(first)
    return sorted(
        standings, key=lambda one: (one.name not in names, -(one.silent_s or 0.0), one.name)
    )
