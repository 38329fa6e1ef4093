"""Post-mortems of the jobs that cost most, beside the results that name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from diagnose.batch.jobs import find_jobs
from diagnose.batch.work import sources_of
from diagnose.console import write_file
from diagnose.errors import InputError
from diagnose.infer import diagnose
from diagnose.ingest.raw import reason
from diagnose.job import read
from diagnose.report import html

FOLDER = "reports"  # inside the results; a page is called like its job
BAD = ("hung", "failed")


def worst(jobs: pd.DataFrame, count: int) -> pd.DataFrame:
    """The `count` troubled jobs with most GPU-hours lost, then those that hung longest."""
    troubled = jobs[jobs["verdict"].isin(BAD)]
    order = ["gpu_hours_lost", "duration_hung_s", "job"]
    return troubled.sort_values(order, ascending=[False, False, True], na_position="last")[:count]


def write_reports(
    jobs: pd.DataFrame,
    results: Path,
    count: int,
    *,
    patterns: Sequence[str] = (),
    redact: bool = True,
    said: Callable[[str], None],
) -> int:
    """Write the pages of the `count` worst jobs; returns how many. `said` hears of the others.

    Pages that are there already are left alone. A job id may hold slashes: they become folders.
    """
    written = 0
    for row in worst(jobs, count).itertuples():
        parts = [part for part in str(row.job).split("/") if part not in ("", ".", "..")]
        target = results.joinpath(FOLDER, *parts[:-1], f"{parts[-1] if parts else 'job'}.html")
        if target.exists():
            written += 1
            continue
        try:
            refs = [ref for ref in find_jobs([str(row.source)]) if ref.source == row.source]
            if not refs:
                raise InputError("is not there any more")
            job = read(sources_of(refs[0]), patterns=patterns)
            page = html.render(job, diagnose(job), title=str(row.job), redact=redact)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target, page)
            written += 1
        except (InputError, OSError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            said(f"no report of {row.job}: {why}")
    return written
