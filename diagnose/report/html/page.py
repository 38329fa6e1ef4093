"""Puts the page together: what each part of the report shows, in the order of the page."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from diagnose import __version__
from diagnose.cost import span, standstill
from diagnose.diagnosis import Diagnosis
from diagnose.job.model import Job
from diagnose.report import words
from diagnose.report.html import (
    checkpoints,
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
from diagnose.report.html.scrub import scrubber
from diagnose.report.html.shell import asset, embedded, policy, template
from diagnose.timeline.frame import hosts_of_ranks

_SCRIPTS = ("base.js", "table.js", "timeline.js", "pictures.js")
_LIBRARY = "vendor/echarts/echarts.slim.js"
_HEADINGS = {"What to do now": "Now"}  # under "What to do"


def page(job: Job, diagnosis: Diagnosis, *, title: str | None, redact: bool) -> str:
    """See `diagnose.report.html.render`."""
    scrub = scrubber(redact=redact)
    raw = diagnosis
    # First: what is secret is learned from the lines around the evidence.
    quoted = view.quotes(raw, lambda items: context.around(job, items, scrub.block), scrub)
    diagnosis = scrub.diagnosis(raw)
    # Where a slow rank is waited for, its own lines go on.
    stood = diagnosis.culprits.kind != "slow"
    prepared = events.prepare(job, diagnosis.onset.time if stood else None)
    still = standstill(diagnosis, span(job.events)[1])
    found = findings.findings(prepared, job.catalog, scrub)
    ranks = states.states(prepared.last_attempt, raw)
    told = hosts_of_ranks(prepared.last_attempt)
    shown = {host: scrub.text(host, 80) for host in set(told.values())}
    hosts = {rank: shown[host] for rank, host in told.items()}
    picture = lanes.lanes(prepared, diagnosis, found, ranks, hosts, scrub)
    counted = progress.counters(prepared, job.catalog, diagnosis.culprits.ranks, scrub)
    waits = waiting.waiting(raw, ranks, scrub)
    cells = grid.grid(raw.topology, ranks, hosts, scrub)
    read, unread = sources.sources(job, scrub)
    kept = checkpoints.checkpoints(job.checkpoints, scrub)
    titles = {name: cause.title for name, cause in job.catalog.classes.items()}

    data = {
        "lanes": lanes.to_json(picture, prepared, diagnosis) if picture else None,
        "findings": [_shown(item) for item in found.items] if picture else [],
        "progress": progress.to_json(counted),
        "graph": waiting.graph_json(waits) if waits else None,
        "grid": grid.grid_json(cells, ranks, hosts) if cells else None,
        "stateNames": states.STATES,
    }
    style = asset("style.css")
    script = "\n".join(asset(f"js/{name}") for name in _SCRIPTS)
    library = asset(_LIBRARY) if picture or counted or waits or cells else ""
    named = scrub.text(title, 200) if title else ""
    text: str = template("report.html.j2").render(
        policy=policy([library, script] if library else [script], style),
        style=Markup(style),
        library=Markup(library),
        script=Markup(script),
        data=embedded(data),
        title=named,
        sections=[
            (anchor, text)
            for there, anchor, text in (
                (picture, "timeline", "Timeline"),
                (waits or cells or diagnosis.collective or raw.places, "waiting", "Ranks"),
                (counted, "progress", "Progress"),
                (diagnosis.evidence, "evidence", "Evidence"),
                (found.items, "findings", "Findings"),
                (kept, "checkpoints", "Checkpoints"),
                (True, "job", "Job"),
                (True, "appendix", "Sources"),
            )
            if there
        ],
        bad=diagnosis.verdict in ("hung", "failed"),
        sentence=words.sentence,
        caution=words.caution,
        runs_of=words.runs_of,
        names=words.names,
        diagnosis=diagnosis,
        label=verdict.label(diagnosis),
        summary=words.sentence(diagnosis.root_cause.summary),
        facts=verdict.facts(diagnosis, still),
        remedies=[
            (_HEADINGS.get(heading, heading), steps)
            for heading, steps in words.remedy_groups(diagnosis.remedies)
        ],
        picture=picture,
        clocked=prepared.clocked,
        unplaced=[scrub.text(name, 200) for name in prepared.unplaced],
        lane_table=lanes.table(picture) if picture else [],
        state_names=states.STATES,
        by_state=grid.by_state(ranks),
        counters=counted,
        waits=waits,
        grid=cells,
        collective=waiting.joined_and_missing(diagnosis),
        places=places.places(raw.places, scrub),
        quotes=quoted,
        chain=view.chain(diagnosis.causal_chain),
        alternatives=view.alternatives(diagnosis, titles),
        capture=view.capture(diagnosis),
        doubts_title=_doubts(diagnosis),
        notes=diagnosis.notes,
        findings=found.items,
        finding_counts=findings.counts(found.items),
        overview=facts.overview(diagnosis.job),
        job_facts=facts.job_facts(job.timeline, job.catalog, scrub),
        checkpoints=kept,
        sources=read,
        sources_left=unread,
        version=__version__,
        revision=job.catalog.revision,
        redact=redact,
    )
    return text


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
