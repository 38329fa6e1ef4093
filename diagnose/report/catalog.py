"""The catalog for people: a listing, one entry in full, one cause class explained."""

from __future__ import annotations

from dataclasses import fields
from itertools import groupby

from rich.console import Console
from rich.text import Text

from diagnose.catalog.entries import Named
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Condition,
    KnownIssue,
    Remedy,
    Run,
    Setting,
    Signature,
)
from diagnose.report import words
from diagnose.report.safe import clean

KNOWN_ISSUE = "known-issue"  # what stands in the role column for a known issue

_CULPRITS = {
    "self": "the rank or host that printed it",
    "captured": "the rank or host it names",
    "complement": "the ranks that did not print it",
}


def listing(catalog: Catalog, *, cause: str | None = None, role: str | None = None) -> str:
    """One line per entry, sorted by id: id, role, class, title; columns aligned by blanks.

    `role` is a causal role or `known-issue`.
    """
    rows = [
        (entry.id, str(entry.role), entry.cause or "-", entry.title) for entry in catalog.signatures
    ]
    rows += [(entry.id, KNOWN_ISSUE, entry.cause, entry.title) for entry in catalog.known_issues]
    rows = [row for row in rows if cause in (None, row[2]) and role in (None, row[1])]
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        + f"  {clean(row[3])}\n"
        for row in sorted(rows)
    )


def render(found: Named, catalog: Catalog, console: Console) -> None:
    """What the catalog has under a name."""
    if isinstance(found, CauseClass):
        render_class(found, catalog, console)
    elif isinstance(found, Setting):
        render_setting(found, console)
    else:
        render_entry(found, console)


def render_entry(entry: Signature | KnownIssue, console: Console) -> None:
    """Everything a user wants to know of an entry before relying on it."""
    page = _Page(console)
    page.title(entry.id, entry.title)
    if isinstance(entry, Signature):
        page.field("role", entry.role)
        page.field("class", entry.cause)
        page.field("strength", entry.strength)
        page.field("phase", entry.phase or "")
        page.field("to blame", _CULPRITS.get(entry.culprit, ""))
        page.field("explains", ", ".join(entry.explains))
        page.items("Matches any of", entry.match)
        page.items("Unless the line also has", entry.unless)
        if entry.not_evidence_of:
            page.text("Limits", f"A match does not prove {entry.not_evidence_of}")
    else:
        page.field("role", KNOWN_ISSUE)
        page.field("class", entry.cause)
        page.field("confidence", entry.confidence)
        page.paragraph(words.sentence(entry.summary))
        page.items("All of", [_condition(c) for c in entry.all])
        page.items("At least one of", [_condition(c) for c in entry.any])
        page.items("None of", [_condition(c) for c in entry.none])
    page.remedies(entry.remedies)
    if entry.restart:
        page.items("Restart", [words.sentence(words.RESTART[entry.restart])])
    page.items("References", entry.references)


def render_class(cause: CauseClass, catalog: Catalog, console: Console) -> None:
    """A cause class: what it means, default advice, and the entries that lead to it."""
    page = _Page(console)
    page.title(cause.id, cause.title)
    page.paragraph(cause.explanation)
    page.remedies(cause.remedies)
    page.items("Restart", [words.joined(words.RESTART[cause.restart], cause.restart_why)])
    page.items("Would a longer timeout help?", [words.longer_timeout_of(cause)])
    page.items("Collect this next time", [*cause.capture_stacks, *cause.capture])
    entries: list[Signature | KnownIssue] = [*catalog.signatures, *catalog.known_issues]
    mine = [f"{entry.id}: {entry.title}" for entry in entries if entry.cause == cause.id]
    page.items("Signatures and known issues", mine)


def render_setting(setting: Setting, console: Console) -> None:
    """A setting, where each framework has it, and the page that says so."""
    page = _Page(console)
    page.title(setting.id, setting.title)
    page.paragraph(setting.about)
    for framework, places in groupby(setting.places, lambda place: place.run.framework):
        page.heading(framework or "Any other")
        for place in places:
            page.run(place.run, f"In {place.run.file}" if place.run.file else "")
            page.line(place.reference, style="dim", start="      ")


class _Page:
    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: str, *, style: str = "", start: str = "", start_style: str = "") -> None:
        """One line. Catalogs can be somebody else's, so their text is cleaned like a log's."""
        line = Text().append(start, start_style).append(clean(text), style)
        self.console.print(line, soft_wrap=True)

    def title(self, name: str, title: str) -> None:
        self.line(title, start=f"{clean(name)}  ", start_style="bold")

    def field(self, label: str, text: str) -> None:
        if text:
            self.line(text, start=f"  {label:<12}", start_style="dim")

    def heading(self, text: str) -> None:
        self.line("")
        self.line(text, style="bold underline")

    def paragraph(self, text: str, start: str = "  ") -> None:
        width = max(20, min(110, self.console.width - 1) - len(start))
        for line in Text(clean(text)).wrap(self.console, width):
            self.line(line.plain, start=start)

    def text(self, heading: str, text: str) -> None:
        if text:
            self.heading(heading)
            self.paragraph(words.sentence(text))

    def items(self, heading: str, items: list[str]) -> None:
        """Lines as they are: patterns and URLs are there to be copied."""
        if items:
            self.heading(heading)
            for item in items:
                self.line(item, start="  ")

    def remedies(self, steps: list[Remedy]) -> None:
        for group, heading in words.REMEDY_GROUPS.items():
            mine = [step for step in steps if step.when == group]
            if mine:
                self.heading(heading)
            for step in mine:
                self.paragraph(words.joined(step.do, step.why))
                caution = words.caution(step)
                if caution:
                    self.paragraph(caution)
                for label, run in words.runs_of(step):
                    self.run(run, label)
                if step.setting:
                    self.line("Where each framework has it:", style="dim", start="      ")
                    self.line(f"diagnose explain {step.setting}", style="cyan", start="      ")

    def run(self, run: Run, label: str) -> None:
        """What to copy, as it is, and above it what it is."""
        if label:
            self.line(f"{label}:", style="dim", start="      ")
        for line in run.lines:
            if run.kind == "note":
                self.paragraph(line, start="      ")
            else:
                self.line(line, style="cyan", start="      ")


def _condition(condition: Condition) -> str:
    """`phase: init or training`."""
    return "; ".join(
        f"{part.name}: {' or '.join(getattr(condition, part.name))}"
        for part in fields(condition)
        if getattr(condition, part.name)
    )
