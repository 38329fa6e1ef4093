"""The heartbeat of one counter: how long it takes from one step to the next, and how long it may.

It is learned from the job itself: the median of the last intervals and their spread (the median
absolute deviation, which one long interval does not move). A pause from which the job came back
may come again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

KEPT = 64  # intervals
LEAST = 4  # intervals of which a heartbeat is made
WARM_UP = 2  # first intervals of an attempt, which compile, fill caches and are no measure
PAUSE_FACTOR = 1.5  # how much longer a pause may be when it comes again
_SIGMA = 1.4826  # makes of that deviation a standard deviation, of a normal distribution
_TOGETHER = 2.0  # looks, within which steps came one after the other and not in one burst


@dataclass(slots=True)
class Pace:
    """One counter of one author. Times in seconds of the watch's clock.

    `at` is when it grew last; `heartbeat` is None until enough was seen.
    """

    phase: str | None = None
    at: float = 0.0
    counter: int | None = None
    text: str = ""
    done: bool = False
    heartbeat: float | None = None
    spread: float = 0.0
    pause: float = 0.0
    steps: int = 0
    _before: float | None = None
    _together: int = 0
    _warm: int = 0
    _spoiled: bool = False
    _intervals: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def step(self, at: float, look: float, longest: float, *, spoiled: bool) -> None:
        """It grew at this time; lines that came with one look have one time.

        `look` is how long it is from one look at the log to the next. `spoiled`: something else
        went on since the last step, so that the interval is no measure. A pause longer than
        `longest` is not expected again.
        """
        self.steps += 1
        if self.steps > 1 and at <= self.at:
            self._together += 1
            return
        self._close(look, longest)
        self._before = self.at if self.steps > 1 else None
        self._together, self._spoiled = 1, spoiled
        self.at = at

    def begin(self) -> None:
        """A new attempt begins: its first intervals are no measure."""
        self._warm, self.steps, self.done, self._before = 0, 0, False, None

    def bound(self, heartbeats: float, least: float = 0.0) -> float | None:
        """How long it may be silent, `least` at least; None as long as no heartbeat is known."""
        if self.heartbeat is None:
            return None
        spread = self.heartbeat + 2 * heartbeats * self.spread
        return max(least, heartbeats * self.heartbeat, spread, PAUSE_FACTOR * self.pause)

    def _close(self, look: float, longest: float) -> None:
        """Count the interval before the last step; what came after it is known now."""
        if self._before is None or self._spoiled:
            return
        span = self.at - self._before
        if self._warm < WARM_UP:
            self._warm += 1
            return
        # Steps faster than the looks come several at a time, without a look that sees none.
        steady = span <= _TOGETHER * look
        self._intervals.append(span / self._together if steady else span)
        if span <= longest:
            self.pause = max(self.pause, span)
        if len(self._intervals) >= LEAST:
            middle = self.heartbeat = median(self._intervals)
            self.spread = _SIGMA * median(abs(one - middle) for one in self._intervals)
