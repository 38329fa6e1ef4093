"""The commands `triage`, `report` and `issue`: one job, its verdict as text, page or issue.

All read its paths alike, and say beside the answer what the notes of the diagnosis say.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from diagnose.cli.options import (
    Checkpoints,
    ColorOption,
    ExitCode,
    Memory,
    NoRedact,
    OutputFile,
    Paths,
    Patterns,
    Places,
    Title,
    Workers,
    option,
)
from diagnose.cli.output import Color, clean, console, save, say, write
from diagnose.cli.output import note as tell
from diagnose.errors import InputError
from diagnose.memory import recalled
from diagnose.report import RENDERERS, Wish, rendered
from diagnose.runtime.command import held, one_thread
from diagnose.text.ranks import counted

if TYPE_CHECKING:
    from diagnose.catalog.schema import Catalog
    from diagnose.diagnosis import Confidence, Diagnosis, Verdict
    from diagnose.job.model import Job


EXIT_FAILURE_FOUND = 1  # what --exit-code or --fail-on asks for

MAX_NOTES = 10
STDIN = "-"
SMALL = 8 << 20  # bytes of a job that is read by one process without a closer look


def diagnosed(
    paths: Sequence[str] | None,
    patterns: Sequence[Path] | None = None,
    checkpoints: Sequence[str] | None = None,
    workers: int | None = None,
    *,
    later: str = "report.safe",
    topology: Path | None = None,
    memory: Path | None = None,
    recall: bool = True,
) -> tuple[Job, Diagnosis]:
    """The job of these paths, or of a paste, and its diagnosis with what a memory knows of it.

    `topology` is a file that says where its hosts are, `later` a module that the command needs
    then: it is loaded while others scan. Without `recall` the evidence alone counts.
    """
    if not paths and sys.stdin is not None and sys.stdin.isatty():
        say("Paste the log here, then press Enter and Ctrl-D (Ctrl-C cancels).")
    one_thread()
    where = None
    if topology is not None:
        from diagnose.job.topology import read_topology

        where = read_topology(topology)
    job = _load(paths or [STDIN], patterns or (), checkpoints or (), workers, later)
    job.topology = where
    held[:] = [job]
    from diagnose.infer.pipeline import diagnose  # while others scan it was loaded

    diagnosis = diagnose(job)
    return job, recalled(diagnosis, memory) if recall else diagnosis


def _load(
    paths: Sequence[str],
    patterns: Sequence[Path],
    checkpoints: Sequence[str],
    workers: int | None,
    later: str,
) -> Job:
    from diagnose.ingest import find_sources, stdin_source
    from diagnose.ingest.names import local
    from diagnose.job.load import read, saved

    given = local(path for path in paths if path != STDIN)
    sources = find_sources(given)
    if STDIN in paths:
        if sys.stdin is None:
            raise InputError("standard input is closed")
        sources.insert(0, stdin_source(sys.stdin.buffer))
    _tell_compiling(patterns)
    if workers is None:
        workers = 1
        if sum(source.size for source in sources) >= SMALL:
            from diagnose.job.parallel import processes

            workers = processes(sources)
    engine = partial(_load_engine, later)
    job = read(sources, patterns=patterns, workers=workers, meanwhile=engine)
    job.checkpoints = saved(given, checkpoints)
    return job


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
    for name in ("infer.pipeline", "checkpoint.tree", "job.reread", later):
        import_module(f"diagnose.{name}")


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


# --- when a command ends with status 1: what --fail-on asks for -----------------------------------

ANY = "any"  # hung or failed, which is what --exit-code asks for
_BAD: tuple[Verdict, ...] = ("hung", "failed")
_VERDICTS = (*_BAD, "unknown")
_LEVELS: tuple[Confidence, ...] = ("low", "medium", "high")

FailOn = Annotated[
    list[str] | None,
    option(
        "--fail-on",
        "Exit with status 1 if the verdict is this: any, hung, failed, unknown, a cause "
        "class (net.fabric) or its first part (net); with :medium or :high only if as sure "
        "(repeatable, or separated by commas).",
        "WHAT[:CONFIDENCE]",
    ),
]


class Condition(NamedTuple):
    """One of the conditions: a verdict, `any`, or a class or its first part; how sure at least."""

    what: str
    least: Confidence = "low"

    def holds(self, diagnosis: Diagnosis) -> bool:
        """Whether a diagnosis is what it asks for."""
        verdict, cause = diagnosis.verdict, diagnosis.root_cause
        if self.what == "unknown":
            return verdict == "unknown"
        if verdict not in _BAD or _LEVELS.index(cause.confidence) < _LEVELS.index(self.least):
            return False
        return self.what in (ANY, verdict, cause.cause, cause.cause.partition(".")[0])


def conditions(given: Sequence[str], catalog: Catalog) -> list[Condition]:
    """What the options ask for. Raises InputError for what no diagnosis can be."""
    classes = [name for name in catalog.classes if name not in ("none", "unknown")]
    families = list(dict.fromkeys(name.partition(".")[0] for name in classes if "." in name))
    known = [ANY, *_VERDICTS, *families, *classes]
    found = []
    for text in (part.strip() for one in given for part in one.split(",")):
        what, colon, least = text.partition(":")
        if what in _LEVELS and not colon:  # high: any failure that is so sure
            what, colon, least = ANY, ":", what
        if what not in known:
            raise InputError(f"--fail-on {text}: {_hint(what, known)}")
        if colon and (least not in _LEVELS or what == "unknown"):
            raise InputError(f"--fail-on {text}: behind the colon goes low, medium or high")
        found.append(Condition(what, least or "low"))  # type: ignore[arg-type]
    return found


def _hint(given: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(given, known, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"choose {', '.join((ANY, *_VERDICTS))}, a confidence, or a cause class"


# --- the commands ---------------------------------------------------------------------------------

Format = StrEnum("Format", {name: name for name in RENDERERS})  # type: ignore[misc]

_WITH_REASONS = ("terminal", "markdown", "json")  # JSON always has the reasons


def triage(
    paths: Paths = None,
    output: Annotated[Format, option("--format", "Output format.")] = Format("terminal"),
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
    checkpoints: Checkpoints = None,
    topology: Places = None,
    workers: Workers = None,
    memory: Memory = None,
    exit_code: ExitCode = False,
    fail_on: FailOn = None,
    why: Annotated[
        bool,
        option(
            "--why", "Show how the verdict came about: rules, rivals, events, with their lines."
        ),
    ] = False,
    no_redact: Annotated[
        bool,
        option("--no-redact", "Do not mask secrets and names in what is made to be passed on."),
    ] = False,
) -> None:
    """Diagnose one job from its logs, or from a paste.

    A paste is text on standard input.
    """
    if why and output.value not in _WITH_REASONS:
        raise InputError(f"--why needs one of the formats {', '.join(_WITH_REASONS)}")
    fails = failing(fail_on, patterns, exit_code=exit_code)
    job, diagnosis = diagnosed(
        paths, patterns, checkpoints, workers, memory=memory, topology=topology
    )
    wish = Wish(redact=not no_redact, why=why, console=lambda: console(color))
    text, encoding = rendered(output.value, job, diagnosis, wish)
    write(text, encoding=encoding)
    end(diagnosis, fails)


def report(
    paths: Paths = None,
    output: OutputFile = Path("report.html"),
    title: Title = None,
    patterns: Patterns = None,
    no_redact: NoRedact = False,
    open_it: Annotated[bool, option("--open", "Open the page in a browser.")] = False,
    checkpoints: Checkpoints = None,
    topology: Places = None,
    workers: Workers = None,
    memory: Memory = None,
    exit_code: ExitCode = False,
    fail_on: FailOn = None,
) -> None:
    """Write a post-mortem of one job as an HTML page."""
    fails = failing(fail_on, patterns, exit_code=exit_code)
    job, diagnosis = diagnosed(
        paths, patterns, checkpoints, workers, later="report.html.page", memory=memory,
        topology=topology,
    )  # fmt: skip
    from diagnose.report import html

    page = html.render(job, diagnosis, title=title, redact=not no_redact)
    if str(output) == STDIN:
        write(page, encoding="utf-8")
    else:
        save(output, page, f"{diagnosis.verdict.upper()}: {clean(diagnosis.root_cause.title)}")
        if open_it:
            typer.launch(output.resolve().as_uri())
    end(diagnosis, fails)


def issue(
    project: Annotated[
        str,
        option(
            "--for",
            "Who is asked: nccl, pytorch, vllm, sglang, verl, deepspeed, ray or slurm.",
            "PROJECT",
        ),
    ],
    paths: Paths = None,
    output: OutputFile = Path(STDIN),
    patterns: Patterns = None,
    no_redact: Annotated[
        bool, option("--no-redact", "Do not mask secrets, names, hosts, addresses and paths.")
    ] = False,
    checkpoints: Checkpoints = None,
    workers: Workers = None,
) -> None:
    """Write an issue as maintainers ask for it.

    What the job lacks of it is named with the command that gets it.
    """
    from diagnose.report.issue import issue_text, known_project

    known_project(project)
    job, diagnosis = diagnosed(paths, patterns, checkpoints, workers, later="report.issue")
    text = issue_text(job, diagnosis, project, redact=not no_redact)
    if str(output) == STDIN:
        write(text, encoding="utf-8")
    else:
        save(output, text)
    end(diagnosis, [])
