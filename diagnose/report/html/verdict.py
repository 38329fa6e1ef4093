"""The first screen: the verdict, who is to blame, when it began and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from diagnose.cost import Standstill
from diagnose.diagnosis import Diagnosis
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.text.ranks import plural
from diagnose.text.times import duration

_BAD = ("hung", "failed")
_KNOWN_S = 1.0  # below, nothing was written after the onset: how long it went on is unknown
_LABELS = {
    "hung": "The job hung",
    "failed": "The job failed",
    "healthy": "The job ended well",
    "running": "The job was at work",
    "unknown": "Inconclusive",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A labelled fact of the first screen: the answer, and in smaller type what it rests on."""

    label: str
    value: str
    note: str = ""


def label(diagnosis: Diagnosis) -> str:
    """`The job hung · high confidence`."""
    sure = words.confidence(diagnosis)
    return _LABELS[diagnosis.verdict] + (f" · {sure}" if sure else "")


def facts(diagnosis: Diagnosis, still: Standstill | None) -> list[Fact]:
    """The facts under the headline, the most wanted first; only what is known."""
    bad = diagnosis.verdict in _BAD
    found = []
    who = words.culprits(diagnosis)
    if who:
        found.append(Fact("To blame", who, _sentence(diagnosis.culprits.why)))
    elif bad:
        found.append(Fact("To blame", "Unknown", "The evidence does not identify a rank or host."))
    if diagnosis.onset.time:
        began = clock.moment(_whole(diagnosis.onset.time))
        found.append(Fact("Began", began, _sentence(diagnosis.onset.why)))
    elif bad:
        found.append(Fact("Began", "Unknown", _sentence(diagnosis.onset.why)))
    if still is not None and bad and still.seconds >= _KNOWN_S:
        hung = diagnosis.verdict == "hung"
        found.append(
            Fact(
                "Hung for" if hung else "Time to the end",
                duration(still.seconds),
                "Until the last line of the logs, "
                f"{clock.moment(_whole(still.end), diagnosis.onset.time)}.",
            )
        )
        if still.gpu_hours is not None:
            # Without a stated world size there are those that are named, if not more.
            least = "" if diagnosis.job.world_size == still.ranks else "At least "
            lost = f"{least}{clock.hours(still.gpu_hours)}"
            ranks = f"{least}{still.ranks:,} {plural(still.ranks or 0, 'rank')}"
            found.append(
                Fact("Lost", f"{lost} GPU-hours", f"{ranks}, one GPU each, from the onset.")
            )
    if diagnosis.phase:
        phase = words.phase(diagnosis.phase)
        found.append(Fact("Phase" if bad else "Last phase", phase[:1].upper() + phase[1:]))
    done = words.progress(diagnosis.progress)
    if done:
        found.append(Fact("Progress", done[:1].upper() + done[1:]))
    restart = diagnosis.restart
    if bad and words.RESTART[restart.advice]:
        value = words.RESTART[restart.advice]
        if restart.exclude_hosts:
            value += f", excluding {words.names(restart.exclude_hosts)}"
        found.append(Fact("Restart", value, _sentence(restart.why)))
    if bad:
        answer, why = words.longer_timeout_why(diagnosis)
        found.append(Fact("Longer timeout", answer.rstrip("."), why))
    return found


def _whole(time: str | datetime) -> datetime | None:
    """The second of a time: more would only look exact."""
    stamp = clock.parse(time) if isinstance(time, str) else time
    return None if stamp is None else stamp.replace(microsecond=0)


def _sentence(text: str) -> str:
    return words.sentence(text[:1].upper() + text[1:])
