"""The progress picture: steps over time, per rank or per group of ranks that went alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog
from diagnose.report.html.events import Events
from diagnose.report.html.scrub import Scrub
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Event

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
    counted: dict[tuple[str, str], list[Event]] = {}
    for event in events.last_attempt.kind("progress"):
        if event.step is not None and events.at[event.index] is not None:
            what = event.fields.get("what") or event.fields.get("total") or ""
            counted.setdefault((event.signature or "", what), []).append(event)
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


def to_json(found: list[Counter]) -> list[dict[str, Any]]:
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
    walkers: dict[tuple[int, str], list[list[int]]] = {}
    for event in counted:
        rank = -1 if event.rank is None else event.rank
        walker = (rank, event.source if rank < 0 else "")
        point = [(events.at[event.index] or 0) - (events.begin or 0), event.step or 0]
        walkers.setdefault(walker, []).append(point)
    alike: dict[tuple[bool, int, int], list[int]] = {}
    points: dict[tuple[bool, int, int], list[list[int]]] = {}
    for (rank, _), own in sorted(walkers.items(), key=lambda walker: walker[0]):
        place, step = own[-1]
        # Ranks that came equally far at about the same time make one line. Steps are known in
        # samples only: the rank with most of them stands for all.
        way = (rank in culprits, step, round(place / 5000))
        alike.setdefault(way, []).extend([rank] if rank >= 0 else [])
        if len(own) > len(points.get(way, ())):
            points[way] = own
    found = []
    for way, ranks in alike.items():
        name = ranks_phrase(ranks) if ranks else "the job"
        found.append(Line(name, way[1], way[0], _thinned(points[way])))
    return sorted(found, key=lambda line: (not line.culprit, line.last, line.name))


def _thinned(points: list[list[int]]) -> list[list[int]]:
    """At most MAX_POINTS of them, evenly, the first and the last included."""
    if len(points) <= MAX_POINTS:
        return points
    pace = (len(points) - 1) / (MAX_POINTS - 1)
    return [*(points[int(number * pace)] for number in range(MAX_POINTS - 1)), points[-1]]
