"""The command `compare`: what a bad run differs in from a good one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from diagnose.cli.options import (
    ColorOption,
    Format,
    NoRedact,
    OutputFormat,
    Patterns,
    Title,
    argument,
    file_path,
    option,
    path,
)
from diagnose.cli.output import Color, note, save, show, write
from diagnose.errors import InputError

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis
    from diagnose.job.model import Job

_USE = "diagnose compare GOOD BAD, or diagnose compare BAD --jobs RESULTS --last-good"


def compare(
    runs: Annotated[
        list[str],
        argument(
            "GOOD BAD", "Two runs: a log, folder, archive or bundle each; with --jobs ids of jobs."
        ),
    ],
    jobs: Annotated[
        Path | None, option("--jobs", "The runs are jobs of these results.", "RESULTS", parser=path)
    ] = None,
    last_good: Annotated[
        bool,
        option(
            "--last-good", "Take the last run of the same job that ended well; only BAD is given."
        ),
    ] = False,
    output: OutputFormat = Format.terminal,
    everything: Annotated[bool, option("--all", "All differences.")] = False,
    page: Annotated[
        Path | None, option("--html", "Also write an HTML page.", "FILE", parser=file_path)
    ] = None,
    title: Title = None,
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
    no_redact: NoRedact = False,
) -> None:
    """Compare a bad run with a good one: what differs.

    Versions, environment, arguments, nodes, new lines, step times, collectives.
    """
    if len(runs) != (1 if last_good else 2):
        raise InputError(f"{'one run is' if last_good else 'two runs are'} needed: {_USE}")
    if last_good and jobs is None:
        raise InputError(f"--last-good needs --jobs RESULTS: {_USE}")
    found = _stored(runs, jobs, patterns or ()) if jobs else _given(runs, patterns or ())
    from diagnose.comparison import compared
    from diagnose.report import compare as report

    comparison = compared(*found)
    if page is not None:
        save(page, report.html(comparison, title=title, redact=not no_redact))
    if output is Format.json:
        write(report.as_json(comparison) + "\n", encoding="utf-8")
    else:
        show(color, lambda console: report.render(comparison, console, everything=everything))
    for text in comparison.notes[:10]:
        note(text)


def _given(runs: Sequence[str], patterns: Sequence[Path]) -> list[tuple[str, Job, Diagnosis]]:
    """The runs at two paths."""
    from diagnose.cli.job import diagnosed
    from diagnose.cli.options import named

    return [(run, *diagnosed([named(run)], patterns)) for run in runs]


def _stored(
    runs: Sequence[str], jobs: Path, patterns: Sequence[Path]
) -> list[tuple[str, Job, Diagnosis]]:
    """The runs of these ids, or the last good one of the job and it."""
    from diagnose.batch.results import folder_of
    from diagnose.batch.stored import last_good, named, opened, stored_jobs
    from diagnose.infer.pipeline import diagnose

    known = stored_jobs(folder_of(jobs))
    found = [named(known, run) for run in runs]
    if len(found) == 1:
        found.insert(0, last_good(known, found[0]))
    read = [(one.job, opened(one, patterns)) for one in found]
    return [(name, job, diagnose(job)) for name, job in read]
