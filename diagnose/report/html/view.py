"""The text of the page: evidence with its context, the causal chain, alternatives, remedies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from diagnose.diagnosis import ChainLink, Diagnosis, Evidence
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.context import Row
from diagnose.report.html.scrub import Scrub

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


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the causal chain."""

    time: str
    who: str
    event: str
    place: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A pair of a definition list."""

    name: str
    text: str
    note: str = ""


def quotes(diagnosis: Diagnosis, near: Near, scrub: Scrub) -> list[Quote]:
    """The evidence in its order, the same kind told once. `diagnosis` is the raw one."""
    groups = words.quotes(diagnosis.evidence, MAX_EVIDENCE)
    around = near([items[0] for _, items in groups])
    return [
        Quote(
            f"evidence-{number}",
            scrub.text(_started(why)),
            "" if items[0].quoted else scrub.text(_capital(items[0].text)),
            scrub.text(words.places(items)),
            _lines(items[0], around.get((items[0].source, items[0].line), []), scrub),
        )
        for number, (why, items) in enumerate(groups, start=1)
    ]


def _started(text: str) -> str:
    """With a capital where it starts with plain prose; it may also start with a name of code."""
    return _capital(text) if text.startswith(("the ", "a ", "an ", "one ", "what ")) else text


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


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


def chain(links: Sequence[ChainLink]) -> list[Step]:
    """What happened, in order; times as people write them."""
    return [
        Step(
            clock.moment(step.time) if step.time[:4].isdigit() and "-" in step.time else step.time,
            step.who,
            step.event,
            step.place,
        )
        for step in words.steps(links, MAX_CHAIN)
    ]


def alternatives(diagnosis: Diagnosis, titles: dict[str, str]) -> list[Setting]:
    """Causes that lost, and what speaks against them."""
    return [
        Setting(
            titles.get(other.cause, other.cause),
            words.sentence(other.why_not[:1].upper() + other.why_not[1:]),
            f"{other.cause}, {other.confidence} confidence",
        )
        for other in diagnosis.alternatives
    ]


def capture(diagnosis: Diagnosis) -> list[Setting]:
    """What would settle the question, and how to get it next time."""
    return [
        Setting(item.what[:1].upper() + item.what[1:], item.how if item.how != item.what else "")
        for item in diagnosis.missing_evidence
    ]
