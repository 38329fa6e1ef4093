"""The checkpoints of a job: which are whole, and what is wrong with the others."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.checkpoint.model import STATE_WORDS, Checkpoint, Inspection
from diagnose.report import words
from diagnose.report.checkpoint import common, folded, name
from diagnose.report.html.scrub import Scrub

MAX_ROWS = 60
MAX_REASONS = 6


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint as text; `chosen` marks the one to resume from."""

    name: str
    layout: str
    step: str
    files: str
    size: str
    state: str
    reasons: list[str]
    chosen: bool


def checkpoints(inspection: Inspection | None, scrub: Scrub) -> list[CheckpointRow]:
    """The newest MAX_ROWS of them, in their order."""
    if inspection is None:
        return []
    base = common(inspection.checkpoints)
    back = inspection.resume.path if inspection.resume else None
    return [_row(one, base, back, scrub) for one in inspection.checkpoints[-MAX_ROWS:]]


def _row(one: Checkpoint, base: str, back: str | None, scrub: Scrub) -> CheckpointRow:
    lines = folded(one.reasons)
    reasons = [words.sentence(scrub.text(reason, 300)) for reason in lines[:MAX_REASONS]]
    if len(lines) > MAX_REASONS:
        reasons.append(f"… and {len(lines) - MAX_REASONS} more.")
    return CheckpointRow(
        scrub.text(name(one, base), 200),
        one.layout,
        "" if one.step is None else f"{one.step:,}",
        f"{one.files:,}",
        words.size(one.bytes),
        STATE_WORDS[one.state],
        reasons,
        one.path == back,
    )
