"""The timeline picture: a lane per rank with phases as bars and events as marks.

Everything is plain numbers and short lists, so that ten thousand ranks stay a small page: places
are counted from the picture's begin, names are numbers into lists, and the text of a mark is that
of the finding it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.diagnosis import Diagnosis
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.events import Events
from diagnose.report.html.findings import Findings
from diagnose.report.html.lane import PHASES, Lane, Placed, Printed, Told, failures
from diagnose.report.html.lane_classes import LaneClass, alone, by_host, folded
from diagnose.report.html.scrub import Scrub
from diagnose.report.html.states import STATES

FOLD = 64  # more ranks than this are folded into classes
MAX_OTHERS = 8  # lanes of sources or hosts that are no rank
MAX_MARKS = 60_000
BEFORE = 3  # how much of the time before the onset is shown at first, in lengths of the hang
_WAITING = frozenset({"waiting", "culprit", "missing"})

# A rank, or the name of a source whose lines name none.
Key = int | str


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
    printed = _by_lane(events, events.begin)
    made: dict[Key, Lane] = {
        rank: Lane(f"rank {rank}", rank, hosts.get(rank, ""), state)
        for rank, state in states.items()
    }
    for name in _others(printed):
        made[name] = Lane(scrub.text(name, 120), None, "", "seen")
    onset = _onset(diagnosis, events.begin) if events.clocked else None
    told: dict[Key, Told] = {}
    for key, own in printed.items():
        if key in made:
            made[key].fill(own)
            told[key] = failures(own.told, onset)
    sources = _marks(made, told, found)
    first_message = _waits(made, told, onset) if onset is not None else None
    if not any(lane.bars or lane.marks or lane.wait or lane.step for lane in made.values()):
        return None
    ranks = [lane for lane in made.values() if lane.rank is not None]
    ordered, classes = folded(ranks, _said(told)) if len(ranks) > FOLD else (by_host(ranks), [])
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
        "blame": words.KINDS[diagnosis.culprits.kind] if diagnosis.culprits.kind else "to blame",
        "view": list(picture.view),
        "phases": [words.phase(phase) for phase in PHASES],
        "states": names,
        "hosts": hosts,
        "sources": picture.sources,
        "label": [lane.label if lane.rank is None else lane.rank for lane in picture.lanes],
        "host": [number[lane.host] for lane in picture.lanes],
        "state": [names.index(lane.state) for lane in picture.lanes],
        "span": [[lane.first, lane.last] for lane in picture.lanes],
        "step": [lane.step for lane in picture.lanes],
        "bars": [[place for bar in lane.bars for place in bar] for lane in picture.lanes],
        "wait": [lane.wait for lane in picture.lanes],
        "marks": [[place for mark in lane.marks for place in mark] for lane in picture.lanes],
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


def _by_lane(events: Events, begin: int) -> dict[Key, Printed]:
    """What the events that have a place tell, by who printed them."""
    printed: dict[Key, Printed] = {}
    for event in events.last_attempt:
        at = events.at[event.index]
        if at is not None:
            key = event.source if event.rank is None else event.rank
            own = printed.get(key)
            if own is None:
                own = printed[key] = Printed(at - begin, at - begin)
            own.add(at - begin, event)
    return printed


def _others(printed: Mapping[Key, Printed]) -> list[str]:
    """Sources whose lines name no rank, those with something to tell."""
    rankless = {key: own for key, own in printed.items() if isinstance(key, str)}
    names = [key for key, own in rankless.items() if own.telling]
    if not names and len(rankless) == len(printed):
        names = list(rankless)
    return sorted(names)[:MAX_OTHERS]


def _marks(made: Mapping[Key, Lane], told: Mapping[Key, Told], found: Findings) -> list[str]:
    """The first line of each finding in each lane; gives the list of source names used."""
    marks = {key: own.firsts for key, own in told.items() if own.firsts}
    if _many(marks):
        marks = {key: [m for m in own if m[1].role != "aftermath"] for key, own in marks.items()}
    if _many(marks):
        each = max(1, MAX_MARKS // sum(map(bool, marks.values())))
        marks = {key: own[:each] for key, own in marks.items()}
    first: dict[str, int] = {}
    for own in marks.values():
        for _, event in own:
            first[event.source] = min(event.index, first.get(event.source, event.index))
    names = sorted(first, key=lambda name: first[name])
    number = {name: index for index, name in enumerate(names)}
    for key, own in marks.items():
        made[key].marks = [
            (at, *found.of_event(event), number[event.source], event.line) for at, event in own
        ]
    return names


def _many(marks: Mapping[Key, list[Placed]]) -> bool:
    return sum(map(len, marks.values())) > MAX_MARKS


def _said(told: Mapping[Key, Told]) -> dict[int, frozenset[str]]:
    """The causes and effects that each rank printed."""
    return {rank: own.signatures for rank, own in told.items() if isinstance(rank, int)}


def _onset(diagnosis: Diagnosis, begin: int) -> int | None:
    stamp = clock.parse(diagnosis.onset.time)
    return None if stamp is None else clock.milliseconds(stamp) - begin


def _waits(made: Mapping[Key, Lane], told: Mapping[Key, Told], onset: int) -> int | None:
    """Mark who stood still from the onset on; gives the place of the first message after it."""
    first = {key: own.message for key, own in told.items() if own.message is not None}
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
    lanes = enumerate(picture.lanes)
    return [alone(lane, number) for number, lane in lanes if lane.rank is not None]


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
