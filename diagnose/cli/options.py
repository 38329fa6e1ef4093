"""Options that several commands share, and how paths on the command line are read.

An empty path is an unset variable of a script; as a path it would be the current folder.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from diagnose.cli.output import Color


def option(names: str, help: str, metavar: str | None = None, **more: Any) -> Any:  # noqa: A002
    """An option of these names, parted by blanks; without a `metavar` a flag or a choice."""
    return typer.Option(*names.split(), help=help, metavar=metavar, **more)


def argument(metavar: str, help: str, **more: Any) -> Any:  # noqa: A002
    """What stands on the command line without an option."""
    return typer.Argument(metavar=metavar, help=help, **more)


def named(text: str) -> str:
    """A path or URL."""
    if not text:
        raise typer.BadParameter("the path is empty")
    return text


def path(text: str) -> Path:
    """A path of this machine."""
    return Path(named(text))


def file_path(text: str | Path) -> Path:
    """A path to write a file to; the default of an option comes as a path."""
    if named(str(text)).endswith("/"):  # which a Path would drop
        raise typer.BadParameter(f"{text} names a folder")
    return Path(text)


class Format(StrEnum):
    """What a command prints that has no other form."""

    terminal = "terminal"
    json = "json"


Patterns = Annotated[
    list[Path] | None,
    option("--patterns", "Add the signatures in this folder (repeatable).", "DIR", parser=path),
]
ColorOption = Annotated[Color, option("--color", "When to use colour.")]
Paths = Annotated[
    list[str] | None,
    argument("PATH...", "Log files and job folders; none or - reads standard input."),
]
Workers = Annotated[
    int | None,
    option("--workers", "Worker processes (default: a core each, if large).", "N", min=1),
]
Checkpoints = Annotated[
    list[str] | None,
    option(
        "--checkpoints",
        "Folder of the job's checkpoints (default: its log folders).",
        "DIR",
        parser=named,
    ),
]
Places = Annotated[
    Path | None,
    option(
        "--topology",
        "Where the nodes are: a CSV (host,rack,leaf), Slurm's topology file, kubectl's nodes, "
        "Topograph's or ibnetdiscover's output.",
        "FILE",
        parser=path,
    ),
]
ExitCode = Annotated[bool, option("--exit-code", "Exit with status 1 if the job hung or failed.")]
OutputFile = Annotated[
    Path, option("--output -o", "Output file; - writes to stdout.", "FILE", parser=file_path)
]
NoRedact = Annotated[bool, option("--no-redact", "Do not mask secrets and names in the page.")]
Title = Annotated[str | None, option("--title", "Title of the page.", "TEXT")]
OutputFormat = Annotated[Format, option("--format", "Output format.")]
Memory = Annotated[
    Path | None,
    option(
        "--memory",
        "File of what `confirm` keeps, or its folder (default: DIAGNOSE_MEMORY, or yours).",
        "FILE",
        parser=path,
    ),
]
