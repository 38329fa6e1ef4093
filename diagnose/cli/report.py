"""The command `report`: the post-mortem of one job as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diagnose.cli.job import STDIN, FailOn, diagnosed, end, failing
from diagnose.cli.options import Checkpoints, ExitCode, Paths, Patterns, Title, Workers, file_path
from diagnose.cli.output import clean, say, write
from diagnose.files import write_text


def report(
    paths: Paths = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=file_path,
            help="Output file; - writes to stdout.",
        ),
    ] = Path("report.html"),
    title: Title = None,
    patterns: Patterns = None,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Do not mask secrets and names in the page.")
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    checkpoints: Checkpoints = None,
    workers: Workers = None,
    exit_code: ExitCode = False,
    fail_on: FailOn = None,
) -> None:
    """Write a post-mortem of one job as an HTML page."""
    fails = failing(fail_on, patterns, exit_code=exit_code)
    needed = "report.html.page"
    job, diagnosis = diagnosed(paths, patterns or (), checkpoints or (), workers, later=needed)
    from diagnose.report import html

    page = html.render(job, diagnosis, title=title, redact=not no_redact)
    if str(output) == STDIN:
        write(page, encoding="utf-8")
    else:
        write_text(output, page)
        say(f"{diagnosis.verdict.upper()}: {clean(diagnosis.root_cause.title)}")
        say(f"wrote {clean(str(output))}")
        if open_it:
            typer.launch(output.resolve().as_uri())
    end(diagnosis, fails)
