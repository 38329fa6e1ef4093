"""The commands about many jobs: `scan` reads archives, `fleet` tells what fails in them.

Heavy imports stand inside the commands, as in `cli`.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from contextlib import ExitStack
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from diagnose.cli.options import ColorOption, Patterns, file_path, named, path
from diagnose.cli.output import Color, clean, say, show, write, write_file
from diagnose.errors import InputError
from diagnose.process import INTERRUPTED

WORKER_MEMORY = 500 << 20


class Where(StrEnum):
    """What runs the jobs of a scan."""

    local = "local"
    dask = "dask"


def scan(
    archives: Annotated[
        list[str],
        typer.Argument(
            metavar="ARCHIVES", parser=named, help="Folders of jobs, archives, logs, or URLs."
        ),
    ],
    results: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", parser=path, help="Where the results go."),
    ],
    workers: Annotated[
        int, typer.Option("--workers", min=0, help="Processes; 0 is one per core.")
    ] = 0,
    executor: Annotated[
        Where, typer.Option("--executor", help="This machine, or a Dask cluster.")
    ] = Where.local,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="Of Dask: tcp://host:8786."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in results that are there; read what is new.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Newer jobs only: 2026-11-01, or 7d, 12h."),
    ] = None,
    job_glob: Annotated[
        str | None,
        typer.Option("--job-glob", metavar="GLOB", help="What one job is, below each folder."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="REGEX", help="Named groups found in a job's path become labels."
        ),
    ] = None,
    patterns: Patterns = None,
) -> None:
    """Diagnose thousands of jobs into a table; `diagnose fleet` tells what it says."""
    _need("pyarrow", "scan")
    from diagnose.batch import executors
    from diagnose.batch.jobs import find_jobs
    from diagnose.batch.progress import progress
    from diagnose.batch.results import open_results
    from diagnose.batch.run import cores
    from diagnose.batch.run import scan as run
    from diagnose.batch.work import Options

    newer = seconds_of(since, time.time()) if since else None
    refs = find_jobs(archives, job_glob=job_glob, labels=label or (), since=newer)
    folders = tuple(str(path) for path in patterns or ())
    with ExitStack() as stack:
        found = stack.enter_context(open_results(results, resume=resume, said=_note))
        found.describe(archives=archives)
        if executor is Where.dask:
            make, count = stack.enter_context(executors.dask(scheduler))
        else:
            count = workers or cores()
            make = executors.local(count)
        bound = WORKER_MEMORY if executor is Where.local else 0  # Dask's workers are not ours
        options = Options(folders, memory=bound)
        shown = progress(sys.stderr)
        summary = run(refs, found, make, workers=count, options=options, progress=shown)
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not summary.read and not summary.unchanged:
        raise InputError("no jobs found: give folders of jobs, archives or logs")
    say(f"results in {clean(str(results))}; next: diagnose fleet {clean(str(results))}")


def seconds_of(text: str, now: float) -> float:
    """Seconds since 1970 of a date, or of so many days, hours or minutes before `now`."""
    found = re.fullmatch(r"(\d{1,6})([dhm])", text)
    if found:
        return now - int(found[1]) * {"d": 86400, "h": 3600, "m": 60}[found[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise InputError(f"--since {text!r} is neither a date (2026-11-01) nor 7d or 12h") from None


def _note(text: str) -> None:
    say(f"note: {clean(text)}")


def _need(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise InputError(f"this command needs {module}: pip install 'diagnose-hangs[{extra}]'")


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
            metavar="RESULTS", parser=path, help="The folder that `diagnose scan` wrote."
        ),
    ],
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="WHAT", help="Group by cause, host, week, user-label or any label."
        ),
    ] = "cause",
    output: Annotated[
        FleetFormat, typer.Option("--format", help="What to print.")
    ] = FleetFormat.terminal,
    page: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            parser=file_path,
            help="Write the report as an HTML page, too.",
        ),
    ] = None,
    reports: Annotated[
        int,
        typer.Option("--reports", metavar="N", min=0, help="Write the N worst jobs' post-mortems."),
    ] = 0,
    title: Annotated[
        str | None, typer.Option("--title", help="What to call the fleet in the page's head.")
    ] = None,
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Leave secrets in the page as they are.")
    ] = False,
) -> None:
    """Tell what fails in a scanned fleet, where, since when, and which nodes are suspect."""
    _need("pyarrow", "scan")
    from diagnose.catalog.load import load_catalog
    from diagnose.fleet import read, summarise
    from diagnose.fleet.read import table_of
    from diagnose.report import fleet as report

    titles = {name: cause.title for name, cause in load_catalog(patterns or ()).classes.items()}
    folder = table_of(results).parent
    jobs = read(results, _note)
    if reports:
        from diagnose.batch.reports import write_reports

        given = tuple(str(path) for path in patterns or ())
        count = write_reports(
            jobs, folder, reports, patterns=given, redact=not no_redact, said=_note
        )
        say(f"{count} post-mortems in {clean(str(folder / 'reports'))}")
    found = summarise(jobs, by=by, titles=titles, results=folder)
    if page is not None:
        from diagnose.report.fleet import html

        links = html.link_base(page, folder)
        write_file(page, html.render(found, links=links, title=title, redact=not no_redact))
        say(f"wrote {clean(str(page))}")
    if output is FleetFormat.slurm_exclude:
        write(report.slurm_exclude(found))
    elif output is FleetFormat.terminal:
        from diagnose.report.fleet import terminal

        show(color, lambda console: terminal.render(found, console))
    else:
        from diagnose.report.fleet import tables

        is_json = output is FleetFormat.json
        text = tables.as_json(found) + "\n" if is_json else tables.as_csv(found)
        write(text, encoding="utf-8")
