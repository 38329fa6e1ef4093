"""The lines around a line of evidence, read again from its source.

More of them are read than shown, and given to `show` together: whether a line is a piece of a
secret may stand far above or below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from diagnose.diagnosis import Diagnosis, Evidence
from diagnose.job.model import Job
from diagnose.job.reread import WINDOW, lines_around
from diagnose.redact.redactor import Redactor
from diagnose.report.html.scrub import Scrub

AROUND = 5  # lines before and after
REACH = 80  # lines before and after that are looked at; the longest usual key file has 55


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a log; `number` is 1-based."""

    number: int
    text: str


Show = Callable[[Sequence[str]], list[str]]
Rows = dict[tuple[str, int], list[Row]]


def around(job: Job, evidence: Iterable[Evidence], show: Show = list) -> Rows:
    """The surroundings of each (source, line), the line itself included; absent where unknown.

    `show` makes lines that follow each other fit to be shown, as many as it is given.
    """
    found: Rows = {}
    read = lines_around(job, ((one.source, one.line) for one in evidence), REACH, REACH)
    for (source, line), lines in read.items():
        rows = _shown([Row(number, text) for number, text in lines.items()], line, show)
        if rows:
            found[source, line] = rows
    return found


def _shown(rows: list[Row], line: int, show: Show) -> list[Row]:
    """The rows that a reader sees, after `show` saw all of those within WINDOW characters."""
    above = _within(reversed([row for row in rows if row.number < line]))
    below = _within(row for row in rows if row.number >= line)
    kept = [*reversed(above), *below]
    texts = show([row.text for row in kept])
    seen = [
        Row(row.number, text)
        for row, text in zip(kept, texts, strict=True)
        if abs(row.number - line) <= AROUND
    ]
    return _trimmed(seen, line)


def _within(rows: Iterable[Row]) -> list[Row]:
    """The first rows, as many as AROUND tells or WINDOW characters hold."""
    kept: list[Row] = []
    size = 0
    for row in rows:
        size += len(row.text)
        if size > WINDOW and len(kept) > AROUND:
            break
        kept.append(row)
    return kept


def _trimmed(rows: list[Row], line: int) -> list[Row]:
    """Without the empty lines at both ends."""
    while rows and rows[0].number < line and not rows[0].text.strip():
        rows = rows[1:]
    while rows and rows[-1].number > line and not rows[-1].text.strip():
        rows = rows[:-1]
    return rows


def learn(job: Job, diagnosis: Diagnosis, redactor: Redactor) -> Redactor:
    """`redactor`, which now knows the secrets around the evidence; for text that shows no more."""
    chosen: list[Evidence] = []
    for item in diagnosis.evidence:
        near = (one for one in chosen if one.source == item.source)
        if all(abs(one.line - item.line) > REACH // 2 for one in near):
            chosen.append(item)
    around(job, chosen, Scrub(redactor).block)
    return redactor
