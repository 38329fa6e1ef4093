"""The timeline picture: a lane per rank with phases as bars and events as marks.

Everything is plain numbers and short lists, so that ten thousand ranks stay a small page: places
are counted from the picture's begin, names are numbers into lists, and the text of a mark is that
of the finding it belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Any

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog
from diagnose.cost import moment as parse
from diagnose.diagnosis import Diagnosis
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.clock import Events
from diagnose.report.html.ranks import STATES
from diagnose.report.html.shell import Numbers
from diagnose.report.html.tables import Findings
from diagnose.report.safe import Scrub
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Event, Timeline, merged, taken

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
    column = events.last_attempt.column("index")
    for meaning, positions in events.last_attempt.positions.items():
        signature, telling = meaning.signature, meaning.role in _FAILURES
        if meaning.role not in MARKED and meaning.kind != "exit":
            continue
        own_ = taken(column, positions)
        indexes = [index for index in own_ if at[index] is not None and keys[index] in known]
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


# --- lanes of many ranks folded into classes of ranks that look alike -----------------------------

MAX_CLASSES = 40


@dataclass(frozen=True, slots=True)
class LaneClass:
    """Ranks that look alike: lanes `begin` to `end` (exclusive)."""

    label: str
    state: str
    ranks: list[int]
    begin: int
    end: int
    step: str
    phase: str


def folded(
    lanes: list[Lane], signatures: Mapping[Key, Set[str]]
) -> tuple[list[Lane], list[LaneClass]]:
    """Lanes of ranks sorted into classes of those that look alike, the odd ones first.

    `signatures` are those of the causes and effects that each rank printed.
    """
    # What makes ranks alike, the coarsest first; the finer ones are dropped if need be.
    keys = [
        (
            lane.state, tuple(sorted(signatures.get(lane.rank or 0, ()))),
            lane.bars[-1][2] if lane.bars else -1, lane.step,
        )
        for lane in lanes
    ]  # fmt: skip
    groups: dict[Any, list[Lane]] = {}
    for level in range(4):
        groups = {}
        for lane, key in zip(lanes, keys, strict=True):
            groups.setdefault(key[: 4 - level], []).append(lane)
        if len(groups) <= MAX_CLASSES:
            break
    importance = {state: index for index, state in enumerate(STATES)}
    ordered: list[Lane] = []
    classes = []
    for members in sorted(
        groups.values(),
        key=lambda m: (importance[m[0].state], len(m), min(lane.rank or 0 for lane in m)),
    ):
        begin = len(ordered)
        ordered += by_host(members)
        numbers = sorted(lane.rank for lane in members if lane.rank is not None)
        classes.append(_class(members, ranks_phrase(numbers), numbers, begin))
    return ordered, classes


def by_host(lanes: Iterable[Lane]) -> list[Lane]:
    """In the order of hosts, and of ranks on each."""
    return sorted(lanes, key=lambda lane: (lane.host, lane.rank or 0))


def _class(members: list[Lane], label: str, ranks: list[int], begin: int) -> LaneClass:
    last = {lane.bars[-1][2] for lane in members if lane.bars}
    phase = words.phase(PHASES[last.pop()]) if len(last) == 1 else ""
    steps = [lane.step for lane in members if lane.step is not None]
    reach = dict.fromkeys(f"{step:,}" for step in (min(steps), max(steps))) if steps else ()
    end = begin + len(members)
    return LaneClass(label, members[0].state, ranks, begin, end, "–".join(reach), phase)


# --- the picture ----------------------------------------------------------------------------------

FOLD = 64  # more ranks than this are folded into classes
MAX_OTHERS = 8  # lanes of sources or hosts that are no rank
MAX_MARKS = 60_000
BEFORE = 3  # how much of the time before the onset is shown at first, in lengths of the hang
_WAITING = frozenset({"waiting", "culprit", "missing"})


@dataclass(frozen=True, slots=True)
class Lanes:
    """The picture: lanes in drawing order, classes over them (none: few enough to show all)."""

    lanes: list[Lane]
    classes: list[LaneClass]
    sources: list[str]
    onset: int | None
    first_message: int | None
    view: tuple[int, int]


def lanes(
    events: Events,
    diagnosis: Diagnosis,
    found: Findings,
    states: dict[int, str],
    hosts: Mapping[int, str],
    scrub: Scrub,
) -> Lanes | None:
    """Lay out the picture; None when no event has a place, or none has anything to show."""
    if events.begin is None or events.end is None:
        return None
    own = printed(events, events.begin)
    made: dict[Key, Lane] = {
        rank: Lane(f"rank {rank}", rank, hosts.get(rank, ""), state)
        for rank, state in states.items()
    }
    for name in _others(own):
        made[name] = Lane(scrub.text(name, 120), None, "", "seen")
    stamp = parse(diagnosis.onset.time) if events.clocked else None
    onset = None if stamp is None else clock.milliseconds(stamp) - events.begin
    for key in made.keys() & own.first.keys():
        made[key].fill(own.first[key], own.last[key], own.moves.get(key, ()))
    failed = failures(events, own, made, onset)
    sources = _marks(made, failed.firsts, own, events.timeline, found)
    first_message = _waits(made, failed.message, onset) if onset is not None else None
    if not any(lane.bars or lane.marks or lane.wait or lane.step for lane in made.values()):
        return None
    ranks = [lane for lane in made.values() if lane.rank is not None]
    ordered, classes = (
        folded(ranks, failed.signatures) if len(ranks) > FOLD else (by_host(ranks), [])
    )
    ordered += [lane for lane in made.values() if lane.rank is None]
    return Lanes(
        ordered,
        classes,
        [scrub.text(name, 300) for name in sources],
        onset,
        first_message,
        _view(ordered, events.end - events.begin, onset),
    )


def to_json(picture: Lanes, events: Events, diagnosis: Diagnosis) -> dict[str, Any]:
    """What the script draws; columns instead of objects, because there may be many lanes."""
    hosts = sorted({lane.host for lane in picture.lanes})
    number = {host: index for index, host in enumerate(hosts)}
    names = list(STATES)
    return {
        "clocked": events.clocked,
        "begin": events.begin,
        "onset": picture.onset,
        "message": picture.first_message,
        "blame": words.culprit_kind(diagnosis) or "to blame",
        "view": list(picture.view),
        "phases": [words.phase(phase) for phase in PHASES],
        "states": names,
        "hosts": hosts,
        "sources": picture.sources,
        "label": [lane.label if lane.rank is None else lane.rank for lane in picture.lanes],
        "host": Numbers(number[lane.host] for lane in picture.lanes),
        "state": Numbers(names.index(lane.state) for lane in picture.lanes),
        "span": Numbers([lane.first, lane.last] for lane in picture.lanes),
        "step": Numbers(lane.step for lane in picture.lanes),
        "bars": Numbers([*chain.from_iterable(lane.bars)] for lane in picture.lanes),
        "wait": Numbers(lane.wait and [*lane.wait] for lane in picture.lanes),
        "marks": Numbers([*chain.from_iterable(lane.marks)] for lane in picture.lanes),
        "classes": [
            {
                "label": kind.label,
                "state": names.index(kind.state),
                "begin": kind.begin,
                "end": kind.end,
            }
            for kind in picture.classes
        ],
    }


def _others(own: Printed) -> list[str]:
    """Sources whose lines name no rank, those with something to tell."""
    names = own.telling
    if not names and not any(isinstance(key, int) for key in own.first):
        names = {str(key) for key in own.first}
    return sorted(names)[:MAX_OTHERS]


def _marks(
    made: Mapping[Key, Lane],
    marks: Mapping[int, str],
    own: Printed,
    timeline: Timeline,
    found: Findings,
) -> list[str]:
    """The first line of each signature in each lane; gives the list of source names used."""
    if len(marks) > MAX_MARKS:
        role = {index: timeline.events[index].role for index in marks}
        marks = {index: id_ for index, id_ in marks.items() if role[index] != "aftermath"}
    most = max(1, MAX_MARKS // len({*taken(own.keys, [*marks])})) if marks else 0
    sources, lines = timeline.column("source"), timeline.column("line")
    number: dict[str, int] = {}
    for index, signature in marks.items():
        drawn = made[own.keys[index]].marks
        if len(marks) <= MAX_MARKS or len(drawn) < most:
            source = number.setdefault(sources[index], len(number))
            at = own.at[index] or 0
            drawn.append((at, *found.of(signature, index), source, lines[index]))
    return [*number]


def _waits(made: Mapping[Key, Lane], first: Mapping[Key, int], onset: int) -> int | None:
    """Mark who stood still from the onset on; gives the place of the first message after it.

    `first` is that of each lane.
    """
    message = min(first.values(), default=None)
    end = max((lane.last for lane in made.values() if lane.last is not None), default=onset)
    for key, lane in made.items():
        if lane.rank is None or lane.state not in _WAITING:
            continue
        until = first.get(key, end)
        if lane.state in ("culprit", "missing") and key not in first and message is not None:
            until = message
        if until > onset:
            lane.stop(onset, until)
    return message


def table(picture: Lanes) -> list[LaneClass]:
    """The picture as a table: its classes, or each rank as one of its own."""
    if picture.classes:
        return picture.classes
    return [
        _class([lane], lane.label, [lane.rank], number)
        for number, lane in enumerate(picture.lanes)
        if lane.rank is not None
    ]


def _view(ordered: list[Lane], end: int, onset: int | None) -> tuple[int, int]:
    """What to show at first: the job's own time, without a kernel log that began days before."""
    spans = [(lane.first, lane.last) for lane in ordered if lane.rank is not None]
    firsts = [first for first, _ in spans if first is not None]
    lasts = [last for _, last in spans if last is not None]
    if not firsts or not lasts:
        return 0, max(end, 1)
    first, last = min(firsts), max(lasts)
    if onset is not None:
        first = min(first, max(onset, 0))
    # A launcher's last words belong to it if they came soon.
    last = min(end, last + (last - first) // 10)
    if onset is not None and first < onset < last:
        # Of a job that ran for days before it stood still for minutes, not only the days.
        first = max(first, onset - BEFORE * (last - onset))
    span = max(last - first, 1)
    return max(0, first - span // 20), last + max(1, span // 60)


# --- progress: steps over time, per rank or per group of ranks that went alike --------------------

MAX_COUNTERS = 6
MAX_LINES = 24  # of one counter
MAX_POINTS = 400  # of one line


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the picture: [place, step] pairs; `culprit` if a rank of it is to blame."""

    name: str
    last: int
    culprit: bool
    points: list[list[int]]


@dataclass(frozen=True, slots=True)
class Counter:
    """A thing that was counted (training steps, a bar's items) and who had come how far."""

    title: str
    lines: list[Line]
    more: int


def counters(events: Events, catalog: Catalog, culprits: list[int], scrub: Scrub) -> list[Counter]:
    """What the job counted, the counter of most ranks and lines first; with two points or more."""
    counted: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events.last_attempt.kind("progress"):
        if event.work.step is not None and events.at[event.index] is not None:
            what = event.fields.get("what") or event.fields.get("total") or ""
            counted[event.meaning.signature or "", what].append(event)
    found = []
    for (id_, what), own in counted.items():
        lines = _lines(own, events, set(culprits))
        if not any(len(line.points) > 1 for line in lines):
            continue
        entry = entry_of(catalog, id_)
        title = (entry.title if entry else id_) + (f" ({what})" if what else "")
        size = (len({event.rank for event in own} - {None}), len(own))
        kept = Counter(scrub.text(title, 120), lines[:MAX_LINES], max(0, len(lines) - MAX_LINES))
        found.append((size, kept))
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [counter for _, counter in found[:MAX_COUNTERS]]


def counters_json(found: list[Counter]) -> list[dict[str, Any]]:
    """What the script draws."""
    return [
        {
            "title": counter.title,
            "lines": [
                {"name": line.name, "culprit": line.culprit, "points": line.points}
                for line in counter.lines
            ],
        }
        for counter in found
    ]


def _lines(counted: list[Event], events: Events, culprits: set[int]) -> list[Line]:
    """One line per way of going; to blame first, then the farthest behind."""
    # Lines that name no rank count by their source.
    walkers: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in counted:
        rank = -1 if event.rank is None else event.rank
        walkers[rank, event.source if rank < 0 else ""].append(event)

    def point(event: Event) -> list[int]:
        return [(events.at[event.index] or 0) - (events.begin or 0), event.step or 0]

    alike: dict[tuple[bool, int, int], list[int]] = {}
    longest: dict[tuple[bool, int, int], list[Event]] = {}
    for (rank, _), own in sorted(walkers.items(), key=lambda walker: walker[0]):
        place, step = point(own[-1])
        # Ranks that came equally far at about the same time make one line. Steps are known in
        # samples only: the rank with most of them stands for all.
        way = (rank in culprits, step, round(place / 5000))
        alike.setdefault(way, []).extend([rank] if rank >= 0 else [])
        if len(own) > len(longest.get(way, ())):
            longest[way] = own
    found = []
    for way, ranks in alike.items():
        name = ranks_phrase(ranks) if ranks else "the job"
        found.append(Line(name, way[1], way[0], _thinned([*map(point, longest[way])])))
    return sorted(found, key=lambda line: (not line.culprit, line.last, line.name))


def _thinned(points: list[list[int]]) -> list[list[int]]:
    """At most MAX_POINTS of them, evenly, the first and the last included."""
    if len(points) <= MAX_POINTS:
        return points
    pace = (len(points) - 1) / (MAX_POINTS - 1)
    return [*(points[int(number * pace)] for number in range(MAX_POINTS - 1)), points[-1]]
