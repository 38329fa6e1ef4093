"""The timeline picture: a lane per rank with phases as bars and events as marks.

Everything is plain numbers and short lists, so that ten thousand ranks stay a small page: places
are counted from the picture's begin, names are numbers into lists, and the text of a mark is that
of the finding it belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from diagnose.diagnosis import Diagnosis
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.events import Events
from diagnose.report.html.findings import Findings
from diagnose.report.html.scrub import Scrub
from diagnose.report.html.states import STATES
from diagnose.text.ranks import ranks_phrase

FOLD = 64  # more ranks than this are folded into classes
MAX_CLASSES = 40
MAX_OTHERS = 8  # lanes of sources or hosts that are no rank
MAX_MARKS = 60_000
MAX_BARS = 40  # phases in one lane
PHASES = (
    "init", "preprocessing", "model_load", "training", "evaluation", "checkpoint", "inference",
    "shutdown",
)  # fmt: skip
BEFORE = 3  # how much of the time before the onset is shown at first, in lengths of the hang
_MARKED = ("cause", "effect", "aftermath")
_WAITING = frozenset({"waiting", "culprit", "missing"})


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
    hosts: dict[int, str],
    scrub: Scrub,
) -> Lanes | None:
    """Lay out the picture; None when no row has a place, or none has anything to show."""
    if events.begin is None or events.end is None:
        return None
    frame = events.last_attempt
    frame = frame[frame["at"].notna()].copy()
    frame["at"] = (frame["at"] - events.begin).astype("int64")
    made = {
        rank: Lane(f"rank {rank}", rank, hosts.get(rank, ""), state)
        for rank, state in states.items()
    }
    key = frame["rank"].astype("object").where(frame["rank"].notna(), None)
    others = _others(frame, scrub)
    outside = frame["rank"].isna()
    key[outside] = frame.loc[outside, "source"].astype("object")
    for name, lane in others.items():
        made[name] = lane  # type: ignore[index]
    known = frame[key.isin(list(made))].assign(lane=key)
    _extent(made, known)
    _phases(made, known)
    sources = _marks(made, known, found)
    onset = _onset(diagnosis, events)
    first_message = _waits(made, known, onset)
    if not any(lane.bars or lane.marks or lane.wait or lane.step for lane in made.values()):
        return None
    ranks = [lane for lane in made.values() if lane.rank is not None]
    ordered, classes = _folded(ranks, known) if len(ranks) > FOLD else (_by_host(ranks), [])
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


def _others(frame: pd.DataFrame, scrub: Scrub) -> dict[str, Lane]:
    """Lanes for sources whose lines name no rank, those with most to tell."""
    rows = frame[frame["rank"].isna()]
    telling = rows[rows["role"].isin([*_MARKED, "phase", "progress"])]
    counted = telling["source"].astype(str).value_counts()
    names = sorted(name for name, count in counted.items() if count)[:MAX_OTHERS]
    if frame["rank"].isna().all() and not names:
        names = sorted(str(name) for name in rows["source"].dropna().unique())[:MAX_OTHERS]
    return {name: Lane(scrub.text(name, 120), None, "", "seen") for name in names}


def _extent(made: dict[int, Lane], known: pd.DataFrame) -> None:
    spans = known.groupby("lane", sort=False)["at"].agg(["min", "max"])
    for key, first, last in zip(spans.index, spans["min"], spans["max"], strict=True):
        made[key].first, made[key].last = int(first), int(last)
    steps = known.loc[known["step"].notna() & (known["kind"] == "progress"), ["lane", "step"]]
    for key, step in steps.groupby("lane", sort=False)["step"].last().items():
        made[key].step = int(step)


def _phases(made: dict[int, Lane], known: pd.DataFrame) -> None:
    """Bars from one phase marker of a lane to the next, or to the lane's end."""
    rows = known[known["phase"].notna() & known["kind"].isin(["phase", "progress"])]
    runs: dict[Any, list[list[int]]] = defaultdict(list)
    columns = (rows["lane"], rows["at"], rows["phase"].astype(str), rows["ends_phase"])
    for key, at, phase, ends in zip(*columns, strict=True):
        number = PHASES.index(phase) if phase in PHASES else -1
        bars = runs[key]
        if number < 0:
            continue
        if ends:
            if bars and bars[-1][1] < 0 and bars[-1][2] == number:
                bars[-1][1] = at
            continue
        if bars and bars[-1][1] < 0:
            if bars[-1][2] == number:
                continue
            bars[-1][1] = at
        bars.append([at, -1, number])
    for key, bars in runs.items():
        last = made[key].last or 0
        closed = [(begin, last if end < 0 else end, number) for begin, end, number in bars]
        made[key].bars = closed[:MAX_BARS]


def _marks(made: dict[int, Lane], known: pd.DataFrame, found: Findings) -> list[str]:
    """The first line of each finding in each lane; gives the list of source names used."""
    rows = known[known["signature"].notna()]
    rows = rows[rows["role"].isin(_MARKED) | (rows["kind"] == "exit")]
    rows = rows.drop_duplicates(["lane", "signature"])
    if len(rows) > MAX_MARKS:
        rows = rows[rows["role"] != "aftermath"]
    if len(rows) > MAX_MARKS:
        each = max(1, MAX_MARKS // max(1, rows["lane"].nunique()))
        rows = rows.groupby("lane", sort=False).head(each)
    codes, names = pd.factorize(rows["source"].astype(str))
    places = found.of_row.loc[rows.index]
    columns = (
        rows["lane"],
        rows["at"].tolist(),
        places["finding"].tolist(),
        places["variant"].tolist(),
        codes.tolist(),
        rows["line"].tolist(),
    )
    for key, *mark in zip(*columns, strict=True):
        made[key].marks.append((mark[0], mark[1], mark[2], mark[3], mark[4]))
    return [str(name) for name in names]


def _onset(diagnosis: Diagnosis, events: Events) -> int | None:
    stamp = clock.parse(diagnosis.onset.time)
    if stamp is None or not events.clocked or events.begin is None:
        return None
    return clock.milliseconds(stamp) - events.begin


def _waits(made: dict[int, Lane], known: pd.DataFrame, onset: int | None) -> int | None:
    """Mark who stood still from the onset on; gives the place of the first message after it."""
    if onset is None:
        return None
    told = known["role"].isin(["cause", "effect"]) | (known["kind"] == "exit").fillna(False)
    # A line is printed at whole seconds, its onset may be known to the millisecond.
    rows = known[told & (known["at"] >= onset - 1000) & ~known["guessed"]]
    first = rows.groupby("lane", sort=False)["at"].min()
    end = int(known["at"].max()) if len(known) else onset
    for key, lane in made.items():
        if lane.rank is None or lane.state not in _WAITING:
            continue
        until = int(first.get(key, end))
        if lane.state in ("culprit", "missing") and key not in first.index:
            until = int(first.min()) if len(first) else end
        if until > onset:
            lane.wait = (onset, until)
            # A phase that was cut short by the wait does not go on behind it.
            lane.bars = [
                (bar[0], min(bar[1], onset) if bar[0] <= onset else bar[1], bar[2])
                for bar in lane.bars
            ]
    return int(first.min()) if len(first) else None


def _by_host(ranks: list[Lane]) -> list[Lane]:
    return sorted(ranks, key=lambda lane: (lane.host, lane.rank or 0))


def _folded(ranks: list[Lane], known: pd.DataFrame) -> tuple[list[Lane], list[LaneClass]]:
    """Lanes sorted into classes of ranks that look alike, the odd ones first."""
    rows = known[known["role"].isin(["cause", "effect"]) & known["rank"].notna()]
    said: dict[int, set[str]] = defaultdict(set)
    for rank, id_ in zip(rows["rank"].tolist(), rows["signature"].astype(str), strict=True):
        said[rank].add(id_)
    keys = {id(lane): _keys(lane, said.get(lane.rank or 0, set())) for lane in ranks}
    groups: dict[Any, list[Lane]] = {}
    for level in range(4):
        groups = {}
        for lane in ranks:
            groups.setdefault(keys[id(lane)][: 4 - level], []).append(lane)
        if len(groups) <= MAX_CLASSES:
            break
    importance = {state: index for index, state in enumerate(STATES)}
    ordered: list[Lane] = []
    classes = []
    for members in sorted(
        groups.values(),
        key=lambda m: (importance[m[0].state], len(m), min(lane.rank or 0 for lane in m)),
    ):
        numbers = sorted(lane.rank for lane in members if lane.rank is not None)
        classes.append(
            LaneClass(
                ranks_phrase(numbers),
                members[0].state,
                numbers,
                len(ordered),
                len(ordered) + len(members),
                _span(lane.step for lane in members),
                _common(members),
            )
        )
        ordered += _by_host(members)
    return ordered, classes


def _keys(lane: Lane, said: set[str]) -> tuple[Any, ...]:
    """What makes ranks alike, the coarsest first; the finer ones are dropped if need be."""
    return (lane.state, tuple(sorted(said)), lane.bars[-1][2] if lane.bars else -1, lane.step)


def _span(steps: Iterable[int | None]) -> str:
    known = [step for step in steps if step is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _common(members: list[Lane]) -> str:
    last = {lane.bars[-1][2] for lane in members if lane.bars}
    return words.phase(PHASES[last.pop()]) if len(last) == 1 else ""


def table(picture: Lanes) -> list[LaneClass]:
    """The picture as a table: its classes, or each rank as one of its own."""
    if picture.classes:
        return picture.classes
    return [
        LaneClass(
            lane.label,
            lane.state,
            [lane.rank],
            index,
            index + 1,
            "" if lane.step is None else f"{lane.step:,}",
            _common([lane]),
        )
        for index, lane in enumerate(picture.lanes)
        if lane.rank is not None
    ]


def _view(ordered: list[Lane], end: int, onset: int | None) -> tuple[int, int]:
    """What to show at first: the job's own time, without a kernel log that began days before."""
    spans = [(lane.first, lane.last) for lane in ordered if lane.rank is not None]
    firsts = [first for first, _ in spans if first is not None]
    lasts = [last for _, last in spans if last is not None]
    if not firsts or not lasts:
        return 0, max(end, 1)
    first, last = int(np.min(firsts)), int(np.max(lasts))
    if onset is not None:
        first = min(first, max(onset, 0))
    # A launcher's last words belong to it if they came soon.
    last = min(end, last + (last - first) // 10)
    if onset is not None and first < onset < last:
        # Of a job that ran for days before it stood still for minutes, not only the days.
        first = max(first, onset - BEFORE * (last - onset))
    span = max(last - first, 1)
    return max(0, first - span // 20), last + max(1, span // 60)
