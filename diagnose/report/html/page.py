"""Puts the page together: what each part of the report shows, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from diagnose import __version__
from diagnose.cost import span, standstill
from diagnose.diagnosis import Diagnosis
from diagnose.job.model import Job
from diagnose.report import traceback, why, words
from diagnose.report.html import (
    context,
    events,
    facts,
    findings,
    grid,
    lanes,
    progress,
    sources,
    states,
    verdict,
    view,
    waiting,
)
from diagnose.report.html import stacks as places
from diagnose.report.html.scrub import Scrub, scrubber
from diagnose.report.html.shell import asset, embedded, policy, template

if TYPE_CHECKING:
    from diagnose.report.html.checkpoints import CheckpointRow

_SCRIPTS = ("base.js", "table.js", "timeline.js", "pictures.js")
_LIBRARY = "vendor/echarts/echarts.slim.js"
_HEADINGS = {"What to do now": "Now"}  # under "What to do"


def page(job: Job, diagnosis: Diagnosis, *, title: str | None, redact: bool) -> str:
    """See `diagnose.report.html.render`."""
    scrub = scrubber(redact=redact)
    # First: what is secret is learned from the lines around the evidence.
    quoted = view.quotes(diagnosis, lambda items: context.around(job, items, scrub.block), scrub)
    shown = scrub.diagnosis(diagnosis)
    parts = _parts(job, diagnosis, shown, scrub)
    text: str = template("report.html.j2").render(
        **_scripts(parts, shown),
        **_verdict(job, shown),
        **_pictures(parts, scrub),
        title=scrub.text(title, 200) if title else "",
        sections=_sections(parts, shown, located=bool(diagnosis.places)),
        sentence=words.sentence,
        caution=words.caution,
        runs_of=words.runs_of,
        names=words.names,
        diagnosis=shown,
        places=places.places(diagnosis.places, scrub),
        quotes=quoted,
        traceback=traceback,
        reasons=why.tables(shown.reasons),
        findings=parts.found.items,
        finding_counts=findings.counts(parts.found.items),
        overview=facts.overview(shown.job),
        job_facts=facts.job_facts(job.events, job.catalog, scrub),
        checkpoints=parts.kept,
        sources=parts.read,
        sources_left=parts.unread,
        version=__version__,
        revision=job.catalog.revision,
        redact=redact,
    )
    return text


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the pictures and tables of a page show, with all text scrubbed."""

    prepared: events.Events
    found: findings.Findings
    ranks: dict[int, str]
    hosts: dict[int, str]
    picture: lanes.Lanes | None
    counters: list[progress.Counter]
    waits: waiting.Waiting | None
    cells: grid.Grid | None
    read: list[sources.SourceRow]
    unread: int
    kept: list[CheckpointRow]


def _parts(job: Job, raw: Diagnosis, shown: Diagnosis, scrub: Scrub) -> _Parts:
    """The parts of the page; `shown` is `raw` scrubbed."""
    # Where a slow rank is waited for, its own lines go on.
    halted = shown.culprits.kind != "slow"
    prepared = events.prepare(job, shown.onset.time if halted else None)
    found = findings.findings(prepared, job.catalog, scrub)
    ranks = states.states(prepared.last_attempt, raw)
    host_of = prepared.last_attempt.hosts_of_ranks
    names = {host: scrub.text(host, 80) for host in set(host_of.values())}
    hosts = {rank: names[host] for rank, host in host_of.items()}
    picture = lanes.lanes(prepared, shown, found, ranks, hosts, scrub)
    counted = progress.counters(prepared, job.catalog, shown.culprits.ranks, scrub)
    waits = waiting.waiting(raw, ranks, scrub)
    cells = grid.grid(raw.topology, ranks, hosts, scrub)
    read, unread = sources.sources(job, prepared.spans, scrub)
    kept = _checkpoints(job, scrub)
    return _Parts(prepared, found, ranks, hosts, picture, counted, waits, cells, read, unread, kept)


def _checkpoints(job: Job, scrub: Scrub) -> list[CheckpointRow]:
    if job.checkpoints is None:
        return []
    from diagnose.report.html.checkpoints import checkpoints  # noqa: PLC0415  (slow to import)

    return checkpoints(job.checkpoints, scrub)


def _scripts(parts: _Parts, shown: Diagnosis) -> dict[str, Any]:
    """The style, the scripts with their data, and the policy that admits only these."""
    picture, waits, cells = parts.picture, parts.waits, parts.cells
    data = {
        "lanes": lanes.to_json(picture, parts.prepared, shown) if picture else None,
        "findings": [_shown(item) for item in parts.found.items] if picture else [],
        "progress": progress.to_json(parts.counters),
        "graph": waiting.graph_json(waits) if waits else None,
        "grid": grid.grid_json(cells, parts.ranks, parts.hosts) if cells else None,
        "stateNames": states.STATES,
    }
    style = asset("style.css")
    script = "\n".join(asset(f"js/{name}") for name in _SCRIPTS)
    library = asset(_LIBRARY) if picture or parts.counters or waits or cells else ""
    return {
        "policy": policy([library, script] if library else [script], style),
        "style": Markup(style),
        "library": Markup(library),
        "script": Markup(script),
        "data": embedded(data),
    }


def _sections(parts: _Parts, shown: Diagnosis, *, located: bool) -> list[tuple[str, str]]:
    """Anchor and heading of the sections that have something to show; `located`: stacks too."""
    blocked = parts.waits or parts.cells or shown.collective or located
    sections = (
        (parts.picture, "timeline", "Timeline"),
        (blocked, "waiting", "Ranks"),
        (parts.counters, "progress", "Progress"),
        (shown.exception and shown.exception.frames, "traceback", "Traceback"),
        (shown.evidence, "evidence", "Evidence"),
        (parts.found.items, "findings", "Findings"),
        (parts.kept, "checkpoints", "Checkpoints"),
        (True, "job", "Job"),
        (True, "appendix", "Sources"),
    )
    return [(anchor, heading) for there, anchor, heading in sections if there]


def _verdict(job: Job, shown: Diagnosis) -> dict[str, Any]:
    """The first screen, what to do, and what else was considered."""
    still = standstill(shown, span(job.events)[1])
    titles = {name: cause.title for name, cause in job.catalog.classes.items()}
    return {
        "bad": shown.verdict in ("hung", "failed"),
        "label": verdict.label(shown),
        "summary": words.sentence(shown.root_cause.summary),
        "facts": verdict.facts(shown, still),
        "remedies": [
            (_HEADINGS.get(heading, heading), steps)
            for heading, steps in words.remedy_groups(shown.remedies)
        ],
        "chain": view.chain(shown.causal_chain),
        "alternatives": view.alternatives(shown, titles),
        "capture": view.capture(shown),
        "collective": waiting.joined_and_missing(shown),
        "doubts_title": _doubts(shown),
        "notes": shown.notes,
    }


def _pictures(parts: _Parts, scrub: Scrub) -> dict[str, Any]:
    """The pictures, and the same in words and tables."""
    return {
        "picture": parts.picture,
        "clocked": parts.prepared.clocked,
        "unplaced": [scrub.text(name, 200) for name in parts.prepared.unplaced],
        "lane_table": lanes.table(parts.picture) if parts.picture else [],
        "state_names": states.STATES,
        "by_state": grid.by_state(parts.ranks),
        "counters": parts.counters,
        "waits": parts.waits,
        "grid": parts.cells,
    }


def _doubts(diagnosis: Diagnosis) -> str:
    """The heading over alternatives, missing evidence and notes."""
    if diagnosis.verdict == "unknown" and diagnosis.alternatives:
        return "Possible causes"
    if diagnosis.verdict in ("hung", "failed") or diagnosis.alternatives:
        return "Alternatives considered"
    return "Missing evidence" if diagnosis.missing_evidence else "Notes"


def _shown(item: findings.Finding) -> dict[str, Any]:
    return {
        "id": item.anchor,
        "title": item.title,
        "role": item.role,
        "texts": [variant.text for variant in item.variants],
    }
