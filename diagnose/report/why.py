"""Why this verdict: the reasons of a diagnosis as tables that a person reads from the top.

Input is a diagnosis made `safe`. The terminal, Markdown and the page share these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diagnose.diagnosis import STEPS, Reason, Step
from diagnose.report import words
from diagnose.report.safe import cut

if TYPE_CHECKING:
    from diagnose.report.terminal import Page


TITLE = "Why this verdict"
BESIDE = 60  # columns that a sentence needs beside the cells of its row
_SUBJECT_WIDTH = (24, 48)  # columns that a class or a signature gets, at least and at most
_HEADINGS: Mapping[Step, str] = {
    "verdict": "The verdict",
    "culprits": "Who is named, and who is not",
    "confidence": "How sure it is",
    "rival": "Rivals, and what they lost to",
    "proposal": "What the rules proposed",
    "event": "Events that counted, or did not",
    "attempt": "Attempts",
}


_CELLS: Mapping[str, Callable[[Reason], str]] = {
    "subject": lambda one: one.subject,
    "tier": lambda one: one.tier or "",
    "rule": lambda one: one.rule or "",
    "predicate": lambda one: "" if one.predicate == one.rule else one.predicate,
    "beaten_by": lambda one: one.beaten_by or "",
    "count": lambda one: f"{one.count:,}",
}
# The columns of each step behind that of the outcome, the subject first. What is empty in all rows
# is left out.
_COLUMNS: Mapping[Step, Mapping[str, str]] = {
    "verdict": {
        "verdict, class": "subject", "rule": "rule", "predicate": "predicate", "tier": "tier",
    },
    "culprits": {"who": "subject", "predicate": "predicate"},
    "confidence": {"level": "subject", "predicate": "predicate"},
    "rival": {"class": "subject", "lost to": "beaten_by", "predicate": "predicate", "tier": "tier"},
    "proposal": {
        "class": "subject", "rule": "rule", "predicate": "predicate", "yields to": "beaten_by",
        "tier": "tier",
    },
    "event": {"event": "subject", "predicate": "predicate", "lines": "count"},
    "attempt": {"attempt": "subject", "predicate": "predicate"},
}  # fmt: skip


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
    columns = {
        head: _CELLS[name]
        for head, name in _COLUMNS[step].items()
        if name == "subject" or any(map(_CELLS[name], reasons))
    }
    rows = [
        Row(
            [one.outcome.replace("_", " "), *(cell(one) for cell in columns.values())],
            words.sentence(words.capital(one.text) if _prose(one) else one.text),
            _seen(one),
        )
        for one in reasons
    ]
    return Table(_HEADINGS[step], ["outcome", *columns], rows)


def _prose(reason: Reason) -> bool:
    """Whether the sentence begins with a word of ours: not of a log, an entry or a class."""
    ours = reason.step not in ("event", "proposal") and reason.outcome != "won"
    return ours and "." not in reason.text.partition(" ")[0]


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
        page.paragraph(Text(_line(table.heads, widths), style="dim"), first="    ", full=True)
        for row in table.rows:
            _print_row(page, row, widths)


def _print_row(page: Page, row: Row, widths: Sequence[int]) -> None:
    """A row with its sentence: beside the cells where there is room, else below them."""
    from rich.text import Text  # noqa: PLC0415  slow to import

    cells, beside = f"    {_line(row.cells, widths)}", 4 + sum(widths) + 2 * len(widths)
    hang = beside if page.full - beside >= BESIDE else 4 + widths[0] + 2
    sentence = Text(row.text, style="dim")
    if hang == beside and row.text:
        page.paragraph(sentence, first=f"{cells:<{beside}}", full=True)
    else:
        page.paragraph(Text(cells.strip()), first="    ", full=True)
        page.paragraph(sentence, first=" " * hang)
    if row.seen:
        page.paragraph(Text(row.seen, style="magenta"), first=" " * hang, full=True)


def _widths(table: Table, room: int) -> list[int]:
    """The widths of columns; what does not fit is taken from that of the subject.

    Where that is too little, the last column is left out: it is a tier or a count.
    """
    cells = [table.heads, *(row.cells for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths[1] = min(widths[1], _SUBJECT_WIDTH[1])
    for _ in widths[2:]:
        over = sum(widths) + 2 * (len(widths) - 1) - room
        if over <= 0 or widths[1] - over >= _SUBJECT_WIDTH[0]:
            widths[1] -= max(0, over)
            break
        widths.pop()
    return widths


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(cells, widths, strict=False)
    return "  ".join(f"{cut(cell, width):<{width}}" for cell, width in pairs).rstrip()
