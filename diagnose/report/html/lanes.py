"""The timeline picture: a lane per rank with phases as bars and events as marks.

Everything is plain numbers and short lists, so that ten thousand ranks stay a small page: places
are counted from the picture's begin, names are numbers into lists, and the text of a mark is that
of the finding it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from diagnose.diagnosis import Diagnosis
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.events import Events
from diagnose.report.html.findings import Findings
from diagnose.report.html.lane import PHASES, Key, Lane, Printed, failures, printed
from diagnose.report.html.lane_classes import LaneClass, alone, by_host, folded
from diagnose.report.html.scrub import Scrub
from diagnose.report.html.shell import Numbers
from diagnose.report.html.states import STATES
from diagnose.timeline.event import Timeline, taken

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
    onset = _onset(diagnosis, events.begin) if events.clocked else None
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


def _onset(diagnosis: Diagnosis, begin: int) -> int | None:
    stamp = clock.parse(diagnosis.onset.time)
    return None if stamp is None else clock.milliseconds(stamp) - begin


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
