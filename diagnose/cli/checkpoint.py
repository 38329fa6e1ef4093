"""The command `checkpoint`: is it whole, and from which one can the job resume?

Heavy imports stand inside the command, as in `cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.options import ColorOption, Format, OutputFormat, argument, option, path
from diagnose.cli.output import Color, clean, say, show, write

if TYPE_CHECKING:
    from diagnose.checkpoint.model import Inspection, Lost

EXIT_DAMAGED = 1


def checkpoint(
    paths: Annotated[
        list[str], argument("PATH...", "Checkpoints, folders that contain checkpoints, or URLs.")
    ],
    output: OutputFormat = Format.terminal,
    verify: Annotated[
        bool, option("--verify", "Read every byte and verify the checksums stored in the files.")
    ] = False,
    logs: Annotated[
        list[Path] | None,
        option(
            "--logs",
            "Logs of the run, to estimate the work that resuming repeats.",
            "PATH",
            parser=path,
        ),
    ] = None,
    color: ColorOption = Color.auto,
    exit_code: Annotated[
        bool, option("--exit-code", "Exit with status 1 unless every checkpoint is intact.")
    ] = False,
) -> None:
    """Check which checkpoints are intact, and how to resume.

    Says what is wrong with the others.
    """
    from diagnose.checkpoint.find import inspect
    from diagnose.ingest.names import expanded

    inspection = inspect(expanded(paths), verify=verify)
    lost = _lost(inspection, logs) if logs else None
    from diagnose.report import checkpoint as report

    if output is Format.json:
        from diagnose.report.safe import escaped, masked_strings

        write(escaped(masked_strings(inspection).to_json()) + "\n", encoding="utf-8")
    else:
        show(color, lambda console: report.render(inspection, console, lost))
    for note in inspection.notes[:10]:
        say(f"note: {clean(note)}")
    sound = all(one.state == "whole" for one in inspection.checkpoints)
    if exit_code and not (sound and inspection.checkpoints):
        raise typer.Exit(EXIT_DAMAGED)


def _lost(inspection: Inspection, logs: list[Path]) -> Lost | None:
    from diagnose.checkpoint.model import lost
    from diagnose.infer.pipeline import diagnose
    from diagnose.job.load import load

    job = load(logs)
    back = inspection.resume
    return lost(job.events, back.step, diagnose(job).job.world_size) if back else None
