"""The command `scan`: thousands of jobs to a table.

Heavy imports stand inside the command, as in all of `cli`.
"""

from __future__ import annotations

import re
import sys
import time
from contextlib import ExitStack
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.options import Patterns, named, path
from diagnose.cli.output import clean, note, say
from diagnose.errors import InputError
from diagnose.runtime.command import INTERRUPTED
from diagnose.text.ranks import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from diagnose.batch.run import Summary

WORKER_MEMORY = 500 << 20


class Where(StrEnum):
    """What runs the jobs of a scan."""

    local = "local"
    dask = "dask"


Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="REGEX", help="Named groups in a job's path become labels."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Only jobs newer than this: 2026-11-01, 7d, 12h."),
]
JobGlob = Annotated[
    str | None,
    typer.Option(
        "--job-glob",
        metavar="GLOB",
        help="Which folders or files are one job, below each path.",
    ),
]


def scan(
    archives: Annotated[
        list[str],
        typer.Argument(
            metavar="ARCHIVE...", parser=named, help="Folders of jobs, archives, logs, or URLs."
        ),
    ],
    results: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", parser=path, help="Results folder."),
    ],
    workers: Annotated[
        int,
        typer.Option(
            "--workers", metavar="N", min=0, help="Worker processes; 0 means one per core."
        ),
    ] = 0,
    executor: Annotated[
        Where, typer.Option("--executor", help="Run on this machine or on a Dask cluster.")
    ] = Where.local,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler", metavar="ADDRESS", help="Dask scheduler, such as tcp://host:8786."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Resume an existing results folder; read only new or changed jobs."
        ),
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
    count = workers or cores()
    return local(count), count


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


def seconds_of(text: str, now: float) -> float:
    """Seconds since 1970 of a date, or of so many days, hours or minutes before `now`."""
    found = re.fullmatch(r"(\d{1,6})([dhm])", text)
    if found:
        return now - int(found[1]) * {"d": 86400, "h": 3600, "m": 60}[found[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise InputError(f"--since {text!r} is neither a date (2026-11-01) nor 7d or 12h") from None
