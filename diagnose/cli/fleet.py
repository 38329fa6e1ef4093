"""The command `fleet`: what fails in the jobs that `scan` has read.

Heavy imports stand inside the command, as in all of `cli`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.options import ColorOption, Patterns, Title, file_path, path
from diagnose.cli.output import Color, clean, note, say, show, write
from diagnose.runtime.files import write_text
from diagnose.text.ranks import counted

if TYPE_CHECKING:
    from diagnose.fleet.summary import Fleet


By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="WHAT",
        help="Group by cause, host, week, or a label that --label of scan took from the path.",
    ),
]


Page = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", parser=file_path, help="Also write the report as an HTML page."
    ),
]
Table = Annotated[
    Path | None,
    typer.Option(
        "--table",
        metavar="FILE",
        parser=file_path,
        help="Also write the table of all jobs: Parquet, or CSV where FILE ends in .csv.",
    ),
]


class FleetFormat(StrEnum):
    """What `fleet` prints."""

    terminal = "terminal"
    json = "json"
    csv = "csv"
    slurm_exclude = "slurm-exclude"


def fleet(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS", parser=path, help="Results folder written by `diagnose scan`."
        ),
    ],
    by: By = "cause",
    output: Annotated[
        FleetFormat, typer.Option("--format", help="Output format.")
    ] = FleetFormat.terminal,
    page: Page = None,
    table: Table = None,
    reports: Annotated[
        int,
        typer.Option(
            "--reports", metavar="N", min=0, help="Write post-mortems of the N worst jobs."
        ),
    ] = 0,
    title: Title = None,
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Do not mask secrets in the page.")
    ] = False,
) -> None:
    """Summarise scanned jobs: failures, cost, suspect nodes."""
    from diagnose.batch.results import export, folder_of
    from diagnose.catalog.load import load_catalog
    from diagnose.fleet import read, summarise

    catalog = load_catalog(patterns or ())
    titles = {name: cause.title for name, cause in catalog.classes.items()}
    folder = folder_of(results)
    jobs = read(folder)
    if table is not None:
        export(folder, table)
        say(f"wrote {clean(str(table))}")
    if reports:
        from diagnose.fleet.reports import write_reports

        given = tuple(str(path) for path in patterns or ())
        count = write_reports(
            jobs, folder, reports, patterns=given, redact=not no_redact, warn=note
        )
        say(f"{counted(count, 'post-mortem')} in {clean(str(folder / 'reports'))}")
    found = summarise(jobs, by=by, titles=titles, results=folder, node_causes=catalog.node_causes)
    if page is not None:
        _write_page(found, page, folder, title, redact=not no_redact)
    _print(found, output, color)


def _write_page(found: Fleet, page: Path, folder: Path, title: str | None, *, redact: bool) -> None:
    from diagnose.report.fleet import html

    links = html.link_base(page, folder)
    write_text(page, html.render(found, links=links, title=title, redact=redact))
    say(f"wrote {clean(str(page))}")


def _print(found: Fleet, output: FleetFormat, color: Color) -> None:
    from diagnose.report.fleet import terminal, words

    if output is FleetFormat.terminal:
        show(color, lambda console: terminal.render(found, console))
    elif output is FleetFormat.slurm_exclude:
        write(words.slurm_exclude(found))
    elif output is FleetFormat.json:
        write(words.as_json(found) + "\n", encoding="utf-8")
    else:
        write(words.as_csv(found), encoding="utf-8")
