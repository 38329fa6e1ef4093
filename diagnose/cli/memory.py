"""The command `confirm`: what a job's cause was, for the memory of this site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.options import Memory, Patterns, named, path
from diagnose.cli.output import clean, write
from diagnose.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.memory.confirm import Subject

OneJob = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        parser=named,
        help="Log file or job folder, - for standard input; with --results a job of the scan.",
    ),
]
Results = Annotated[
    Path | None,
    typer.Option(
        "--results", metavar="DIR", parser=path, help="Results folder of the scan that has JOB."
    ),
]


def subject(job: str, results: Path | None, patterns: Sequence[Path]) -> Subject:
    """A job by its path, or one of a scan, with the verdict of the evidence alone."""
    from diagnose.diagnosis import Diagnosis
    from diagnose.fingerprint import fingerprint
    from diagnose.memory.confirm import Subject

    if results is None:
        from diagnose.cli.job import STDIN, read_and_diagnosed

        _, found = read_and_diagnosed([job], patterns, (), None)
        name = "a paste" if job == STDIN else job.rstrip("/").rpartition("/")[2] or job
        return Subject(name, fingerprint(found), found)
    from diagnose.batch.results import diagnosis_of, folder_of

    name, mark, document = diagnosis_of(folder_of(results), job)
    try:
        return Subject(name, mark, Diagnosis.from_dict(document))
    except ValueError as error:
        raise InputError(f"{job}: the stored diagnosis is of another version: {error}") from error


def confirm(
    job: OneJob,
    cause: Annotated[
        str, typer.Option("--cause", metavar="CLASS", help="Its cause; default: the verdict's.")
    ] = "",
    culprit: Annotated[
        list[str] | None,
        typer.Option(
            "--culprit", metavar="WHO", help="A rank (3, 0-7) or host to blame (repeatable)."
        ),
    ] = None,
    fix: Annotated[str, typer.Option("--fix", metavar="TEXT", help="What helped.")] = "",
    wrong: Annotated[
        bool, typer.Option("--wrong", help="The verdict was wrong, also where nobody knows more.")
    ] = False,
    results: Results = None,
    memory: Memory = None,
    patterns: Patterns = None,
) -> None:
    """Keep what the cause of a job was, and what helped.

    Later verdicts show similar incidents, and their confidence takes into account how often such
    verdicts were right here. Nothing leaves this machine, and no line of a log is kept.
    """
    from diagnose.catalog.load import load_catalog
    from diagnose.memory.confirm import incident
    from diagnose.memory.features import features
    from diagnose.memory.place import place
    from diagnose.memory.store import keep
    from diagnose.text.ranks import counted

    found = subject(job, results, patterns or ())
    one = incident(
        found, load_catalog(patterns or ()), cause=cause, culprits=culprit or (), fix=fix,
        wrong=wrong,
    )  # fmt: skip
    file = place(memory)
    count = keep(file, one, features(found.diagnosis))
    verdict = "the verdict was right" if one.correct else f"the verdict, {one.given}, was wrong"
    if one.given == "unknown":
        verdict = "the verdict was unknown"
    write(f"{one.name}: {one.cause or 'cause unknown'} ({verdict})\n")
    write(f"{clean(str(file))} has {counted(count, 'incident')}\n")
