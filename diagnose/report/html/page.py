"""Puts the page together: what each part of the report shows, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from markupsafe import Markup

from diagnose import __version__, cost
from diagnose.diagnosis import ChainLink, Diagnosis, Evidence
from diagnose.job.model import Job
from diagnose.report import safe, why, words
from diagnose.report.html import clock, lanes, ranks, tables
from diagnose.report.html.shell import asset, embedded, policy, template
from diagnose.report.safe import Row, Scrub, scrubber
from diagnose.text.ranks import counted
from diagnose.text.times import duration

_SCRIPTS = ("base.js", "table.js", "timeline.js", "pictures.js")
_LIBRARY = "vendor/echarts/echarts.slim.js"
_HEADINGS = {"What to do now": "Now"}  # under "What to do"


def page(job: Job, diagnosis: Diagnosis, *, title: str | None, redact: bool) -> str:
    """See `diagnose.report.html.render`."""
    scrub = scrubber(redact=redact)
    # First: what is secret is learned from the lines around the evidence.
    quoted = quotes(diagnosis, lambda items: safe.around(job, items, scrub.block), scrub)
    shown = scrub.diagnosis(diagnosis)
    parts = _parts(job, diagnosis, shown, scrub)
    text: str = template("report.html.j2").render(
        **_scripts(parts, shown),
        **_verdict(job, shown),
        picture=parts.picture,
        clocked=parts.prepared.clocked,
        unplaced=[scrub.text(name, 200) for name in parts.prepared.unplaced],
        lane_table=lanes.table(parts.picture) if parts.picture else [],
        state_names=ranks.STATES,
        by_state=ranks.by_state(parts.states),
        counters=parts.counters,
        waits=parts.waits,
        grid=parts.cells,
        title=scrub.text(title, 200) if title else "",
        sections=_sections(parts, shown, located=bool(diagnosis.places)),
        words=words,
        diagnosis=shown,
        places=ranks.places(diagnosis.places, scrub),
        quotes=quoted,
        reasons=why.tables(shown.reasons),
        findings=parts.found.items,
        finding_counts=tables.counts(parts.found.items),
        overview=tables.overview(shown.job),
        job_facts=tables.job_facts(job.events, job.catalog, scrub),
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

    prepared: clock.Events
    found: tables.Findings
    states: dict[int, str]
    hosts: dict[int, str]
    picture: lanes.Lanes | None
    counters: list[lanes.Counter]
    waits: ranks.Waiting | None
    cells: ranks.Grid | None
    read: list[tables.SourceRow]
    unread: int
    kept: list[tables.CheckpointRow]


def _parts(job: Job, raw: Diagnosis, shown: Diagnosis, scrub: Scrub) -> _Parts:
    """The parts of the page; `shown` is `raw` scrubbed."""
    # Where a slow rank is waited for, its own lines go on.
    halted = shown.culprits.kind != "slow"
    prepared = clock.prepare(job, shown.onset.time if halted else None)
    found = tables.findings(prepared, job.catalog, scrub)
    states = ranks.states(prepared.last_attempt, raw)
    host_of = prepared.last_attempt.hosts_of_ranks
    names = {host: scrub.text(host, 80) for host in set(host_of.values())}
    hosts = {rank: names[host] for rank, host in host_of.items()}
    return _Parts(
        prepared,
        found,
        states,
        hosts,
        lanes.lanes(prepared, shown, found, states, hosts, scrub),
        lanes.counters(prepared, job.catalog, shown.culprits.ranks, scrub),
        ranks.waiting(raw, states, scrub),
        ranks.grid(raw.topology, states, hosts, scrub),
        *tables.sources(job, prepared.spans, scrub),
        tables.checkpoints(job.checkpoints, scrub),
    )


def _scripts(parts: _Parts, shown: Diagnosis) -> dict[str, Any]:
    """The style, the scripts with their data, and the policy that admits only these."""
    picture, waits, cells = parts.picture, parts.waits, parts.cells
    data = {
        "lanes": lanes.to_json(picture, parts.prepared, shown) if picture else None,
        "findings": [
            {"id": item.anchor, "title": item.title, "role": item.role,
             "texts": [variant.text for variant in item.variants]}
            for item in parts.found.items if picture
        ],
        "progress": lanes.counters_json(parts.counters),
        "graph": ranks.graph_json(waits) if waits else None,
        "grid": ranks.grid_json(cells, parts.states, parts.hosts) if cells else None,
        "stateNames": ranks.STATES,
    }  # fmt: skip
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
    still = cost.standstill(shown, cost.span(job.events)[1])
    titles = {name: cause.title for name, cause in job.catalog.classes.items()}
    return {
        "bad": words.is_bad(shown),
        "label": label(shown),
        "summary": words.sentence(shown.root_cause.summary),
        "facts": first_facts(shown, still),
        "remedies": [
            (_HEADINGS.get(heading, heading), steps)
            for heading, steps in words.remedy_groups(shown.remedies)
        ],
        "chain": chain(shown.causal_chain),
        "alternatives": alternatives(shown, titles),
        "capture": capture(shown),
        "collective": ranks.joined_and_missing(shown),
        "doubts_title": _doubts(shown),
        "notes": shown.notes,
    }


def _doubts(diagnosis: Diagnosis) -> str:
    """The heading over alternatives, missing evidence and notes."""
    if words.is_bad(diagnosis) or diagnosis.alternatives:
        return words.alternatives_heading(diagnosis)
    return "Missing evidence" if diagnosis.missing_evidence else "Notes"


# --- the first screen: the verdict, who is to blame, when it began and what it cost ---------------

_KNOWN_S = 1.0  # below, nothing was written after the onset: how long it went on is unknown
_LABELS = {
    "hung": "The job hung",
    "failed": "The job failed",
    "healthy": "The job ended well",
    "running": "The job was at work",
    "unknown": "Inconclusive",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A labelled text, and in smaller type what it rests on."""

    label: str
    value: str
    note: str = ""


def label(diagnosis: Diagnosis) -> str:
    """`The job hung · high confidence`."""
    sure = words.confidence(diagnosis)
    return _LABELS[diagnosis.verdict] + (f" · {sure}" if sure else "")


def first_facts(diagnosis: Diagnosis, still: cost.Standstill | None) -> list[Fact]:
    """The facts under the headline, the most wanted first; only what is known."""
    bad = words.is_bad(diagnosis)
    found = []
    who = words.culprits(diagnosis)
    if who:
        found.append(Fact("To blame", who, words.started_sentence(diagnosis.culprits.why)))
    elif bad:
        found.append(Fact("To blame", "Unknown", words.sentence(words.NOBODY)))
    common = words.in_common(diagnosis)
    found += [Fact("In common", words.capital(common))] * bool(common)
    began = clock.moment(_whole(diagnosis.onset.time)) if diagnosis.onset.time else ""
    if began or words.has_ended_badly(diagnosis):
        why = words.started_sentence(diagnosis.onset.why)
        found.append(Fact("Began", began or "Unknown", why))
    if still is not None and bad and still.seconds >= _KNOWN_S:
        hung = diagnosis.verdict == "hung"
        found.append(
            Fact(
                "Hung for" if hung else "Time to the end",
                duration(still.seconds),
                "Until the last line of the logs, "
                f"{clock.moment(_whole(still.end), diagnosis.onset.time)}.",
            )
        )
        if still.gpu_hours is not None:
            # Without a stated world size there are those that are named, if not more.
            least = "" if diagnosis.job.world_size == still.ranks else "At least "
            lost = f"{least}{clock.hours(still.gpu_hours)}"
            ranks = f"{least}{counted(still.ranks or 0, 'rank')}"
            found.append(
                Fact("Lost", f"{lost} GPU-hours", f"{ranks}, one GPU each, from the onset.")
            )
    if diagnosis.phase:
        phase = words.phase(diagnosis.phase)
        found.append(Fact("Phase" if bad else "Last phase", words.capital(phase)))
    done = words.progress(diagnosis.progress)
    if done:
        found.append(Fact("Progress", words.capital(done)))
    if bad and words.RESTART[diagnosis.restart.advice]:
        advice = words.restart_advice(diagnosis)
        found.append(Fact("Restart", advice, words.started_sentence(diagnosis.restart.why)))
    if words.has_ended_badly(diagnosis):
        answer, why = words.longer_timeout_why(diagnosis)
        found.append(Fact("Longer timeout", answer.rstrip("."), why))
    first, *others = [words.earlier(one) for one in diagnosis.earlier] or [""]
    found += [Fact("Seen before", first, " ".join(others))] * bool(first)
    if diagnosis.site_record:
        found.append(Fact("Site record", words.site_record(diagnosis)))
    return found


def _whole(time: str | datetime) -> datetime | None:
    """The second of a time: more would only look exact."""
    stamp = cost.moment(time) if isinstance(time, str) else time
    return None if stamp is None else stamp.replace(microsecond=0)


# --- evidence with its context, the causal chain, alternatives ------------------------------------

MAX_EVIDENCE = 20  # kinds of it
MAX_CHAIN = 40
CONTEXT_LIMIT = 400  # characters of a line that is only context

Near = Callable[[Sequence[Evidence]], dict[tuple[str, int], list[Row]]]


@dataclass(frozen=True, slots=True)
class QuotedLine:
    """A line of a quote; `marked` is the evidence itself."""

    number: int
    text: str
    marked: bool


@dataclass(frozen=True, slots=True)
class Quote:
    """Alike lines of evidence: why they matter, where they stand, one of them with its context.

    `meaning` is what a dump or a stack says there, in words that it does not hold itself.
    """

    anchor: str
    why: str
    meaning: str
    places: str
    lines: list[QuotedLine]


def quotes(diagnosis: Diagnosis, near: Near, scrub: Scrub) -> list[Quote]:
    """The evidence in its order, the same kind told once. `diagnosis` is the raw one."""
    groups = words.quotes(diagnosis.evidence, MAX_EVIDENCE)
    around = near([items[0] for _, items in groups])
    return [
        Quote(
            f"evidence-{number}",
            scrub.text(_started(why)),
            "" if items[0].quoted else scrub.text(words.capital(items[0].text)),
            scrub.text(words.places(items)),
            _lines(items[0], around.get((items[0].source, items[0].line), []), scrub),
        )
        for number, (why, items) in enumerate(groups, start=1)
    ]


def _started(text: str) -> str:
    """With a capital where it starts with plain prose; it may also start with a name of code."""
    return words.capital(text) if text.startswith(("the ", "a ", "an ", "one ", "what ")) else text


def _lines(item: Evidence, rows: list[Row], scrub: Scrub) -> list[QuotedLine]:
    if not item.quoted:  # what it means begins there
        rows = [row for row in rows if row.number >= item.line]
    elif not any(row.number == item.line for row in rows):
        rows = [Row(item.line, item.text)]
    return [
        QuotedLine(
            row.number,
            # The catalog's own text of the line may show more of a very long one.
            scrub.text(_fuller(row.text, scrub.text(item.text)))
            if item.quoted and row.number == item.line
            else scrub.row(row.text, CONTEXT_LIMIT),
            row.number == item.line,
        )
        for row in rows
    ]


def _fuller(read: str, kept: str) -> str:
    """What was read again, unless it does not hold what the verdict rests on."""
    return read if " ".join(kept.split())[:80] in " ".join(read.split()) else kept


def chain(links: Sequence[ChainLink]) -> list[words.Step]:
    """What happened, in order; times as people write them."""
    return [
        replace(one, time=clock.moment(one.time) if "-" in one.time[:5] else one.time)
        for one in words.steps(links, MAX_CHAIN)
    ]


def alternatives(diagnosis: Diagnosis, titles: dict[str, str]) -> list[Fact]:
    """Causes that lost, and what speaks against them."""
    return [
        Fact(
            titles.get(other.cause, other.cause),
            words.started_sentence(other.why_not),
            f"{other.cause}, {other.confidence} confidence",
        )
        for other in diagnosis.alternatives
    ]


def capture(diagnosis: Diagnosis) -> list[Fact]:
    """What would settle the question, and how to get it next time."""
    return [
        Fact(words.capital(item.what), item.how if item.how != item.what else "")
        for item in diagnosis.missing_evidence
    ]
