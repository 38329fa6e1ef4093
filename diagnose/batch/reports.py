"""Post-mortems of the jobs that cost most, beside the results that name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from diagnose.batch.jobs import JobRef, find_again
from diagnose.batch.pages import page_of
from diagnose.batch.stored import restored
from diagnose.batch.work import sources_of
from diagnose.errors import InputError
from diagnose.files import write_text
from diagnose.infer.pipeline import diagnose
from diagnose.ingest.raw import reason
from diagnose.job.load import read
from diagnose.report import html

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

    Pages that are there already are left alone: a scan removes those of jobs it reads again.
    """
    written = 0
    for row in worst(jobs, count).itertuples():
        target = results / page_of(str(row.source))
        try:
            if not target.exists():
                job = read(sources_of(_ref(str(row.source), str(row.tag))), patterns=patterns)
                page = html.render(job, diagnose(job), title=str(row.job), redact=redact)
                target.parent.mkdir(parents=True, exist_ok=True)
                write_text(target, page)
            written += 1
        except Exception as error:
            said(f"no report of {row.job}: {_why(error)}")
    return written


def _ref(source: str, tag: str) -> JobRef:
    """The job of a stored source, where it can be as it was scanned. Raises InputError."""
    source = restored(source)
    refs = [ref for ref in find_again(source) if ref.source == source]
    if not refs:
        raise InputError("is not there any more")
    return next((ref for ref in refs if ref.tag == tag), refs[0])


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return reason(error)
    if isinstance(error, InputError):
        return str(error)
    return f"internal error, please report it: {type(error).__name__}: {error}"
