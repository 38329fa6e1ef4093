"""The fleet report as one HTML file, in the look of the post-mortem and as closed as that is.

Style, script and pictures are inside; the policy lets nothing else work. Without scripts only
sorting, searching and the switch of colours are missing.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from diagnose import __version__
from diagnose.fleet.causes import CAUSE, HOST, WEEK
from diagnose.fleet.hostlist import fold
from diagnose.fleet.summary import Fleet
from diagnose.report.fleet import pictures, words
from diagnose.report.html.shell import asset, embedded, policy, template
from diagnose.report.safe import scrubber
from diagnose.report.words import names

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
    reports = {} if links is None else {
        job: f"{links}{quote(path)}" for job, path in fleet.reports.items()
    }  # fmt: skip
    trend, cloud = pictures.trend(fleet), pictures.cloud(fleet.nodes)
    text: str = template("fleet.html.j2", _PACKAGE).render(
        policy=policy([script], style),
        style=Markup(style),
        script=Markup(script),
        data=embedded({}),
        fleet=fleet,
        title=scrub.text(title, 200) if title else "",
        headline=_headline(fleet, suspects),
        summary=words.title(fleet.overview),
        facts=_facts(fleet),
        sections=[
            (anchor, name)
            for there, anchor, name in (
                (True, "nodes", "Nodes"),
                (fleet.causes, "causes", "Causes"),
                (trend, "trend", "Trend"),
                (fleet.recurring, "recurring", "Recurring"),
                (fleet.unknowns, "unknown", "Unknown"),
                (fleet.unreadable, "unreadable", "Unreadable"),
                (fleet.worst, "worst", "Costly jobs"),
            )
            if there
        ],
        tables=[(CAUSE, "causes", fleet.causes)] * bool(fleet.causes)
        + [(fleet.by, "groups", fleet.groups)] * (fleet.by != CAUSE and bool(fleet.groups)),
        CAUSE=CAUSE,
        HOST=HOST,
        WEEK=WEEK,
        exclude=fold(suspects),
        suspects=set(suspects),
        trend=trend,
        cloud=cloud,
        reports=reports,
        words=words,
        pictures=pictures,
        names=names,
        limit=MAX_ROWS,
        max_links=MAX_LINKS,
        version=__version__,
        redact=redact,
    )
    return text


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
    known = [group for group in fleet.causes if group.name != "unknown"]
    facts = [
        (
            "Lost",
            "unknown" if hours is None else f"{words.number(hours)} GPU-hours",
            f"cost of {words.jobs(untold)} unknown" if untold and hours is not None else "",
        ),
        ("Outcome", f"{overview.hung:,} hung, {overview.failed:,} failed", _others(fleet)),
    ]
    if known:
        facts.append(("Top cause", known[0].name, known[0].title))
    hosts = [suspect.host for suspect in fleet.nodes.suspects]
    compared = f"of {len(fleet.nodes.nodes):,} compared" if fleet.nodes.nodes else ""
    facts.append(("Suspect nodes", names(hosts, 6) if hosts else "none", compared))
    return facts


def _others(fleet: Fleet) -> str:
    overview = fleet.overview
    parts = [
        f"{count:,} {name}"
        for count, name in (
            (overview.unknown, "unknown"),
            (overview.healthy, "healthy"),
            (overview.running, "running at the end of the log"),
            (overview.unreadable, "unreadable"),
        )
        if count
    ]
    return ", ".join(parts)
