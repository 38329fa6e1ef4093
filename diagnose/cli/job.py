"""What the commands on one job share: its paths read, and what the diagnosis says beside it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from diagnose.cli.fail_on import ANY, Condition, conditions
from diagnose.cli.output import note as tell
from diagnose.cli.output import say
from diagnose.errors import InputError
from diagnose.process import held, one_thread
from diagnose.text.ranks import counted

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis
    from diagnose.ingest.source import Source
    from diagnose.job.model import Job

EXIT_FAILURE_FOUND = 1  # what --exit-code or --fail-on asks for

MAX_NOTES = 10
STDIN = "-"
SMALL = 8 << 20  # bytes of a job that is read by one process without a closer look


def diagnosed(
    paths: Sequence[str] | None,
    patterns: Sequence[Path],
    checkpoints: Sequence[str],
    workers: int | None,
    later: str = "report.html.context",
) -> tuple[Job, Diagnosis]:
    """The job of these paths, or of a paste, and its diagnosis.

    `later` is a module that the command needs then: it is loaded while others scan.
    """
    if not paths and sys.stdin is not None and sys.stdin.isatty():
        say("Paste the log here, then press Enter and Ctrl-D (Ctrl-C cancels).")
    one_thread()
    import diagnose

    job = _load(paths or [STDIN], patterns, checkpoints, workers, later)
    held[:] = [job]
    return job, diagnose.diagnose(job)


def _load(
    paths: Sequence[str],
    patterns: Sequence[Path],
    checkpoints: Sequence[str],
    workers: int | None,
    later: str,
) -> Job:
    from diagnose.ingest import find_sources, stdin_source
    from diagnose.ingest.names import local
    from diagnose.job.load import saved

    given = local(path for path in paths if path != STDIN)
    sources = find_sources(given)
    if STDIN in paths:
        if sys.stdin is None:
            raise InputError("standard input is closed")
        sources.insert(0, stdin_source(sys.stdin.buffer))
    job = _read(sources, patterns, workers, later)
    job.checkpoints = saved(given, checkpoints)
    return job


def _read(
    sources: Sequence[Source], patterns: Sequence[Path], workers: int | None, later: str
) -> Job:
    from diagnose.job.load import read

    _tell_compiling(patterns)
    if workers is None:
        workers = _best(sources)
    return read(sources, patterns=patterns, workers=workers, meanwhile=partial(_load_engine, later))


def _tell_compiling(patterns: Sequence[Path]) -> None:
    """Say why this answer takes longer than others: the signatures were not compiled for it.

    Where nobody looks on, only if that comes again: a writable cache is for the user to provide.
    """
    from diagnose.catalog import stored
    from diagnose.catalog.load import load_catalog
    from diagnose.match.compile import compiled_before

    if compiled_before(load_catalog(patterns)):
        return
    folder = stored.writable()
    if folder is None:
        why = "no writable cache (XDG_CACHE_HOME) or temporary folder, so in every run"
    elif folder != stored.cache():
        why = f"no writable cache (XDG_CACHE_HOME), kept in {folder}"
    elif sys.stderr.isatty():
        why = "new or changed since the last run"
    else:
        return
    say(f"Compiling signatures, about 10 s: {why}.")


def _load_engine(later: str) -> None:
    """Load what comes after the scan, while other processes are at it already."""
    for name in ("infer.pipeline", "checkpoint.tree", later):
        import_module(f"diagnose.{name}")


def _best(sources: Sequence[Source]) -> int:
    """How many processes are best."""
    if sum(source.size for source in sources) < SMALL:
        return 1
    from diagnose.job.parallel import processes

    return processes(sources)


def failing(
    fail_on: Sequence[str] | None, patterns: Sequence[Path] | None, *, exit_code: bool
) -> list[Condition]:
    """When the command is to end with status 1. Raises InputError before anything is read."""
    if not fail_on:
        return [Condition(ANY)] if exit_code else []
    from diagnose.catalog.load import load_catalog

    asked = conditions(fail_on, load_catalog(patterns or ()))
    return [*asked, Condition(ANY)] if exit_code else asked


def end(diagnosis: Diagnosis, fails: Sequence[Condition]) -> None:
    """Tell the notes of a diagnosis and end the command, with status 1 if any of these holds."""
    for note in diagnosis.notes[:MAX_NOTES]:
        tell(note)
    if len(diagnosis.notes) > MAX_NOTES:
        say(f"note: {counted(len(diagnosis.notes) - MAX_NOTES, 'more note')} not shown")
    if any(condition.holds(diagnosis) for condition in fails):
        raise typer.Exit(EXIT_FAILURE_FOUND)
