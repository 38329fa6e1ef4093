"""Checkpoints for the terminal: which are intact, what is wrong with the others, how to resume."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from rich.console import Console
from rich.text import Text

from diagnose.checkpoint.model import STATE_WORDS, Checkpoint, Inspection, Lost, newest
from diagnose.redact.redactor import secrets_only
from diagnose.report import words
from diagnose.report.safe import each, learn, masked_strings, shown
from diagnose.report.terminal import Page
from diagnose.text.ranks import plural

MAX_ROWS = 40  # checkpoints in the table
MAX_DAMAGED = 10  # whose reasons are listed
MAX_REASONS = 8  # of one checkpoint
MAX_NAMED = 3  # files that are listed for the same reason

_STYLE = {"whole": "green", "partial": "red", "corrupt": "red", "unknown": "yellow"}
_STATE_WIDTH = max(map(len, STATE_WORDS.values()))


def render(inspection: Inspection, console: Console, lost: Lost | None = None) -> None:
    """Print what was found; notes are left to the caller."""
    page = Page(console)
    redactor = secrets_only()
    learn(inspection, redactor)
    inspection = each(inspection, lambda text, _: shown(text, redactor))
    found = inspection.checkpoints
    if not found:
        page.paragraph(Text("No checkpoint found."))
        return
    base = common(found)
    last = newest(found) or found[-1]
    text = Text(headline(inspection, last, base), "bold")
    page.paragraph(
        text,
        first=f"{STATE_WORDS[last.state].upper()}  ",
        indent=2,
        style=f"bold {_STYLE[last.state]}",
    )
    _table(page, found, base)
    _reasons(page, found, base)
    _resume(page, inspection, base, lost)


def headline(inspection: Inspection, last: Checkpoint, base: str) -> str:
    """The answer in a sentence: `checkpoint-300 is incomplete; resume from checkpoint-200`."""
    found, back = inspection.checkpoints, inspection.resume
    which = ", the newest," if len(found) > 1 else ""
    finding = f"{name(last, base)}{which} is {_state(last)}"
    if back is None:
        return f"{finding}; there is no checkpoint to resume from."
    if back.path != last.path:
        return f"{finding}: resume from {_relative(back.path, base)}{_at(back.step)}."
    others = sum(one.state != "whole" for one in found)
    also = f"; {others} of {len(found)} are not" if others else ""
    return f"{finding}{also}: resume from it{_at(back.step)}."


def common(found: Sequence[Checkpoint]) -> str:
    """The folder that all checkpoints have in common; what is shown is relative to it."""
    parents = [one.path.rstrip("/").split("/")[:-1] for one in found]
    parts = takewhile(lambda same: len(set(same)) == 1, zip(*parents, strict=False))
    return "/".join(same[0] for same in parts)


def name(one: Checkpoint, base: str) -> str:
    """What a checkpoint is called in the report."""
    return _relative(one.path, base)


def _relative(path: str, base: str) -> str:
    return path.removeprefix(base).strip("/") or path


def _state(one: Checkpoint) -> str:
    return STATE_WORDS[one.state]


def _at(step: int | None) -> str:
    return "" if step is None else f" (step {step:,})"


def _table(page: Page, found: Sequence[Checkpoint], base: str) -> None:
    shown = found
    if len(found) > MAX_ROWS:  # what is wrong, and the newest
        bad = [one for one in found if one.state != "whole"][-MAX_ROWS // 2 :]
        rest = [one for one in found if one.state == "whole"][-(MAX_ROWS - len(bad)) :]
        keep = {one.path for one in (*bad, *rest)}
        shown = [one for one in found if one.path in keep]
    heads = ["checkpoint", "layout", "step", "ranks", "files", "size"]
    rows = [
        [name(one, base), one.layout, _number(one.step), _number(one.ranks), f"{one.files:,}",
         words.size(one.bytes)]
        for one in shown
    ]  # fmt: skip
    page.blank()
    tails = [Text(STATE_WORDS[one.state], _STYLE[one.state]) for one in shown]
    page.table(heads, rows, tails, _STATE_WIDTH, "state")
    if len(found) > len(shown):
        page.paragraph(Text(f"… and {len(found) - len(shown)} more", "dim"), first="  ")


def _number(number: int | None) -> str:
    return "" if number is None else f"{number}"


def _reasons(page: Page, found: Sequence[Checkpoint], base: str) -> None:
    damaged = [one for one in found if one.state != "whole"]
    if not damaged:
        _notes(page, found, base)
        return
    page.heading("What is wrong")
    for one in damaged[-MAX_DAMAGED:]:
        text = Text.assemble((name(one, base), "bold"), f" is {_state(one)}")
        page.paragraph(text, first="  ")
        reasons = folded(one.reasons)
        for reason in reasons[:MAX_REASONS]:
            page.paragraph(Text(words.sentence(reason)), first="    - ")
        _more(page, len(reasons) - MAX_REASONS)
    _more(page, len(damaged) - MAX_DAMAGED)
    _notes(page, found, base)


def folded(reasons: Sequence[str]) -> list[str]:
    """Reasons, those that say the same of several files as one: `a.pt and 6 more: missing`."""
    files: dict[str, list[str]] = {}
    for reason in reasons:
        file, colon, why = reason.partition(": ")
        whose = colon and " " not in file
        files.setdefault(why if whose else reason, []).append(file if whose else "")
    return [
        f"{words.names(named, MAX_NAMED)}: {why}" if (named := [f for f in several if f]) else why
        for why, several in files.items()
    ]


def _notes(page: Page, found: Sequence[Checkpoint], base: str) -> None:
    noted = [(one, note) for one in found for note in one.notes]
    if not noted:
        return
    page.heading("Notes")
    for one, note in noted[:MAX_REASONS]:
        text = Text.assemble((name(one, base), "bold"), f": {words.sentence(note)}")
        page.paragraph(text, first="  ", indent=4)
    _more(page, len(noted) - MAX_REASONS)


def _resume(page: Page, inspection: Inspection, base: str, lost: Lost | None) -> None:
    page.heading("Resume")
    back = inspection.resume
    if back is None:
        text = (
            "No usable checkpoint. Restart from scratch, or restore a backup and re-run this check."
        )
        page.paragraph(Text(text), first="  ")
        return
    page.paragraph(Text(f"From {_relative(back.path, base)}{_at(back.step)}:"), first="  ")
    page.verbatim(back.how, 4, "cyan")
    if lost is not None:
        page.paragraph(Text(sentence_of(lost)), first="  ")


def sentence_of(lost: Lost) -> str:
    """What a restart repeats, as a sentence."""
    cost = "" if lost.gpu_hours is None else f" (about {lost.gpu_hours:,.1f} GPU-hours)"
    steps = f"{lost.steps:,} {plural(lost.steps, 'step')}"
    return f"Resuming repeats {steps}{cost}; last logged step {lost.last:,}."


def _more(page: Page, count: int) -> None:
    if count > 0:
        page.paragraph(Text(f"… and {count} more in the JSON output", "dim"), first="      ")


def masked(inspection: Inspection) -> Inspection:
    """A copy with secrets masked and nothing else changed: for JSON, which escapes by itself."""
    return masked_strings(inspection)
