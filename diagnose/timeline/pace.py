"""What steps took, in columns: for each rank or other author, and for GPUs that were watched.

No object is made of a step. A row has the number of its step, or where its line has none, how many
lines of its author came before, as a negative number; both are the same for all ranks of a job.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan

from diagnose.parse.pace import Clock, Extreme

UNKNOWN = float("nan")
Other = tuple[int | None, str | None, int | None, str]  # node, host, local rank, source
_MARKS = 12  # kinds of lines of one author whose times are kept


@dataclass(slots=True)
class Track:
    """The steps of one author: `steps` (keys) and, as long as these, seconds by part of a step.

    `marks`: lines that bear a step and a time, by what they say but for numbers: keys and ns.
    `places`: source and line of the first and the last row.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    phases: dict[str, array[float]] = field(default_factory=dict)
    marks: dict[str, tuple[array[int], array[int]]] = field(default_factory=dict)
    places: list[tuple[str, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return max([len(self.steps), *(len(steps) for steps, _ in self.marks.values())])

    def add(self, step: int, phases: Mapping[str, float], place: tuple[str, int]) -> None:
        """Take what parts of a step took; a second line of the same step adds to its row."""
        if not self.steps or self.steps[-1] != step:
            self.steps.append(step)
            for own in self.phases.values():
                own.append(UNKNOWN)
        for phase, seconds in phases.items():
            if phase not in self.phases:
                self.phases[phase] = array("d", [UNKNOWN]) * len(self.steps)
            self.phases[phase][-1] = seconds
        self.places[1:] = [place] if self.places else []
        self.places = self.places or [place]

    def mark(self, kind: str, step: int, time: int) -> None:
        """Take when a line of a kind was written."""
        if kind in self.marks or len(self.marks) < _MARKS:
            steps, times = self.marks.setdefault(kind, (array("q"), array("q")))
            steps.append(step)
            times.append(time)

    def of(self, phase: str) -> Iterator[tuple[int, float]]:
        """Keys and seconds of a part, where both are known."""
        pairs = zip(self.steps, self.phases.get(phase, ()), strict=False)
        return ((step, seconds) for step, seconds in pairs if not isnan(seconds))


@dataclass(slots=True)
class Watched:
    """A GPU that was watched: its clock in MHz, and whether hardware held it down, by sample."""

    mhz: array[float] = field(default_factory=lambda: array("d"))
    throttled: array[int] = field(default_factory=lambda: array("b"))
    used: array[float] = field(default_factory=lambda: array("d"))
    place: tuple[str, int] = ("", 0)

    def add(self, row: Clock) -> None:
        """Take a sample."""
        self.mhz.append(row.mhz)
        self.throttled.append(row.throttled)
        self.used.append(UNKNOWN if row.used is None else row.used)


@dataclass(slots=True)
class Pace:
    """What is known of the steps of a job.

    `ranks`: rank → its track; `others`: those of authors of unknown rank. `extremes`: what was
    reported of all ranks, in order, with its place. `gpus`: (host, index) → what was watched.
    """

    ranks: dict[int, Track] = field(default_factory=dict)
    others: dict[Other, Track] = field(default_factory=dict)
    extremes: list[tuple[Extreme, tuple[str, int]]] = field(default_factory=list)
    gpus: dict[tuple[str | None, int], Watched] = field(default_factory=dict)

    @property
    def tracks(self) -> Iterable[Track]:
        """All of them."""
        return [*self.ranks.values(), *self.others.values()]
