"""Options that several commands share, and how paths on the command line are read.

An empty path is an unset variable of a script; as a path it would be the current folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diagnose.cli.output import Color


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


Patterns = Annotated[
    list[Path] | None,
    typer.Option(
        "--patterns",
        metavar="DIR",
        parser=path,
        help="Add the signatures in this folder (repeatable).",
    ),
]
ColorOption = Annotated[Color, typer.Option("--color", help="When to use colour.")]
Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH...", help="Log files and job folders; none or - reads standard input."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="Worker processes (default: a core each, if large).",
    ),
]
Checkpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoints",
        metavar="DIR",
        parser=named,
        help="Folder of the job's checkpoints (default: its log folders).",
    ),
]
Places = Annotated[
    Path | None,
    typer.Option(
        "--topology",
        metavar="FILE",
        parser=path,
        help="Where the nodes are: a CSV (host,rack,leaf), Slurm's topology file, kubectl's nodes, "
        "Topograph's or ibnetdiscover's output.",
    ),
]
ExitCode = Annotated[
    bool, typer.Option("--exit-code", help="Exit with status 1 if the job hung or failed.")
]
OutputFile = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="FILE", parser=file_path, help="Output file; - writes to stdout."
    ),
]
Title = Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the page.")]
Memory = Annotated[
    Path | None,
    typer.Option(
        "--memory",
        metavar="FILE",
        parser=path,
        help="File of what `confirm` keeps, or its folder (default: DIAGNOSE_MEMORY, or yours).",
    ),
]
