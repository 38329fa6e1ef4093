"""One lane of the timeline picture: the phases of a rank as bars, what it printed as marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

Placed = tuple[int, Event]


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

    def fill(self, own: Sequence[Placed]) -> None:
        """Its extent, step and phases, by its events in the order of time."""
        places = [at for at, _ in own]
        self.first, self.last = min(places), max(places)
        marks = [(at, event) for at, event in own if event.kind in ("phase", "progress")]
        steps = (event.step for _, event in reversed(marks) if event.kind == "progress")
        self.step = next((step for step in steps if step is not None), None)
        self.bars = _bars(marks, self.last)

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


def failures(own: Iterable[Placed], onset: int | None) -> Told:
    """What a lane tells of failures; messages count from the onset on."""
    told = [one for one in own if one[1].role in MARKED or one[1].kind == "exit"]
    firsts: dict[str, Placed] = {}
    for one in told:
        if one[1].signature is not None:
            firsts.setdefault(one[1].signature, one)
    # A line is printed at whole seconds, its onset may be known to the millisecond.
    messages = [
        at
        for at, event in told
        if onset is not None
        and at >= onset - 1000
        and event.time is not None
        and (event.role in _TOLD or event.kind == "exit")
    ]
    return Told(
        list(firsts.values()),
        min(messages, default=None),
        frozenset([e.signature for _, e in told if e.role in _TOLD and e.signature]),
    )
