"""Checkpoints for the terminal: which are intact, what is wrong with the others, how to resume."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from diagnose.checkpoint.model import STATE_WORDS, Checkpoint, Inspection, Lost, newest
from diagnose.redact.redactor import secrets_only
from diagnose.report import words
from diagnose.report.safe import each, learn, shown
from diagnose.report.terminal import Page
from diagnose.text.ranks import plural

MAX_ROWS = 40  # checkpoints in the table
MAX_DAMAGED = 10  # whose reasons are listed
MAX_REASONS = 8  # of one checkpoint

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
    base = words.common_folder(found)
    last = newest(found) or found[-1]
    state, style = STATE_WORDS[last.state].upper(), f"bold {_STYLE[last.state]}"
    text = Text(headline(inspection, last, base), "bold")
    page.paragraph(text, first=f"{state}  ", indent=2, style=style)
    _table(page, found, base)
    _reasons(page, found, base)
    _notes(page, found, base)
    _resume(page, inspection, base, lost)


def headline(inspection: Inspection, last: Checkpoint, base: str) -> str:
    """The answer in a sentence: `checkpoint-300 is incomplete; resume from checkpoint-200`."""
    found, back = inspection.checkpoints, inspection.resume
    which = ", the newest," if len(found) > 1 else ""
    finding = f"{words.relative(last.path, base)}{which} is {_state(last)}"
    if back is None:
        return f"{finding}; there is no checkpoint to resume from."
    if back.path != last.path:
        return f"{finding}: resume from {words.relative(back.path, base)}{_at(back.step)}."
    others = sum(one.state != "whole" for one in found)
    also = f"; {others} of {len(found)} are not" if others else ""
    return f"{finding}{also}: resume from it{_at(back.step)}."


def _state(one: Checkpoint) -> str:
    return STATE_WORDS[one.state]


def _at(step: int | None) -> str:
    return "" if step is None else f" (step {step:,})"


def chosen(found: Sequence[Checkpoint], most: int) -> Sequence[Checkpoint]:
    """At most so many of them, in their order: what is wrong, and the newest."""
    if len(found) <= most:
        return found
    bad = [one for one in found if one.state != "whole"][-most // 2 :]
    rest = [one for one in found if one.state == "whole"][-(most - len(bad)) :]
    keep = {one.path for one in (*bad, *rest)}
    return [one for one in found if one.path in keep]


def _table(page: Page, found: Sequence[Checkpoint], base: str) -> None:
    shown = chosen(found, MAX_ROWS)
    heads = ["checkpoint", "layout", "step", "ranks", "files", "size"]
    rows = [
        [words.relative(one.path, base), one.layout, _number(one.step), _number(one.ranks),
         f"{one.files:,}", words.size(one.bytes)]
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
    if damaged:
        page.heading("What is wrong")
    for one in damaged[-MAX_DAMAGED:]:
        text = Text.assemble((words.relative(one.path, base), "bold"), f" is {_state(one)}")
        page.paragraph(text, first="  ")
        reasons = words.folded_reasons(one.reasons)
        for reason in reasons[:MAX_REASONS]:
            page.paragraph(Text(words.sentence(reason)), first="    - ")
        page.more(len(reasons) - MAX_REASONS, indent=6)
    page.more(len(damaged) - MAX_DAMAGED, indent=6)


def _notes(page: Page, found: Sequence[Checkpoint], base: str) -> None:
    noted = [(one, note) for one in found for note in one.notes]
    if noted:
        page.heading("Notes")
    for one, note in noted[:MAX_REASONS]:
        text = Text.assemble((words.relative(one.path, base), "bold"), f": {words.sentence(note)}")
        page.paragraph(text, first="  ", indent=4)
    page.more(len(noted) - MAX_REASONS, indent=6)


def _resume(page: Page, inspection: Inspection, base: str, lost: Lost | None) -> None:
    page.heading("Resume")
    back = inspection.resume
    if back is None:
        text = "No usable checkpoint. Restart from scratch, or restore a backup and "
        page.paragraph(Text(f"{text}re-run this check."), first="  ")
        return
    page.paragraph(Text(f"From {words.relative(back.path, base)}{_at(back.step)}:"), first="  ")
    page.verbatim(back.how, 4, "cyan")
    if lost is not None:
        page.paragraph(Text(sentence_of(lost)), first="  ")


def sentence_of(lost: Lost) -> str:
    """What a restart repeats, as a sentence."""
    cost = "" if lost.gpu_hours is None else f" (about {lost.gpu_hours:,.1f} GPU-hours)"
    steps = f"{lost.steps:,} {plural(lost.steps, 'step')}"
    return f"Resuming repeats {steps}{cost}; last logged step {lost.last:,}."
