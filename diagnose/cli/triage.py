"""The command `triage`: one job, its verdict on the screen or as text."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from diagnose.cli.job import FailOn, diagnosed, end, failing
from diagnose.cli.options import Checkpoints, ColorOption, ExitCode, Paths, Patterns, Workers
from diagnose.cli.output import Color, console, write
from diagnose.errors import InputError
from diagnose.report import RENDERERS, Wish, rendered

Format = StrEnum("Format", {name: name for name in RENDERERS})  # type: ignore[misc]

_WITH_REASONS = ("terminal", "markdown", "json")  # JSON always has the reasons


def triage(
    paths: Paths = None,
    output: Annotated[Format, typer.Option("--format", help="Output format.")] = Format("terminal"),
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
    checkpoints: Checkpoints = None,
    workers: Workers = None,
    exit_code: ExitCode = False,
    fail_on: FailOn = None,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="Show how the verdict came about: rules, rivals, events, with their lines.",
        ),
    ] = False,
    no_redact: Annotated[
        bool,
        typer.Option(
            "--no-redact", help="Do not mask secrets and names in what is made to be passed on."
        ),
    ] = False,
) -> None:
    """Diagnose one job from its logs, or from a paste.

    A paste is text on standard input.
    """
    if why and output.value not in _WITH_REASONS:
        raise InputError(f"--why needs one of the formats {', '.join(_WITH_REASONS)}")
    fails = failing(fail_on, patterns, exit_code=exit_code)
    job, diagnosis = diagnosed(paths, patterns or (), checkpoints or (), workers)
    wish = Wish(redact=not no_redact, why=why, console=lambda: console(color))
    text, encoding = rendered(output.value, job, diagnosis, wish)
    write(text, encoding=encoding)
    end(diagnosis, fails)
