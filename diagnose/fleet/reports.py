"""Post-mortems of the jobs that cost most, beside the results that name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from diagnose.batch.names import page_of
from diagnose.batch.stored import ref_of
from diagnose.batch.work import sources_of
from diagnose.errors import InputError
from diagnose.fleet.jobs import Jobs
from diagnose.infer.pipeline import diagnose
from diagnose.ingest.raw import reason
from diagnose.job.load import read
from diagnose.report import html
from diagnose.runtime.files import write_text

BAD = ("hung", "failed")


def worst(jobs: Jobs, count: int) -> np.ndarray:
    """The rows of the `count` troubled jobs with most GPU-hours lost, then hung longest."""
    troubled = np.flatnonzero(jobs.verdict.where(BAD.__contains__))
    return jobs.dearest(troubled, count, jobs.duration_hung_s)


def write_reports(
    jobs: Jobs,
    results: Path,
    count: int,
    *,
    patterns: Sequence[str | Path] = (),
    redact: bool = True,
    warn: Callable[[str], None],
) -> int:
    """Write the pages of the `count` worst jobs; returns how many. `warn` gets the others.

    Pages that are there already are left alone: a scan removes those of jobs it reads again.
    """
    written = 0
    rows = pa.array(worst(jobs, count))
    columns = (column.take(rows).to_pylist() for column in (jobs.job, jobs.source, jobs.tag))
    for name, source, tag in zip(*columns, strict=True):
        target = results / page_of(source)
        try:
            if not target.exists():
                job = read(sources_of(ref_of(source, tag)), patterns=patterns)
                page = html.render(job, diagnose(job), title=name, redact=redact)
                target.parent.mkdir(parents=True, exist_ok=True)
                write_text(target, page)
            written += 1
        except Exception as error:
            warn(f"no report of {name}: {_why(error)}")
    return written


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return reason(error)
    if isinstance(error, InputError):
        return str(error)
    return f"internal error, please report it: {type(error).__name__}: {error}"
