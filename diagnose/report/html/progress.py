"""The progress picture: steps over time, per rank or per group of ranks that went alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog
from diagnose.report.html.events import Events
from diagnose.report.html.scrub import Scrub
from diagnose.text.ranks import ranks_phrase

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
    frame = events.last_attempt
    rows = frame[(frame["kind"] == "progress") & frame["step"].notna() & frame["at"].notna()]
    if rows.empty:
        return []
    rows = rows.assign(at=rows["at"].astype("int64") - (events.begin or 0))
    bars = [f.get("what") or f.get("total") or "" for f in rows["fields"]]
    found = []
    for (id_, what), mine in rows.groupby([rows["signature"].astype(str), bars], sort=False):
        lines = _lines(mine, set(culprits))
        if not any(len(line.points) > 1 for line in lines):
            continue
        entry = entry_of(catalog, str(id_))
        title = (entry.title if entry else str(id_)) + (f" ({what})" if what else "")
        size = (mine["rank"].nunique(), len(mine))
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


def _lines(rows: pd.DataFrame, culprits: set[int]) -> list[Line]:
    """One line per way of going; to blame first, then the farthest behind."""
    alike: dict[tuple[Any, ...], list[int | None]] = {}
    points: dict[tuple[Any, ...], tuple[np.ndarray, np.ndarray]] = {}
    all_steps = rows["step"].astype("int64").to_numpy()
    all_places = rows["at"].to_numpy()
    # Lines that name no rank count by their source, as negative numbers.
    nobody = -1 - rows["source"].cat.codes.astype("int64")
    ranks = rows["rank"].astype("Int64").fillna(nobody).astype("int64").to_numpy()
    order = np.argsort(ranks, kind="stable")
    cuts = np.flatnonzero(np.diff(ranks[order])) + 1
    for mine in np.split(order, cuts):
        rank = int(ranks[mine[0]]) if ranks[mine[0]] >= 0 else None
        steps, places = all_steps[mine], all_places[mine]
        blame = rank in culprits
        # Ranks that came equally far at about the same time make one line. Steps are known in
        # samples only: the rank with most of them stands for all.
        way = (blame, int(steps[-1]), round(int(places[-1]) / 5000))
        alike.setdefault(way, []).append(rank)
        if way not in points or len(steps) > len(points[way][0]):
            points[way] = (steps, places)
    found = []
    for way, members in alike.items():
        named = sorted(rank for rank in members if rank is not None)
        name = ranks_phrase(named) if named else "the job"
        steps, places = points[way]
        found.append(Line(name, way[1], way[0], _thinned(places, steps)))
    return sorted(found, key=lambda line: (not line.culprit, line.last, line.name))


def _thinned(places: np.ndarray, steps: np.ndarray) -> list[list[int]]:
    if len(places) > MAX_POINTS:
        keep = np.unique(np.linspace(0, len(places) - 1, MAX_POINTS).astype(int))
        places, steps = places[keep], steps[keep]
    return [[int(place), int(step)] for place, step in zip(places, steps, strict=True)]
