"""The command `triage`: one job, its verdict on the screen or as text."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.job import diagnosed, end
from diagnose.cli.options import Checkpoints, ColorOption, ExitCode, Paths, Patterns, Workers
from diagnose.cli.output import Color, show, write

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis
    from diagnose.job.model import Job


class Format(StrEnum):
    """What `triage` prints."""

    terminal = "terminal"
    json = "json"
    markdown = "markdown"


def triage(
    paths: Paths = None,
    output: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.terminal,
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
    checkpoints: Checkpoints = None,
    workers: Workers = 1,
    exit_code: ExitCode = False,
    no_redact: Annotated[
        bool,
        typer.Option("--no-redact", help="Do not mask secrets and names in the Markdown."),
    ] = False,
) -> None:
    """Diagnose one job from its logs, or from text pasted on standard input."""
    job, diagnosis = diagnosed(paths, patterns or (), checkpoints or (), workers)
    _show(job, diagnosis, output, color, redact=not no_redact)
    end(diagnosis, exit_code=exit_code)


def _show(job: Job, diagnosis: Diagnosis, output: Format, color: Color, *, redact: bool) -> None:
    from diagnose.report.html.context import learn
    from diagnose.report.redact import Redactor, secrets_only

    if output is Format.markdown:
        from diagnose.report import markdown

        redactor = learn(job, diagnosis, Redactor()) if redact else None
        write(markdown.render(diagnosis, redact=redact, redactor=redactor))
        return
    redactor = learn(job, diagnosis, secrets_only())
    if output is Format.json:
        from diagnose.report.safe import escaped, masked

        write(escaped(masked(diagnosis, redactor).to_json()) + "\n", encoding="utf-8")
    else:
        from diagnose.report import terminal

        show(color, lambda console: terminal.render(diagnosis, console, redactor))
