"""A comparison of two runs for the terminal, as JSON and as a page: what differs, and where."""

from __future__ import annotations

import json

from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from diagnose import __version__
from diagnose.comparison.model import Comparison, Difference, Run
from diagnose.diagnosis import WELL, SourceLine
from diagnose.redact.redactor import Redactor, secrets_only
from diagnose.report.html.shell import asset, embedded, policy, template
from diagnose.report.safe import each, escaped, learn, masked_strings, shown
from diagnose.report.terminal import Page
from diagnose.report.words import place
from diagnose.text.ranks import counted

_TEXT = 120  # characters of a value or a line
_PAGE = 200  # differences on a page
_ABSENT = {"environment": "not set", "argument": "not given"}


def known(comparison: Comparison, redactor: Redactor) -> Redactor:
    """`redactor`, which now knows the secrets in a comparison: a value is one by its name."""
    learn(comparison, redactor)
    for one in comparison.differences:
        for value in (one.good, one.bad):
            if one.name and value:
                redactor.learn(f"{one.name}={value}")
    return redactor


def safe(comparison: Comparison, redactor: Redactor | None) -> Comparison:
    """A copy whose every string is clean, masked and bounded."""
    if redactor is not None:
        known(comparison, redactor)
    return each(comparison, lambda text, _: shown(text, redactor, _TEXT))


def as_json(comparison: Comparison) -> str:
    """Schema `diagnose-compare/1`, secrets masked."""
    masked = masked_strings(comparison, known(comparison, secrets_only()))
    return escaped(json.dumps(masked.to_dict(), ensure_ascii=False, indent=2))


# --- in words -------------------------------------------------------------------------------------


def headline(comparison: Comparison) -> str:
    """How much differs, in a sentence."""
    count = len(comparison.differences)
    if not count:
        return "Nothing that these logs show differs between the two runs"
    left = count - comparison.worth_reading
    more = f", of {count:,}" if left > 0 else ""
    return f"{counted(comparison.worth_reading, 'difference')}{more}, the most telling first"


def outcome(run: Run) -> str:
    """What became of a run."""
    parts: list[str] = [run.verdict]
    if run.verdict not in WELL:
        parts = [f"{run.verdict}: {run.title} ({run.confidence} confidence)"]
    parts += [counted(run.ranks, "rank")] if run.ranks else []
    parts += [counted(run.hosts, "host")] if run.hosts else []
    parts += [f"step {run.last_step:,}"] if run.last_step is not None else []
    return ", ".join([*parts, counted(run.lines, "line")])


def label(one: Difference) -> str:
    """What differs."""
    who = f" of {one.who}" if one.who else ""
    names = {
        "version": f"version of {one.name}",
        "environment": one.name,
        "argument": one.name if one.name.startswith("-") else f"argument {one.name}",
        "ranks": "number of ranks",
        "node": "nodes",
        "nodes": "all nodes",
        "collective": one.name,
        "changed": "line changed",
        "new": f"new line{_times(one)}",
        "gone": f"line gone{_times(one)}",
        "pace": f"{one.name} takes {one.ratio:g} times as long" if one.ratio else one.name,
        "faster": f"{one.name} is faster",
        "more": f"line {one.ratio:g} times as often" if one.ratio else "line more often",
    }
    return names[one.kind] + who


def _times(one: Difference) -> str:
    return f" ({one.count:,} times)" if one.count > 1 else ""


def change(one: Difference) -> str:
    """From what to what."""
    if one.kind in ("new", "gone"):
        return one.bad or one.good or ""
    if one.kind == "more":
        return f"{one.good} → {one.bad}: {one.name}"
    absent = _ABSENT.get(one.kind, "none")
    both = (absent if text is None else text or "given" for text in (one.good, one.bad))
    return " → ".join(both)


def places(one: Difference) -> str:
    """Where it is seen: the line of the bad run, or else of the good one."""
    if one.bad_at is None:
        return f"good: {_place(one.good_at)}" if one.good_at else ""
    return f"bad: {_place(one.bad_at)}"


def _place(at: SourceLine | None) -> str:
    return place(at.source, at.line) if at else ""


def _runs(found: Comparison) -> list[tuple[str, Run]]:
    return [("good run", found.good), ("bad run", found.bad)]


# --- the terminal ---------------------------------------------------------------------------------


def render(comparison: Comparison, console: Console, *, everything: bool = False) -> None:
    """Print a comparison, with `everything` all differences; notes are left to the caller."""
    page = Page(console)
    found = safe(comparison, secrets_only())
    page.paragraph(Text(headline(found), style="bold"), first="COMPARE  ", indent=2, style="bold")
    page.blank()
    for name, run in _runs(found):
        page.field(name, f"{run.name}: {outcome(run)}")
    most = len(found.differences) if everything else found.worth_reading
    if most:
        page.blank()
    wide = len(str(most))
    for number, one in enumerate(found.differences[:most], 1):
        text = Text.assemble((label(one), "bold"), f": {change(one)}")
        if places(one):
            text.append(f"  ({places(one)})", style="dim")
        page.paragraph(text, first=f"  {number:>{wide}}  ", indent=wide + 4)
    left = len(found.differences) - most
    if left > 0:
        page.paragraph(Text(f"… and {left:,} more with --all", style="dim"), first="  ")


# --- the page -------------------------------------------------------------------------------------


def html(comparison: Comparison, *, title: str | None = None, redact: bool = True) -> str:
    """A page in the look of the post-mortem, in one file."""
    found = safe(comparison, Redactor() if redact else None)
    style, script = asset("style.css"), asset("js/base.js")
    text: str = template("compare.html.j2").render(
        policy=policy([script], style),
        style=Markup(style),
        script=Markup(script),
        data=embedded({}),
        title=shown(title, Redactor() if redact else None, 200) if title else "",
        headline=headline(found),
        runs=[(name, run, outcome(run)) for name, run in _runs(found)],
        rows=[
            (label(one), change(one), [_place(at) for at in (one.good_at, one.bad_at)])
            for one in found.differences[:_PAGE]
        ],
        telling=found.worth_reading,
        left=max(0, len(found.differences) - _PAGE),
        notes=found.notes,
        version=__version__,
        redact=redact,
    )  # fmt: skip
    return text
