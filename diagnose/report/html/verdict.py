"""The first screen: the verdict, who is to blame, when it began and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from diagnose.diagnosis import Diagnosis
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.events import Events

_BAD = ("hung", "failed")
_FAILURE_ROLES = ("cause", "effect", "aftermath")
_LABELS = {
    "hung": "The job hung",
    "failed": "The job failed",
    "healthy": "The job is healthy",
    "unknown": "The evidence does not tell",
}
_YEAR_S = 365 * 86_400


@dataclass(frozen=True, slots=True)
class Fact:
    """A labelled fact of the first screen: the answer, and in smaller type what it rests on."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Standstill:
    """From the onset to the last line of the failure, in seconds, and what that cost.

    `gpu_hours` counts one GPU per rank; None when the number of ranks is unknown.
    """

    seconds: float
    end: pd.Timestamp
    ranks: int | None

    @property
    def gpu_hours(self) -> float | None:
        """The time of all ranks together."""
        return None if self.ranks is None else self.ranks * self.seconds / 3600


def label(diagnosis: Diagnosis) -> str:
    """`The job hung · high confidence`."""
    sure = words.confidence(diagnosis)
    return _LABELS[diagnosis.verdict] + (f" · {sure}" if sure else "")


def standstill(diagnosis: Diagnosis, events: Events) -> Standstill | None:
    """How long the job stood still; None without an onset or an end on the clock."""
    onset = clock.parse(diagnosis.onset.time)
    if onset is None or diagnosis.verdict not in _BAD or not events.clocked:
        return None
    rows = events.last_attempt
    told = rows["role"].isin(_FAILURE_ROLES) | (rows["kind"] == "exit").fillna(False)
    times = rows.loc[told, "time"].dropna()
    times = times[times >= onset]
    if times.empty:
        return None
    end = pd.Timestamp(times.max())
    seconds = (end - onset).total_seconds()
    if not 0 < seconds < _YEAR_S:
        return None
    ranks = diagnosis.job.world_size or len(diagnosis.job.ranks_seen) or None
    return Standstill(seconds, end, ranks)


def facts(diagnosis: Diagnosis, still: Standstill | None) -> list[Fact]:
    """The facts under the headline, the most wanted first; only what is known."""
    bad = diagnosis.verdict in _BAD
    found = []
    who = words.culprits(diagnosis.culprits)
    if who:
        found.append(Fact("To blame", who, _sentence(diagnosis.culprits.why)))
    elif bad:
        found.append(Fact("To blame", "Not known", "The evidence does not name a rank or host."))
    if diagnosis.onset.time:
        began = clock.moment(_whole(diagnosis.onset.time))
        found.append(Fact("Began", began, _sentence(diagnosis.onset.why)))
    elif bad:
        found.append(Fact("Began", "Not known", _sentence(diagnosis.onset.why)))
    if still is not None:
        hung = diagnosis.verdict == "hung"
        found.append(
            Fact(
                "Stood still" if hung else "From there to the end",
                clock.duration(still.seconds),
                "Until the last line of the failure, "
                f"{clock.moment(_whole(still.end), diagnosis.onset.time)}.",
            )
        )
        if still.gpu_hours is not None:
            lost = clock.hours(still.gpu_hours)
            ranks = f"{still.ranks:,} rank{'' if still.ranks == 1 else 's'}"
            found.append(
                Fact("Lost", f"{lost} GPU-hours", f"{ranks}, one GPU each, from the onset on.")
            )
    if diagnosis.phase:
        phase = words.phase(diagnosis.phase)
        found.append(Fact("Phase" if bad else "Last phase", phase[:1].upper() + phase[1:]))
    restart = diagnosis.restart
    if bad and words.RESTART[restart.advice]:
        value = words.RESTART[restart.advice]
        if restart.exclude_hosts:
            value += f", without {words.names(restart.exclude_hosts)}"
        found.append(Fact("Restart", value, _sentence(restart.why)))
    if bad:
        answer = words.longer_timeout(diagnosis)
        short, _, rest = answer.partition(": ")
        if diagnosis.longer_timeout_helps == "unknown":
            short, rest = "Not known", answer
        elif not rest:
            short, _, rest = answer.partition(", ")
        found.append(Fact("Longer timeout", short, _sentence(rest)))
    return found


def _whole(time: str | pd.Timestamp) -> pd.Timestamp | None:
    """The second of a time: more would only look exact."""
    stamp = clock.parse(time) if isinstance(time, str) else time
    return None if stamp is None else stamp.floor("s")


def _sentence(text: str) -> str:
    return words.sentence(text[:1].upper() + text[1:])
