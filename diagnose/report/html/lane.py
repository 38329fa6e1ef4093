"""One lane of the timeline picture: the phases of a rank as bars, what it printed as marks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf

from diagnose.report.html.events import Events
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

# A rank, or the name of a source whose lines name none.
Key = int | str
Placed = tuple[int, Event]


@dataclass(frozen=True, slots=True)
class Printed:
    """What the lanes printed: where each begins and ends (`first`, `last`), and in the order of
    time the events that tell of phases and steps (`moves`) and of failures (`told`).

    `telling` are the sources without a rank of which a line is of a role that a reader looks for.
    """

    first: Mapping[Key, int]
    last: Mapping[Key, int]
    moves: Mapping[Key, list[Placed]]
    told: Sequence[tuple[Key, int, Event]]
    telling: Set[str]


@dataclass(frozen=True, slots=True)
class Told:
    """What lanes tell of failures, in the order of time.

    `firsts` are the first events of each finding in each lane that are worth a mark, `message` is
    where a lane first tells of one from the onset on, `signatures` the causes and effects in it.
    """

    firsts: list[tuple[Key, int, Event]]
    message: Mapping[Key, int]
    signatures: Mapping[Key, Set[str]]


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

    def fill(self, first: int, last: int, moves: Sequence[Placed]) -> None:
        """Its extent, step and phases, by what it printed."""
        self.first, self.last = first, last
        for _, event in reversed(moves):
            if event.kind == "progress" and event.step is not None:
                self.step = event.step
                break
        self.bars = _bars(moves, last)

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


def printed(events: Events, begin: int) -> Printed:
    """What the events that have a place tell, by who printed them; places from `begin` on."""
    timeline = events.last_attempt
    keys = [
        source if rank is None else rank
        for rank, source in zip(events.ranks, events.sources, strict=True)
    ]
    at = [None if place is None else place - begin for place in events.at]

    def placed(some: Iterable[Event]) -> Iterator[tuple[Key, int, Event]]:
        for event in some:
            index = event.index
            place = at[index]
            if place is not None:
                yield keys[index], place, event

    first: dict[Key, int] = {}
    last: dict[Key, int] = {}
    whole = timeline is events.timeline
    indexes: Iterable[int] = range(len(at)) if whole else [event.index for event in timeline]
    for index in indexes:
        key, place = keys[index], at[index]
        if place is not None:
            if place > last.setdefault(key, place):
                last[key] = place
            if place < first.setdefault(key, place):
                first[key] = place
    moves: dict[Key, list[Placed]] = defaultdict(list)
    for key, place, event in placed(timeline.kind("phase", "progress")):
        moves[key].append((place, event))
    told = timeline.where(lambda alike: alike.role in MARKED or alike.kind == "exit")
    telling: set[str] = set()
    if any(isinstance(key, str) for key in first):
        telling = {key for key, _, _ in placed(timeline.role(*_TELLING)) if isinstance(key, str)}
    return Printed(first, last, moves, [*placed(told)], telling)


def failures(told: Iterable[tuple[Key, int, Event]], onset: int | None) -> Told:
    """What lanes tell of failures; messages count from the onset on."""
    firsts: dict[tuple[Key, str], tuple[Key, int, Event]] = {}
    signatures: dict[Key, set[str]] = defaultdict(set)
    message: dict[Key, int] = {}
    # A line is printed at whole seconds, its onset may be known to the millisecond.
    begin = inf if onset is None else onset - 1000
    for one in told:
        key, at, event = one
        signature, telling = event.signature, event.role in _TOLD
        if signature is not None:
            firsts.setdefault((key, signature), one)
            if telling:
                signatures[key].add(signature)
        if at >= begin and event.time is not None and (telling or event.kind == "exit"):
            message[key] = min(at, message.get(key, at))
    return Told([*firsts.values()], message, signatures)
