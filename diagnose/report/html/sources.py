"""The appendix: what was read, how much of it, by which clock, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diagnose.job.model import Job
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.scrub import Scrub

MAX_SOURCES = 300
KINDS = {
    "text": "log",
    "error_json": "error file of torchrun",
    "fr_dump": "Flight Recorder dump",
    "empty": "empty",
    "binary": "not a log",
    "unreadable": "unreadable",
    "skipped": "left out",
}


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source: its clock is the span of times in it, or that it has none."""

    name: str
    kind: str
    size: str
    lines: str
    clock: str
    notes: str


def sources(
    job: Job, spans: Mapping[str, tuple[int, int]], scrub: Scrub
) -> tuple[list[SourceRow], int]:
    """The sources, those with notes first, and how many were left out of the list.

    `spans` has the first and the last time in each source that has any.
    """
    scans = {scan.source.name: scan for scan in job.scans}
    rows = []
    for source in job.sources:
        scan = scans.get(source.name)
        notes = list(dict.fromkeys(filter(None, (source.note, *source.notes))))
        if scan is not None and scan.problem:
            notes.append(scan.problem)
        rows.append(
            SourceRow(
                scrub.text(source.name, 300),
                KINDS.get(source.kind, source.kind.replace("_", " ")),
                words.size(source.size),
                f"{scan.total_lines:,}" if scan is not None else "",
                _clock(spans.get(source.name)) if scan is not None else "",
                scrub.text("; ".join(notes), 400),
            )
        )
    rows.sort(key=lambda row: not row.notes)
    return rows[:MAX_SOURCES], max(0, len(rows) - MAX_SOURCES)


def _clock(span: tuple[int, int] | None) -> str:
    if span is None:
        return "no times"
    first, last = span
    return f"{clock.moment(first)} – {clock.moment(last, first)}"
