"""The fleet report as one HTML file, in the look of the post-mortem and as closed as that is.

Style, script and pictures are inside; the policy lets nothing else work. Without scripts only
sorting, searching and the switch of colours are missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from diagnose import __version__
from diagnose.fleet.causes import Group
from diagnose.fleet.grouping import CAUSE, HOST, WEEK
from diagnose.fleet.nodes import Nodes
from diagnose.fleet.summary import Fleet
from diagnose.report.fleet import words
from diagnose.report.html.shell import asset, embedded, policy, template
from diagnose.report.safe import cut, scrubber
from diagnose.report.words import names
from diagnose.text.hosts import fold

_PACKAGE = "diagnose.report.fleet"

MAX_ROWS = 500  # of any one table
MAX_TEXT = 400
MAX_LINKS = 5


def render(
    fleet: Fleet, *, links: str | None = None, title: str | None = None, redact: bool = True
) -> str:
    """The whole page.

    `links` is the relative URL from the page to the results folder (see `link_base`); None leaves
    links to post-mortems out. With `redact` secrets are masked, the same one alike everywhere.
    """
    scrub = scrubber(redact=redact)
    fleet = words.safe(fleet, lambda text: scrub.text(text, MAX_TEXT))
    style = asset("style.css") + asset("fleet.css", _PACKAGE)
    script = asset("js/base.js") + asset("fleet.js", _PACKAGE)
    suspects = [suspect.host for suspect in fleet.nodes.suspects]
    units = [words.unit_name(unit) for unit in fleet.nodes.units]
    reports = {} if links is None else {
        job: f"{links}{quote(path)}" for job, path in fleet.reports.items()
    }  # fmt: skip
    weeks, nodes = trend(fleet), cloud(fleet.nodes)
    text: str = template("fleet.html.j2", _PACKAGE).render(
        policy=policy([script], style),
        style=Markup(style),
        script=Markup(script),
        data=embedded({}),
        fleet=fleet,
        title=scrub.text(title, 200) if title else "",
        headline=_headline(fleet, [*units, *suspects]),
        summary=words.title(fleet.overview),
        facts=_facts(fleet),
        sections=_sections(fleet, trend=weeks is not None),
        tables=[(CAUSE, "causes", fleet.causes)] * bool(fleet.causes)
        + [(fleet.by, "groups", fleet.groups)] * (fleet.by != CAUSE and bool(fleet.groups)),
        CAUSE=CAUSE,
        HOST=HOST,
        WEEK=WEEK,
        exclude=fold(suspects),
        suspects=set(suspects),
        trend=weeks,
        cloud=nodes,
        racks=racks(fleet.nodes),
        reports=reports,
        words=words,
        HEIGHT=HEIGHT,
        widths=widths,
        spark_bars=spark_bars,
        names=names,
        limit=MAX_ROWS,
        max_links=MAX_LINKS,
        version=__version__,
        redact=redact,
    )
    return text


def _sections(fleet: Fleet, *, trend: bool) -> list[tuple[str, str]]:
    """Anchor and heading of the sections that have something to show."""
    sections = (
        (True, "nodes", "Nodes"),
        (fleet.causes, "causes", "Causes"),
        (True, "reliability", "Reliability"),
        (fleet.since, "since", "Since"),
        (trend, "trend", "Trend"),
        (fleet.recurring, "recurring", "Recurring"),
        (fleet.unknowns, "unknown", "Unknown"),
        (fleet.unreadable, "unreadable", "Unreadable"),
        (fleet.worst, "worst", "Costly jobs"),
    )
    return [(anchor, heading) for there, anchor, heading in sections if there]


def link_base(page: Path, results: Path) -> str:
    """The relative URL from a page's folder to the results folder, ending in a slash or empty."""
    try:
        way = os.path.relpath(results.resolve(), page.resolve().parent)
    except ValueError:  # another drive
        return f"{results.resolve().as_uri()}/"
    return "" if way == "." else f"{quote(os.fsencode(Path(way).as_posix()))}/"


def _headline(fleet: Fleet, suspects: list[str]) -> str:
    failing = fleet.overview.hung + fleet.overview.failed
    text = f"{failing:,} of {words.jobs(fleet.overview.jobs)} hung or failed"
    if suspects:
        text += f"; check {names(suspects, 4)}"
    return text


def _facts(fleet: Fleet) -> list[tuple[str, str, str]]:
    """Label, value and note of the first screen."""
    overview = fleet.overview
    hours = overview.gpu_hours_lost
    untold = overview.cost_unknown
    missing = f"cost of {words.jobs(untold)} unknown" if untold and hours is not None else ""
    paid = ""
    if hours is not None and fleet.price is not None:
        paid = f"{words.money(hours, fleet.price)} at {fleet.price:,.2f} each"
    first = words.first_cause(fleet)
    others = words.outcome(overview, ("unknown", "healthy", "running", "other", "unreadable"))
    facts = [
        (
            "Lost",
            "unknown" if hours is None else f"{words.number(hours)} GPU-hours",
            "; ".join(filter(None, (paid, missing))),
        ),
        ("Outcome", f"{overview.hung:,} hung, {overview.failed:,} failed", others),
    ]
    if first is not None:
        facts.append(("Top cause", first.name, first.title))
    if fleet.reliability.goodput is not None:
        of_gpu = f"MTBF of one GPU {words.mtbf(fleet.reliability.mtbf_gpu)}"
        facts.append(("Goodput", words.part(fleet.reliability.goodput), of_gpu))
    hosts = [words.unit_name(unit) for unit in fleet.nodes.units]
    hosts += [suspect.host for suspect in fleet.nodes.suspects]
    compared = f"of {len(fleet.nodes.nodes):,} compared" if fleet.nodes.nodes else ""
    facts.append(("Suspect nodes", names(hosts, 6) if hosts else "none", compared))
    return facts


# --- the pictures as numbers: where bars, columns and dots stand ----------------------------------

# They become SVG in the template. Places along are in percent and heights in pixels, so a picture
# fits any width without a script and its text keeps its size.
HEIGHT = 190  # pixels of the drawing, without labels
MAX_KINDS = 5  # causes with a colour of their own
MAX_LABELS = 12  # of an axis
LINE = 14  # pixels
MAX_CELLS = 20_000  # nodes of a map
MAX_NAME = 64  # characters of a node or rack in it
HEATS = (2.0, 4.0, 8.0)  # times the blame that the jobs of a node explain
_PARTS = re.compile(r"(\D*)(\d{0,18})")
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Box:
    """A column's piece: `x`, `width` in percent, `y`, `height` in pixels, `kind` of colour."""

    x: float
    y: float
    width: float
    height: float
    kind: int
    tip: str


@dataclass(frozen=True, slots=True)
class Label:
    """A mark at an axis; `place` is in percent along and in pixels upright."""

    place: float
    text: str
    odd: bool = False


@dataclass(frozen=True, slots=True)
class Trend:
    """Columns, one a week, of the causes in `kinds`."""

    boxes: list[Box]
    along: list[Label]
    upright: list[Label]
    kinds: list[str]


@dataclass(frozen=True, slots=True)
class Dot:
    """One or several nodes with as many jobs and as much blame; `name_y` keeps names apart."""

    x: float
    y: float
    name_y: float
    radius: float
    tip: str
    name: str
    suspect: bool


@dataclass(frozen=True, slots=True)
class Cloud:
    """Nodes by jobs (along) and blame (upright)."""

    dots: list[Dot]
    along: list[Label] = field(default_factory=list)
    upright: list[Label] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cell:
    """A node: `heat` from 0 to 4 says how much more often it is blamed than its jobs explain."""

    heat: int
    tip: str
    suspect: bool


@dataclass(frozen=True, slots=True)
class Rack:
    """The nodes of a rack, or of what else the map is drawn by."""

    name: str
    cells: list[Cell]


def trend(fleet: Fleet) -> Trend | None:
    """Troubled jobs a week by cause; None where there are no two weeks."""
    if len(fleet.weeks) < 2 or not fleet.causes:
        return None
    first = sorted(fleet.causes, key=lambda group: -group.troubled)[:MAX_KINDS]
    kinds = [(group.name, group.weekly) for group in first]
    rest = [group.weekly for group in fleet.causes if group not in first]
    if rest:
        kinds.append((OTHERS, [sum(counts) for counts in zip(*rest, strict=True)]))
    totals = [sum(counts) for counts in zip(*(weekly for _, weekly in kinds), strict=True)]
    top, marks = scale(max(totals))
    step = 100 / len(totals)
    boxes = []
    for week, start in enumerate(fleet.weeks):
        level = float(HEIGHT)
        for kind, (name, weekly) in enumerate(kinds):
            tall = weekly[week] / top * HEIGHT
            level -= tall
            if tall:
                tip = f"Week of {start}: {name} {weekly[week]:,} of {totals[week]:,}"
                boxes.append(
                    Box(round((week + 0.12) * step, 3), round(level, 2), round(0.76 * step, 3),
                        round(tall, 2), kind, tip)
                )  # fmt: skip
    every = -(-len(totals) // MAX_LABELS)
    along = [
        Label(round((week + 0.5) * step, 3), fleet.weeks[week][5:], bool(place % 3))
        for place, week in enumerate(range(0, len(totals), every))
    ]
    return Trend(boxes, along, _upright(top, marks), [name for name, _ in kinds])


def cloud(nodes: Nodes) -> Cloud | None:
    """The nodes; None where nothing was blamed on any, or there are too few to compare."""
    most = max((node.blamed for node in nodes.nodes), default=0)
    if not most or len(nodes.nodes) < 3:
        return None
    suspects = {suspect.host for suspect in nodes.suspects}
    spots: dict[tuple[int, int, bool], list[str]] = {}
    for node in nodes.nodes:
        spots.setdefault((node.jobs, node.blamed, node.host in suspects), []).append(node.host)
    right, along = scale(max(node.jobs for node in nodes.nodes))
    top, upright = scale(most)
    dots = [
        Dot(
            round(jobs / right * 100, 2), round(HEIGHT - blamed / top * HEIGHT, 2), 0.0,
            min(12.0, 4 + len(hosts) ** 0.5 / 2),
            f"{names(hosts, 6)}: blamed in {blamed:,} of {jobs:,} jobs",
            names(hosts, 2) if suspect else "", suspect,
        )
        for (jobs, blamed, suspect), hosts in sorted(spots.items(), key=lambda item: item[0][2])
    ]  # fmt: skip
    marks = [Label(round(mark / right * 100, 2), f"{mark:,}", bool(at % 2))
             for at, mark in enumerate(along)]  # fmt: skip
    return Cloud(_named_apart(dots), marks, _upright(top, upright))


def racks(nodes: Nodes) -> list[Rack]:
    """The map of the nodes by rack, in the order of their names; none where it is not known."""
    placed = [node for node in nodes.nodes if node.unit]
    blamed = sum(node.blamed for node in placed)
    if not blamed or len(placed) > MAX_CELLS:
        return []
    rate = blamed / max(1, sum(node.jobs for node in placed))
    suspects = {suspect.host for suspect in nodes.suspects}
    found: dict[str, list[Cell]] = {}
    for node in sorted(placed, key=lambda node: natural(node.host)):
        ratio = node.blamed / max(rate * node.jobs, 1.0)
        heat = min(4, int(node.blamed > 0) + sum(ratio >= least for least in HEATS))
        tip = f"{cut(node.host, MAX_NAME)}: {node.blamed:,} of {node.jobs:,}"
        found.setdefault(node.unit or "", []).append(Cell(heat, tip, node.host in suspects))
    return [Rack(cut(name, MAX_NAME), found[name]) for name in sorted(found, key=natural)]


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which `n2` is before `n10`."""
    return [(int(digits or 0), text) for text, digits in _PARTS.findall(name[:MAX_NAME])]


def _named_apart(dots: Sequence[Dot]) -> list[Dot]:
    """Names of suspects from the top down, each at least a line below the one before."""
    found, last = [], -float(LINE)
    for dot in sorted(dots, key=lambda dot: (bool(dot.name), dot.y)):
        if dot.name:
            last = max(dot.y, last + LINE)
        found.append(replace(dot, name_y=round(last + 4, 2) if dot.name else dot.y))
    return found


def widths(groups: Sequence[Group]) -> list[float]:
    """How long each bar is in percent: GPU-hours, or jobs where no cost is known."""
    values: list[float] = [group.gpu_hours_lost or 0.0 for group in groups]
    if not any(values):
        values = [group.troubled for group in groups]
    most = max(values, default=0) or 1
    return [round(100 * value / most, 2) for value in values]


def spark_bars(counts: Sequence[int], last: int = 26) -> list[tuple[float, float, float, float]]:
    """Bars (x, y, width, height) in a box of 100 × 20 for the last counts."""
    shown = counts[-last:]
    most = max(shown, default=0)
    step = 100 / max(1, len(shown))
    return [
        (round(at * step, 2), round(20 - 20 * count / most, 2), round(step * 0.8, 2),
         round(20 * count / most, 2))
        for at, count in enumerate(shown) if count
    ]  # fmt: skip


def scale(most: int) -> tuple[int, list[int]]:
    """A round top of an axis that holds `most`, and its two to five marks, 0 among them."""
    step = 1
    while step * 5 < most:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    top = step * -(-max(1, most) // step)
    return top, list(range(0, top + 1, step))


def _upright(top: int, marks: Sequence[int]) -> list[Label]:
    return [Label(round(HEIGHT - mark / top * HEIGHT, 2), f"{mark:,}") for mark in marks]
