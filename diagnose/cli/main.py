"""The commands: read options, call the engine, render. No logic of its own.

Start-up is part of the answer's speed: whatever is heavy (pandas, rich, the engine) is imported
inside the command that needs it.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose import __version__, process
from diagnose.cli import checkpoint, fleet
from diagnose.cli.options import ColorOption, Patterns, file_path, named, path
from diagnose.cli.output import Color, clean, reader_is_gone, say, show, write, write_file
from diagnose.errors import InputError

if TYPE_CHECKING:
    from diagnose.catalog.schema import KnownIssue, Signature
    from diagnose.diagnosis import Diagnosis
    from diagnose.ingest.source import Source
    from diagnose.job.model import Job

EXIT_FAILURE_FOUND = 1  # with --exit-code: the job hung or failed
EXIT_PROBLEMS = 1  # `catalog check` found problems
EXIT_UNUSABLE = 2
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h

MAX_NOTES = 10
STDIN = "-"


class Format(StrEnum):
    """What `triage` prints."""

    terminal = "terminal"
    json = "json"
    markdown = "markdown"


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
catalog_app = typer.Typer(rich_markup_mode=None)
app.add_typer(
    catalog_app, name="catalog", help="Look at the catalog of known failures, or check it."
)

Workers = Annotated[
    int,
    typer.Option("--workers", min=1, help="Processes that read a large job with many files."),
]
Checkpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoints",
        metavar="DIR",
        parser=named,
        help="Where the job saves to (default: its folders).",
    ),
]
ExitCode = Annotated[
    bool, typer.Option("--exit-code", help="End with status 1 when the job hung or failed.")
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """Tell why a distributed training job hung or died, who is to blame and what to do now."""
    if version:
        write(f"diagnose {__version__}\n")
    elif context.invoked_subcommand is None:
        write(context.get_help() + "\n")


@app.command()
def triage(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Logs and job folders; none, or -, is standard input."),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.terminal,
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
    checkpoints: Checkpoints = None,
    workers: Workers = 1,
    exit_code: ExitCode = False,
    no_redact: Annotated[
        bool,
        typer.Option("--no-redact", help="Leave secrets and names in the Markdown as they are."),
    ] = False,
) -> None:
    """Diagnose one job from its logs, or from text pasted into standard input."""
    job, diagnosis = _diagnosed(paths, patterns or (), checkpoints or (), workers)
    _show(job, diagnosis, output, color, redact=not no_redact)
    _tell_notes(diagnosis)
    if exit_code and diagnosis.verdict in ("hung", "failed"):
        raise typer.Exit(EXIT_FAILURE_FOUND)


@app.command()
def report(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Logs and job folders; none, or -, is standard input."),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=file_path,
            help="Where to write it; - is stdout.",
        ),
    ] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option("--title", help="What to call the job in the page's head.")
    ] = None,
    patterns: Patterns = None,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Leave secrets and names in the page as they are.")
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    checkpoints: Checkpoints = None,
    workers: Workers = 1,
    exit_code: ExitCode = False,
) -> None:
    """Write the post-mortem of one job: an HTML page in one file, for colleagues."""
    job, diagnosis = _diagnosed(paths, patterns or (), checkpoints or (), workers)
    from diagnose.report import html

    page = html.render(job, diagnosis, title=title, redact=not no_redact)
    if str(output) == STDIN:
        write(page, encoding="utf-8")
    else:
        write_file(output, page)
        say(f"{diagnosis.verdict.upper()}: {clean(diagnosis.root_cause.title)}")
        say(f"wrote {clean(str(output))}")
        if open_it:
            typer.launch(output.resolve().as_uri())
    _tell_notes(diagnosis)
    if exit_code and diagnosis.verdict in ("hung", "failed"):
        raise typer.Exit(EXIT_FAILURE_FOUND)


app.command()(checkpoint.checkpoint)
app.command()(fleet.scan)
app.command()(fleet.fleet)


@app.command()
def explain(
    cause: Annotated[
        str, typer.Argument(metavar="CLASS", help="A cause class, such as net.fabric.")
    ],
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
) -> None:
    """Explain a cause class: what it means, what to do, whether to restart."""
    from diagnose.catalog.load import load_catalog
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    found = catalog.classes.get(cause)
    if found is None:
        raise InputError(_unknown("cause class", cause, list(catalog.classes)))
    show(color, lambda console: report.render_class(found, catalog, console))


@catalog_app.command("list")
def catalog_list(
    cause: Annotated[
        str | None, typer.Option("--class", metavar="CLASS", help="Only this cause class.")
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="Only this causal role.")
    ] = None,
    patterns: Patterns = None,
) -> None:
    """List signatures and known issues: id, role, class and title."""
    from typing import get_args

    from diagnose.catalog.load import load_catalog
    from diagnose.catalog.schema import Role
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    if cause is not None and cause not in catalog.classes:
        raise InputError(_unknown("cause class", cause, list(catalog.classes)))
    roles = [*get_args(Role), report.KNOWN_ISSUE]
    if role is not None and role not in roles:
        raise InputError(_unknown("role", role, roles))
    write(report.listing(catalog, cause=cause, role=role))


@catalog_app.command("show")
def catalog_show(
    entry: Annotated[str, typer.Argument(metavar="ID", help="Id of a signature or known issue.")],
    patterns: Patterns = None,
    color: ColorOption = Color.auto,
) -> None:
    """Show one signature or known issue."""
    from diagnose.catalog.load import load_catalog
    from diagnose.report import catalog as report

    catalog = load_catalog(patterns or ())
    entries: dict[str, Signature | KnownIssue] = {e.id: e for e in catalog.signatures}
    entries |= {e.id: e for e in catalog.known_issues}
    found = entries.get(entry)
    if found is None:
        raise InputError(_unknown("id", entry, list(entries)))
    show(color, lambda console: report.render_entry(found, console))


@catalog_app.command("check")
def catalog_check(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR", parser=path, help="More folders of signatures to check."),
    ] = None,
    patterns: Patterns = None,
) -> None:
    """Check the catalog and your own signatures; every problem is one line."""
    from diagnose.catalog.check import check
    from diagnose.catalog.load import load_catalog

    extra = [*(directories or ()), *(patterns or ())]
    problems = check(extra)
    if problems:
        write("".join(f"{clean(problem)}\n" for problem in problems))
        raise typer.Exit(EXIT_PROBLEMS)
    catalog = load_catalog(extra)
    write(
        f"{len(catalog.signatures)} signatures, {len(catalog.known_issues)} known issues, "
        f"{len(catalog.classes)} cause classes: no problems\n"
    )


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and give its exit status."""
    # The base of every error in the command line itself; typer has moved it between modules.
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    command = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # Not main(), which makes 1, our status of a failed job, of whatever pipe broke.
        with command.make_context("diagnose", list(given)) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except usage_error as error:
        return _fail(_usage(error, given), EXIT_UNUSABLE)
    except InputError as error:
        return _fail(str(error), EXIT_UNUSABLE)
    except KeyboardInterrupt:
        return process.INTERRUPTED
    except BrokenPipeError as error:
        return 0 if reader_is_gone() else _unexpected(error)
    except Exception as error:
        return _unexpected(error)
    return 0


def main() -> None:
    """The command `diagnose`, once it is imported; `__main__` is where it begins."""
    process.prepare()
    # A short-lived process: looking for garbage during imports costs 0.04 s for nothing.
    gc.set_threshold(100_000, 20, 20)
    sys.exit(run())


def _load(
    paths: Sequence[str], patterns: Sequence[Path], checkpoints: Sequence[str], workers: int
) -> Job:
    from diagnose.ingest import find_sources, stdin_source
    from diagnose.job.load import saved

    if "" in paths:  # an unset variable of a script; as a path it would be the current folder
        raise InputError("one of the paths is empty")
    sources = find_sources([Path(path) for path in paths if path != STDIN])
    if STDIN in paths:
        if sys.stdin is None:
            raise InputError("standard input is closed")
        sources.insert(0, stdin_source(sys.stdin.buffer))
    job = _read(sources, patterns, workers)
    job.checkpoints = saved([path for path in paths if path != STDIN], checkpoints)
    return job


def _read(sources: Sequence[Source], patterns: Sequence[Path], workers: int) -> Job:
    from diagnose.job.load import read

    if workers < 2:
        return read(sources, patterns=patterns)
    from concurrent.futures import BrokenExecutor

    from diagnose.workers import pool

    try:
        with pool(workers) as executor:
            return read(sources, patterns=patterns, executor=executor)
    except BrokenExecutor as error:
        raise InputError(
            "a process of --workers was killed, by the kernel if memory ran out: fewer need less"
        ) from error


def _diagnosed(
    paths: Sequence[str] | None,
    patterns: Sequence[Path],
    checkpoints: Sequence[str],
    workers: int,
) -> tuple[Job, Diagnosis]:
    """The job of these paths, or of a paste, and its diagnosis."""
    if not paths and sys.stdin is not None and sys.stdin.isatty():
        say("Paste the log here, then press Enter and Ctrl-D (Ctrl-C gives up).")
    import diagnose

    job = _load(paths or [STDIN], patterns, checkpoints, workers)
    return job, diagnose.diagnose(job)


def _tell_notes(diagnosis: Diagnosis) -> None:
    for note in diagnosis.notes[:MAX_NOTES]:
        say(f"note: {clean(note)}")
    if len(diagnosis.notes) > MAX_NOTES:
        say(f"note: {len(diagnosis.notes) - MAX_NOTES} more notes left out")


def _show(job: Job, diagnosis: Diagnosis, output: Format, color: Color, *, redact: bool) -> None:
    from diagnose.report.html.context import learn
    from diagnose.report.redact import Redactor, secrets_only

    if output is Format.markdown:
        from diagnose.report import markdown

        redactor = learn(job, diagnosis, Redactor()) if redact else None
        write(markdown.render(diagnosis, redact=redact, redactor=redactor))
        return
    redactor = learn(job, diagnosis, secrets_only())
    if output is Format.json:
        from diagnose.report.safe import escaped, masked

        write(escaped(masked(diagnosis, redactor).to_json()) + "\n", encoding="utf-8")
    else:
        from diagnose.report import terminal

        show(color, lambda console: terminal.render(diagnosis, console, redactor))


def _fail(message: str, status: int) -> int:
    say(f"diagnose: {clean(message)}")
    return status


def _unexpected(error: Exception) -> int:
    from diagnose.catalog.load import CatalogError

    if isinstance(error, CatalogError):
        return _fail(str(error), EXIT_UNUSABLE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", EXIT_UNUSABLE)
    if os.environ.get("DIAGNOSE_TRACEBACK"):
        traceback.print_exception(error)
    return _fail(
        f"internal error, please report it: {type(error).__name__}: {error} "
        "(DIAGNOSE_TRACEBACK=1 shows where)",
        EXIT_BUG,
    )


def _usage(error: Exception, arguments: Sequence[str]) -> str:
    """What is wrong with the command line, on one line, and where to look."""
    message = getattr(error, "format_message", error.__str__)()
    message = " ".join(message.replace("Value error, ", "").split())
    if arguments and os.path.exists(arguments[0]):  # noqa: PTH110  Path's raises on long names
        return f"{message} (to diagnose a file or folder: diagnose triage PATH)"
    return f"{message} (see diagnose --help)"


def _unknown(what: str, given: str, choices: Sequence[str]) -> str:
    """A message for a name that does not exist: near ones, or all when they are few."""
    from difflib import get_close_matches

    message = f"unknown {what} {given!r}"
    near = get_close_matches(given, choices, n=3, cutoff=0.5)
    if near:
        message += f"; did you mean {' or '.join(near)}?"
    if len(choices) <= 60:
        return f"{message}{'' if near else ';'} choose from {', '.join(choices)}"
    return message if near else f"{message}; `diagnose catalog list` shows all {len(choices)}"
