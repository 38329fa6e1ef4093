"""One lane of the timeline picture: the phases of a rank as bars, what it printed as marks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf

from diagnose.report.html.events import Events
from diagnose.timeline.event import Event, Meaning, Timeline, merged, taken

PHASES = (
    "init", "preprocessing", "model_load", "training", "evaluation", "checkpoint", "inference",
    "shutdown",
)  # fmt: skip
MARKED = ("cause", "effect", "aftermath")
MAX_BARS = 40  # phases in one lane
_NUMBER = {phase: number for number, phase in enumerate(PHASES)}

_FAILURES = ("cause", "effect")
_TELLING = (*MARKED, "phase", "progress")

# A rank, or the name of a source whose lines name none.
Key = int | str
Placed = tuple[int, Event]


@dataclass(frozen=True, slots=True)
class Printed:
    """What the lanes printed: where each begins and ends (`first`, `last`), and in the order of
    time the events that tell of phases and steps (`moves`).

    `keys` and `at` have by the index of an event whose it is and its place, counted from the
    picture's begin (None: it has none). `telling` are the sources without a rank of which a line is
    of a role that a reader looks for.
    """

    keys: Sequence[Key]
    at: Sequence[int | None]
    first: Mapping[Key, int]
    last: Mapping[Key, int]
    moves: Mapping[Key, list[Placed]]
    telling: Set[str]


@dataclass(frozen=True, slots=True)
class Failures:
    """What lanes tell of failures.

    `firsts` are the first events of each signature in each lane that are worth a mark, by their
    indexes and in the order of these; `message` is where a lane first tells of one from the onset
    on, `signatures` the causes and effects in it.
    """

    firsts: Mapping[int, str]
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
    first: dict[Key, int] = {}
    last: dict[Key, int] = {}
    indexes = timeline.column("index")
    for key, place in zip(taken(keys, indexes), taken(at, indexes), strict=True):
        if place is None:
            continue
        if key not in first:
            first[key] = last[key] = place
        elif place > last[key]:
            last[key] = place
        elif place < first[key]:
            first[key] = place
    moves: dict[Key, list[Placed]] = defaultdict(list)
    for event in timeline.kind("phase", "progress"):
        if (place := at[event.index]) is not None:
            moves[keys[event.index]].append((place, event))
    telling: set[str] = set()
    if any(isinstance(key, str) for key in first):
        shown = [e.index for e in timeline.role(*_TELLING) if at[e.index] is not None]
        telling = {key for key in taken(keys, shown) if isinstance(key, str)}
    return Printed(keys, at, first, last, moves, telling)


def failures(events: Events, own: Printed, known: Container[Key], onset: int | None) -> Failures:
    """What the `known` lanes tell of failures; messages count from the onset on."""
    keys, at = own.keys, own.at
    marked: dict[str, list[list[int]]] = defaultdict(list)
    signatures: dict[Key, set[str]] = defaultdict(set)
    message: dict[Key, int] = {}
    # A line is printed at whole seconds, its onset may be known to the millisecond.
    begin = -inf if onset is None else onset - 1000
    for meaning, of_all in _indexes(events.last_attempt):
        signature, telling = meaning.signature, meaning.role in _FAILURES
        if meaning.role not in MARKED and meaning.kind != "exit":
            continue
        indexes = [index for index in of_all if at[index] is not None and keys[index] in known]
        if signature is not None:
            marked[signature].append(indexes)
            for key in {*taken(keys, indexes)} if telling else ():
                signatures[key].add(signature)
        for index in indexes if telling or meaning.kind == "exit" else ():
            place, key = at[index], keys[index]
            if place is not None and place >= begin and events.times[index] is not None:
                message[key] = min(place, message.get(key, place))
    firsts: dict[int, str] = {}
    for signature, parts in marked.items():
        indexes = merged(parts)[::-1]
        of_lanes = dict(zip(taken(keys, indexes), indexes, strict=True))
        firsts |= dict.fromkeys(of_lanes.values(), signature)
    return Failures({index: firsts[index] for index in sorted(firsts)}, message, signatures)


def _indexes(timeline: Timeline) -> Iterator[tuple[Meaning, list[int]]]:
    """What events mean, and the indexes of these."""
    column = timeline.column("index")
    return ((meaning, taken(column, own)) for meaning, own in timeline.positions.items())
