"""The catalog for people: a listing, one entry in full, one cause class explained."""

from __future__ import annotations

from collections.abc import Iterable
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
from diagnose.report.safe import clean, each
from diagnose.report.terminal import Page

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
    """What the catalog has under a name. Catalogs can be somebody else's: text is made clean."""
    page = _Page(console)
    found = each(found, lambda text, _: clean(text))
    page.line(Text.assemble((f"{found.id}  ", "bold"), found.title))
    if isinstance(found, CauseClass):
        _class(found, catalog, page)
    elif isinstance(found, Setting):
        _setting(found, page)
    else:
        _entry(found, page)


def _entry(entry: Signature | KnownIssue, page: _Page) -> None:
    """Everything a user wants to know of an entry before relying on it."""
    if isinstance(entry, Signature):
        page.fact("role", entry.role)
        page.fact("class", entry.cause or "")
        page.fact("strength", entry.strength)
        page.fact("phase", entry.phase or "")
        page.fact("to blame", _CULPRITS.get(entry.culprit, ""))
        page.fact("explains", ", ".join(entry.explains))
        page.items("Matches any of", entry.match)
        page.items("Unless the line also has", entry.unless)
        if entry.not_evidence_of:
            page.heading("Limits")
            page.text(words.sentence(f"A match does not prove {entry.not_evidence_of}"))
    else:
        page.fact("role", KNOWN_ISSUE)
        page.fact("class", entry.cause)
        page.fact("confidence", entry.confidence)
        page.text(words.sentence(entry.summary))
        page.items("All of", map(_condition, entry.all))
        page.items("At least one of", map(_condition, entry.any))
        page.items("None of", map(_condition, entry.none))
    page.remedies(entry.remedies)
    if entry.restart:
        page.items("Restart", [words.sentence(words.RESTART[entry.restart])])
    page.items("References", entry.references)


def _class(cause: CauseClass, catalog: Catalog, page: _Page) -> None:
    """A cause class: what it means, default advice, and the entries that lead to it."""
    page.text(cause.explanation)
    page.remedies(cause.remedies)
    page.items("Restart", [words.joined(words.RESTART[cause.restart], cause.restart_why)])
    page.items("Would a longer timeout help?", [words.longer_timeout_of(cause)])
    page.items("Collect this next time", [*cause.capture_stacks, *cause.capture])
    entries: list[Signature | KnownIssue] = [*catalog.signatures, *catalog.known_issues]
    mine = [clean(f"{entry.id}: {entry.title}") for entry in entries if entry.cause == cause.id]
    page.items("Signatures and known issues", mine)


def _setting(setting: Setting, page: _Page) -> None:
    """A setting, where each framework has it, and the page that says so."""
    page.text(setting.about)
    for framework, places in groupby(setting.places, lambda place: place.run.framework):
        page.heading(framework or "Any other")
        for place in places:
            page.run(place.run, f"In {place.run.file}" if place.run.file else "")
            page.verbatim(place.reference, 6, "dim")


class _Page(Page):
    """A page of an entry; what is there to be copied is never broken."""

    def fact(self, label: str, text: str) -> None:
        if text:
            self.line(Text.assemble((f"  {label:<12}", "dim"), text))

    def text(self, text: str, indent: int = 2) -> None:
        self.paragraph(Text(text), first=" " * indent)

    def items(self, heading: str, items: Iterable[str]) -> None:
        for number, item in enumerate(items):
            if not number:
                self.heading(heading)
            self.line(Text(f"  {item}"))

    def remedies(self, steps: list[Remedy]) -> None:
        for group, heading in words.REMEDY_GROUPS.items():
            mine = [step for step in steps if step.when == group]
            if mine:
                self.heading(heading)
            for step in mine:
                self.text(words.joined(step.do, step.why))
                if caution := words.caution(step):
                    self.text(caution)
                for label, run in words.runs_of(step):
                    self.run(run, label)
                if step.setting:
                    self.verbatim("Where each framework has it:", 6, "dim")
                    self.verbatim(f"diagnose explain {step.setting}", 6, "cyan")

    def run(self, run: Run, label: str) -> None:
        """What to copy, as it is, and above it what it is."""
        if label:
            self.verbatim(f"{label}:", 6, "dim")
        for line in run.lines:
            if run.kind == "note":
                self.text(line, 6)
            else:
                self.verbatim(line, 6, "cyan")


def _condition(condition: Condition) -> str:
    """`phase: init or training`."""
    return "; ".join(
        f"{part.name}: {' or '.join(getattr(condition, part.name))}"
        for part in fields(condition)
        if getattr(condition, part.name)
    )
