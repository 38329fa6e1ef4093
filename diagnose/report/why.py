"""Why this verdict: the reasons of a diagnosis as tables that a person reads from the top.

Input is a diagnosis made `safe`. The terminal, Markdown and the page share these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diagnose.diagnosis import STEPS, Reason, Step
from diagnose.report import words

if TYPE_CHECKING:
    from diagnose.report.terminal import Page

TITLE = "Why this verdict"
_Cell = Callable[[Reason], str]
_HEADINGS: Mapping[Step, str] = {
    "verdict": "The verdict",
    "culprits": "Who is named, and who is not",
    "confidence": "How sure it is",
    "rival": "Rivals, and what they lost to",
    "proposal": "What the rules proposed",
    "event": "Events that counted, or did not",
    "attempt": "Attempts",
}
# The columns of a step after that of the outcome; one that is empty in all rows is left out.
_SUBJECT: Mapping[Step, str] = {
    "verdict": "verdict, class", "culprits": "who", "confidence": "level", "rival": "class",
    "proposal": "class", "event": "event", "attempt": "attempt",
}  # fmt: skip
_BESIDE: tuple[tuple[str, _Cell], ...] = (
    ("lost to", lambda reason: reason.beaten_by or ""),
    ("rule", lambda reason: reason.rule or ""),
    ("predicate", lambda reason: "" if reason.predicate == reason.rule else reason.predicate),
    ("score", lambda reason: "" if reason.score is None else f"{reason.score:g}"),
    ("lines", lambda reason: f"{reason.count:,}" if reason.step == "event" else ""),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A reason: its cells, the sentence, and where it is seen (the entry of the catalog, lines)."""

    cells: list[str]
    text: str
    seen: str


@dataclass(frozen=True, slots=True)
class Table:
    """The reasons of one step."""

    heading: str
    heads: list[str]
    rows: list[Row]


def tables(reasons: Sequence[Reason]) -> list[Table]:
    """A table for each step that left reasons, in the order in which a person asks."""
    return [
        _table(step, own) for step in STEPS if (own := [one for one in reasons if one.step == step])
    ]


def _table(step: Step, reasons: Sequence[Reason]) -> Table:
    beside = [(head, cell) for head, cell in _BESIDE if any(map(cell, reasons))]
    rows = [
        Row(
            [
                one.outcome.replace("_", " "),
                one.subject,
                *(cell(one) for _, cell in beside),
            ],
            words.sentence(one.text[:1].upper() + one.text[1:] if _prose(one) else one.text),
            _seen(one),
        )
        for one in reasons
    ]
    return Table(_HEADINGS[step], ["outcome", _SUBJECT[step], *(head for head, _ in beside)], rows)


def _prose(reason: Reason) -> bool:
    """Whether the sentence begins with a word of ours, and not with that of a log or an entry."""
    return reason.step not in ("event", "proposal") and reason.outcome != "won"


def _seen(reason: Reason) -> str:
    """`gpu.oom at rank1.log:4, :9 and 3 more`, as far as it is known."""
    lines = words.places(reason.places)
    more = reason.count - len(reason.places)
    if lines and more > 0:
        lines += f" and {more:,} more"
    entry = reason.signature if reason.signature != reason.subject else None
    return " at ".join(part for part in (entry, lines) if part)


def print_tables(page: Page, reasons: Sequence[Reason]) -> None:
    """The tables on a terminal: below each row its sentence, beside it where there is room."""
    from rich.text import Text  # noqa: PLC0415  slow to import

    page.heading(TITLE)
    for table in tables(reasons):
        page.blank()
        page.paragraph(Text(table.heading, style="bold"), first="  ")
        widths = _widths(table, page.full - 4)
        page.paragraph(Text(_line(table.heads, widths), style="dim"), first="    ")
        for row in table.rows:
            page.paragraph(Text(_line(row.cells, widths)), first="    ")
            hang = 4 + widths[0] + 2
            page.paragraph(Text(row.text, style="dim"), first=" " * hang)
            if row.seen:
                page.paragraph(Text(row.seen, style="magenta"), first=" " * hang)


def _widths(table: Table, room: int) -> list[int]:
    """The widths of columns; what does not fit is taken from that of the subject."""
    cells = [table.heads, *(row.cells for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    over = sum(widths) + 2 * (len(widths) - 1) - room
    widths[1] = max(12, widths[1] - max(0, over))
    return widths


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = [
        cell if len(cell) <= width else f"{cell[: width - 1]}…"
        for cell, width in zip(cells, widths, strict=True)
    ]
    padded = [f"{cell:<{width}}" for cell, width in zip(shown, widths, strict=True)]
    return "  ".join(padded).rstrip()
