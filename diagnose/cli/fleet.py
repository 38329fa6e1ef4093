"""The commands on many jobs: `scan` reads thousands into a table, `fleet` says what fails in them.

Heavy imports stand inside the commands, as in all of `cli`.
"""

from __future__ import annotations

import re
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.options import (
    ColorOption,
    Patterns,
    Places,
    Title,
    argument,
    file_path,
    named,
    option,
    path,
)
from diagnose.cli.output import Color, clean, note, save, say, show, write
from diagnose.errors import InputError
from diagnose.runtime.command import INTERRUPTED, return_memory
from diagnose.text.ranks import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from diagnose.batch.run import Summary
    from diagnose.fleet.grouping import Filter
    from diagnose.fleet.jobs import Jobs
    from diagnose.fleet.summary import Fleet


WORKER_MEMORY = 500 << 20
EVERYTHING = 1 << 30  # rows of a list


class Where(StrEnum):
    """What runs the jobs of a scan."""

    local = "local"
    dask = "dask"


Labels = Annotated[
    list[str] | None, option("--label", "Named groups in a job's path become labels.", "REGEX")
]
Since = Annotated[
    str | None, option("--since", "Only jobs newer than this: 2026-11-01, 7d, 12h.", "WHEN")
]
JobGlob = Annotated[
    str | None, option("--job-glob", "Which folders or files are one job, below each path.", "GLOB")
]


def scan(
    archives: Annotated[
        list[str], argument("ARCHIVE...", "Folders of jobs, archives, logs, or URLs.", parser=named)
    ],
    results: Annotated[Path, option("--output -o", "Results folder.", "DIR", parser=path)],
    workers: Annotated[
        int, option("--workers", "Worker processes; 0 means one per core.", "N", min=0)
    ] = 0,
    executor: Annotated[
        Where, option("--executor", "Run on this machine or on a Dask cluster.")
    ] = Where.local,
    scheduler: Annotated[
        str | None, option("--scheduler", "Dask scheduler, such as tcp://host:8786.", "ADDRESS")
    ] = None,
    resume: Annotated[
        bool,
        option("--resume", "Resume an existing results folder; read only new or changed jobs."),
    ] = False,
    since: Since = None,
    job_glob: JobGlob = None,
    label: Labels = None,
    patterns: Patterns = None,
) -> None:
    """Diagnose many jobs into a table of results.

    `diagnose fleet` summarises it.
    """
    from diagnose.batch.jobs import find_jobs
    from diagnose.batch.results import open_results
    from diagnose.batch.run import progress
    from diagnose.batch.run import scan as run
    from diagnose.batch.work import Options

    newer = seconds_of(since, time.time()) if since else None
    refs = find_jobs(archives, job_glob=job_glob, labels=label or (), since=newer)
    folders = tuple(str(path) for path in patterns or ())
    with ExitStack() as stack:
        found = stack.enter_context(open_results(results, resume=resume))
        found.describe(archives=archives)
        make, count = _executor(executor, scheduler, workers, stack)
        # Dask's workers are not ours
        options = Options(folders, memory=WORKER_MEMORY if executor is Where.local else 0)
        shown = progress(sys.stderr)
        summary = run(refs, found, make, workers=count, options=options, progress=shown)
    _end(summary, results)


def _executor(
    where: Where, scheduler: str | None, workers: int, stack: ExitStack
) -> tuple[Callable[[], Executor], int]:
    """What makes the executor, and how many workers it has."""
    from diagnose.batch.run import dask, local
    from diagnose.runtime.command import cores

    if where is Where.dask:
        return stack.enter_context(dask(scheduler))
    return local(workers or cores()), workers or cores()


def _end(summary: Summary, results: Path) -> None:
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not summary.read and not summary.unchanged:
        raise InputError("no jobs found: give folders of jobs, archives or logs")
    if summary.close:
        note(
            f"{counted(summary.close, 'job')} by the names of files and folders more than by what "
            "is in them: see the column notes; --job-glob says what is one job"
        )
    if summary.several:
        note(
            f"{counted(summary.several, 'archive')} may hold several jobs, diagnosed as one: see "
            "the column notes; unpack what is not one job"
        )
    say(f"results in {clean(str(results))}; next: diagnose fleet {clean(str(results))}")


def seconds_of(text: str, now: float, option: str = "--since", zone: tzinfo | None = None) -> float:
    """Seconds since 1970 of a date, or of so many days, hours or minutes before `now`.

    A date without an offset is of the `zone`, that of this machine where it is None.
    """
    found = re.fullmatch(r"(\d{1,6})([dhm])", text)
    if found:
        return now - int(found[1]) * {"d": 86400, "h": 3600, "m": 60}[found[2]]
    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise InputError(
            f"{option} {text!r} is neither a date (2026-11-01) nor 7d or 12h"
        ) from None


def number(text: str | float) -> float:
    """A number from 0 on; the default of an option comes as one."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < inf:
        raise typer.BadParameter(f"{text} is no number from 0 on")
    return found


By = Annotated[
    str,
    option(
        "--by",
        "Group by cause, host, week, size, framework, or a label: of the path (--label of "
        "scan), or of the logs (torch, nccl, launcher …).",
        "WHAT",
    ),
]


Page = Annotated[
    Path | None,
    option("--html", "Also write the report as an HTML page.", "FILE", parser=file_path),
]
Table = Annotated[
    Path | None,
    option(
        "--table",
        "Also write the table of all jobs: Parquet, or CSV where FILE ends in .csv.",
        "FILE",
        parser=file_path,
    ),
]


Newer = Annotated[
    str | None, option("--since", "Only jobs from then on: 2026-11-01 (UTC), 7d, 12h.", "WHEN")
]
Older = Annotated[str | None, option("--until", "Only jobs before: 2026-12-01, 7d.", "WHEN")]
Classes = Annotated[
    list[str] | None,
    option(
        "--class",
        "Only these causes count as trouble; hw is all of hw.*. Other jobs stay in the rates.",
        "CLASS",
    ),
]
Having = Annotated[
    list[str] | None,
    option(
        "--label",
        "Only jobs with this label, host, size, framework, or version (torch=2.6.0).",
        "NAME=VALUE",
    ),
]
Price = Annotated[
    float | None, option("--gpu-hour", "Price of a GPU-hour.", "PRICE", parser=number)
]
Every = Annotated[
    float,
    option(
        "--checkpoint-every",
        "How often jobs save, for what a failure repeats.",
        "MINUTES",
        parser=number,
    ),
]


class FleetFormat(StrEnum):
    """What `fleet` prints."""

    terminal = "terminal"
    json = "json"
    csv = "csv"
    slurm_exclude = "slurm-exclude"


FleetOutput = Annotated[FleetFormat, option("--format", "Output format.")]
Folder = Annotated[
    Path, argument("RESULTS", "Results folder written by `diagnose scan`.", parser=path)
]
Top = Annotated[int | None, option("--top", "Rows of each list.", "N", min=1)]
All = Annotated[bool, option("--all", "All rows of each list.")]
ListJobs = Annotated[bool, option("--jobs", "List the jobs that went wrong, the latest first.")]
Reports = Annotated[int, option("--reports", "Write post-mortems of the N worst jobs.", "N", min=0)]
NoRedact = Annotated[bool, option("--no-redact", "Do not mask secrets in the page.")]
MetricsFile = Annotated[
    Path | None,
    option(
        "--metrics",
        "Write metrics for Prometheus' node exporter; the name has to end in .prom.",
        "FILE",
        parser=file_path,
    ),
]


def fleet(
    results: Folder,
    by: By = "cause",
    since: Newer = None,
    until: Older = None,
    cause: Classes = None,
    label: Having = None,
    top: Top = None,
    everything: All = False,
    list_jobs: ListJobs = False,
    price: Price = None,
    checkpoint_every: Every = 60,
    topology: Places = None,
    output: FleetOutput = FleetFormat.terminal,
    page: Page = None,
    table: Table = None,
    reports: Reports = 0,
    metrics: MetricsFile = None,
    title: Title = None,
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
    no_redact: NoRedact = False,
) -> None:
    """Summarise scanned jobs: rates, cost, MTBF, suspect nodes."""
    return_memory()  # before Arrow is imported
    from diagnose.batch.results import export, folder_of
    from diagnose.catalog.load import load_catalog
    from diagnose.fleet import read, summarise
    from diagnose.fleet.grouping import chosen
    from diagnose.job.topology import read_topology

    if metrics is not None and metrics.suffix != ".prom":
        raise InputError(f"--metrics {metrics}: the node exporter reads files that end in .prom")
    catalog = load_catalog(patterns or ())
    folder = folder_of(results)
    wanted, filters = _filter(since, until, cause or (), label or ())
    jobs = chosen(read(folder), wanted)
    top = EVERYTHING if everything else top
    if table is not None:
        export(folder, table)
        say(f"wrote {clean(str(table))}")
    if reports:
        from diagnose.fleet.reports import write_reports

        count = write_reports(
            jobs, folder, reports, patterns=patterns or (), redact=not no_redact, warn=note
        )
        say(f"{counted(count, 'post-mortem')} in {clean(str(folder / 'reports'))}")
    found = summarise(
        jobs, by=by, results=folder, catalog=catalog, filters=filters, price=price,
        checkpoint_h=checkpoint_every / 60, topology=read_topology(topology) if topology else None,
    )  # fmt: skip
    _save(found, folder, page, metrics, title, redact=not no_redact)
    if list_jobs:
        _print_jobs(jobs, output, color, top)
    else:
        _print(found, output, color, top)


def _save(
    found: Fleet,
    folder: Path,
    page: Path | None,
    metrics: Path | None,
    title: str | None,
    *,
    redact: bool,
) -> None:
    """Write the files that are wanted."""
    if page is not None:
        from diagnose.report.fleet import html

        links = html.link_base(page, folder)
        save(page, html.render(found, links=links, title=title, redact=redact))
    if metrics is not None:
        from diagnose.report.fleet.metrics import render

        save(metrics, render(found))


def _filter(
    since: str | None, until: str | None, causes: Sequence[str], labels: Sequence[str]
) -> tuple[Filter, list[str]]:
    """What the options ask for, and in words."""
    from diagnose.fleet.grouping import Filter

    now, pairs = time.time(), []
    shown = [f"{word} {given}" for word, given in (("since", since), ("until", until)) if given]
    shown += [", ".join(causes)] if causes else []
    for text in labels:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--label {text!r} is no NAME=VALUE, such as team=vision")
        pairs.append((name, value))
    wanted = Filter(
        since=seconds_of(since, now, zone=UTC) if since else None,
        until=seconds_of(until, now, "--until", UTC) if until else None,
        causes=tuple(causes),
        labels=tuple(pairs),
    )
    return wanted, [*shown, *labels]


def _print_jobs(jobs: Jobs, output: FleetFormat, color: Color, top: int | None) -> None:
    from diagnose.fleet.summary import listed
    from diagnose.report.fleet import terminal, words

    if output is FleetFormat.terminal:
        show(color, lambda console: terminal.render_jobs(listed(jobs), console, top))
    elif output is FleetFormat.json:
        write(words.jobs_json(listed(jobs, top)) + "\n", encoding="utf-8")
    elif output is FleetFormat.csv:
        write(words.jobs_csv(listed(jobs, top)), encoding="utf-8")
    else:
        raise InputError("--jobs is printed as terminal, json or csv")


def _print(found: Fleet, output: FleetFormat, color: Color, top: int | None) -> None:
    from diagnose.report.fleet import terminal, words

    if output is FleetFormat.terminal:
        show(color, lambda console: terminal.render(found, console, top))
    elif output is FleetFormat.slurm_exclude:
        write(words.slurm_exclude(found))
    elif output is FleetFormat.json:
        write(words.as_json(found) + "\n", encoding="utf-8")
    else:
        write(words.as_csv(found), encoding="utf-8")
