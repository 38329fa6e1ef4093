"""One lane of the timeline picture: the phases of a rank as bars, what it printed as marks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from diagnose.timeline.event import Event

PHASES = (
    "init", "preprocessing", "model_load", "training", "evaluation", "checkpoint", "inference",
    "shutdown",
)  # fmt: skip
MARKED = ("cause", "effect", "aftermath")
MAX_BARS = 40  # phases in one lane
_NUMBER = {phase: number for number, phase in enumerate(PHASES)}

_TOLD = ("cause", "effect")
_TELLING = (*MARKED, "phase", "progress")

Placed = tuple[int, Event]


@dataclass(slots=True)
class Printed:
    """What one rank or source printed: its first and last place, and in the order of time the
    events that tell of phases and steps (`marks`) and of failures (`told`).

    `telling`: some line of it is of a role that a reader looks for.
    """

    first: int
    last: int
    telling: bool = False
    marks: list[Placed] = field(default_factory=list)
    told: list[Placed] = field(default_factory=list)

    def add(self, at: int, event: Event) -> None:
        """The next event, at this place."""
        if at > self.last:
            self.last = at
        elif at < self.first:
            self.first = at
        kind, role = event.kind, event.role
        if role in _TELLING:
            self.telling = True
        if kind in ("phase", "progress"):
            self.marks.append((at, event))
        if role in MARKED or kind == "exit":
            self.told.append((at, event))


@dataclass(frozen=True, slots=True)
class Told:
    """What a lane tells of failures.

    `firsts` are the first events of each finding that is worth a mark, `message` is where it first
    tells of one from the onset on, `signatures` are the causes and effects that it printed.
    """

    firsts: list[Placed]
    message: int | None
    signatures: frozenset[str]


@dataclass(slots=True)
class Lane:
    """One rank, or a source or host that is none; places are relative to the picture's begin.

    `bars` holds (begin, end, phase number), `marks` (place, finding, variant, source, line),
    `wait` the time between the onset and the lane's first message about it.
    """

    label: str
    rank: int | None
    host: str
    state: str
    first: int | None = None
    last: int | None = None
    step: int | None = None
    bars: list[tuple[int, int, int]] = field(default_factory=list)
    marks: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    wait: tuple[int, int] | None = None

    def fill(self, own: Printed) -> None:
        """Its extent, step and phases, by what it printed."""
        self.first, self.last = own.first, own.last
        steps = (event.step for _, event in reversed(own.marks) if event.kind == "progress")
        self.step = next((step for step in steps if step is not None), None)
        self.bars = _bars(own.marks, own.last)

    def stop(self, onset: int, until: int) -> None:
        """Let it wait from the onset on; a phase that was cut short does not go on behind it."""
        self.wait = (onset, until)
        self.bars = [
            (begin, min(end, onset) if begin <= onset else end, number)
            for begin, end, number in self.bars
        ]


def _bars(marks: Iterable[Placed], last: int) -> list[tuple[int, int, int]]:
    """Bars from one phase marker of a lane to the next, or to the lane's end."""
    bars: list[tuple[int, int, int]] = []
    begin, running = 0, -1
    for at, event in marks:
        number = _NUMBER.get(event.phase or "", -1)
        if number < 0 or (number != running if event.ends_phase else number == running):
            continue
        if running >= 0:
            bars.append((begin, at, running))
        begin, running = at, -1 if event.ends_phase else number
    if running >= 0:
        bars.append((begin, last, running))
    return bars[:MAX_BARS]


def failures(told: Iterable[Placed], onset: int | None) -> Told:
    """What a lane tells of failures; messages count from the onset on."""
    firsts: dict[str, Placed] = {}
    signatures: set[str] = set()
    messages: list[int] = []
    # A line is printed at whole seconds, its onset may be known to the millisecond.
    begin = None if onset is None else onset - 1000
    for one in told:
        at, event = one
        signature, telling = event.signature, event.role in _TOLD
        if signature is not None:
            firsts.setdefault(signature, one)
            if telling:
                signatures.add(signature)
        counts = begin is not None and at >= begin and event.time is not None
        if counts and (telling or event.kind == "exit"):
            messages.append(at)
    return Told([*firsts.values()], min(messages, default=None), frozenset(signatures))
