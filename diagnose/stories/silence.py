"""Whether a job, or one of its processes, fell silent long before whoever ended it did so.

Lines that came regularly and then came no more are a hang, whatever its end: a limit, a signal, a
person, or a monitor that watches. What ends it later is its aftermath.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from diagnose.stories.aftermath import end_of
from diagnose.stories.deeds import Deeds
from diagnose.stories.lone import Lone, find_lone
from diagnose.stories.rhythm import Rhythm, rhythms
from diagnose.text.median import median
from diagnose.text.times import duration
from diagnose.timeline.event import Event

# A silence is far beyond the rhythm of its author from so many of its intervals on, and so many of
# its longest earlier pauses; and it is not over in a moment.
INTERVALS, PAUSES, LEAST_S = 20, 2, 60
# Where no two lines show a rhythm.
_UNKNOWN_RHYTHM_S = 3600
# What is reckoned from how long a run and its bar took leaves out how long it took to start.
_RECKONED_S = 1200


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence that is long for those who fell silent.

    `last` is the last work before it. `whole`: of the whole job, and proven to have lasted
    `seconds`, where lines came every `usual_s`; else only the one author of `lone` is silent.
    `ended` is the first line of who ended it, None where nothing did.
    """

    last: Event
    whole: bool
    seconds: float | None = None
    usual_s: float | None = None
    ended: Event | None = None
    lone: Lone | None = None

    @property
    def began(self) -> Event:
        """The last line of who fell silent first."""
        return self.lone.rhythm.last if self.lone else self.last

    def summary(self, work: str | None) -> str:
        """What is known of it in sentences; `work`: what was begun then, "saving a checkpoint"."""
        lone, usual = self.lone, self.usual_s
        before = f"; before, lines came every {duration(usual)}" if usual else ""
        if self.seconds is None:
            assert lone is not None
            return (
                f"{lone.name} wrote no more progress{before}, while the others wrote {lone.lines} "
                "more lines: it hangs, or only its output is lost."
            )
        busy, first = f" while it was {work}" if work else "", ""
        if lone is not None:
            more = "one more line" if lone.lines == 1 else f"{lone.lines} more lines"
            first = f" {lone.name} was the first, the others wrote {more}."
        text = f"The job fell silent{busy} for {duration(self.seconds)}{before}.{first}"
        if self.ended is None:
            return f"{text} Nothing ended it: look at it while it hangs."
        return f"{text} Whoever ended it then is not the cause."


def find_silence(deeds: Deeds, endings: Collection[str]) -> Silence | None:
    """The silence of a job or of one of its processes; None where all worked to the end.

    `endings` are the cause classes of those who end a job from outside.
    """
    timeline = deeds.timeline
    found = rhythms(timeline)
    known = [one for one in found if len(one.lines) > 1]
    if not known:
        return None
    end = end_of(timeline, endings, known)
    usual = _usual(known)
    seconds, reckoned = end.silence(usual)
    bound = max(_bound(usual, known), _RECKONED_S if reckoned else 0)
    whole = seconds is not None and seconds >= bound
    lone = find_lone(found, deeds, endings, whole=whole)
    if not whole and lone is None:
        return None
    return Silence(end.last, whole, seconds if whole else None, usual, end.first, lone)


def _usual(known: Sequence[Rhythm]) -> float | None:
    """The usual seconds between two lines of one author."""
    found = [one.interval_s for one in known if one.interval_s is not None]
    return median(found) if found else None


def _bound(usual: float | None, known: Sequence[Rhythm]) -> float:
    """Seconds from which on a silence is long."""
    if usual is None:
        return _UNKNOWN_RHYTHM_S
    return max(LEAST_S, INTERVALS * usual, PAUSES * max(one.pause_s for one in known))
