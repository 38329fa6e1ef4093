"""Checkpoints among what was uploaded, judged as `diagnose triage` judges those of a folder.

An upload lies in a folder of a name that means nothing to anybody, so what is told of a checkpoint
names it by the path under which it was sent.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from diagnose.checkpoint.model import Checkpoint, Inspection, resume
from diagnose.errors import InputError
from diagnose.ingest.names import printable
from diagnose.ingest.source import Source
from diagnose.job.load import saved
from diagnose.serve.unpack import unpack

_ROOT = "."  # the path of a checkpoint whose files were sent without a folder


def uploaded(
    folder: Path, sources: Sequence[Source], limit: int
) -> tuple[Inspection | None, list[str]]:
    """The checkpoints in `folder` and in the archives there, and notes on what could not be read.

    `sources` are what was found there; `limit` bytes of each archive may be unpacked for it.
    """
    # Most archives hold logs alone: of these nothing was left out.
    partly = {source.name for source in sources if source.left_out}
    archives = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and printable(path.name) in partly
    ]
    # When a browser sent a file says nothing of when it was written.
    for path in _files(folder):
        os.utime(path, (0, 0))
    notes: list[str] = []
    found = _in(folder, notes)
    for path in archives:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            try:
                unpack(path, Path(place), limit)
            except InputError as error:
                note = f"checkpoints in it were not looked for: {error}"
                notes.append(f"{printable(path.name)}: {note}")
            else:
                found += _in(Path(place), notes)
    return (Inspection(found, resume(found)) if found else None), notes


def _files(folder: Path) -> Iterator[Path]:
    for base, _, names in os.walk(folder):
        yield from (Path(base, name) for name in names)


def _in(folder: Path, notes: list[str]) -> list[Checkpoint]:
    """The checkpoints of a folder, by their paths in it."""
    inspection = saved([folder])
    if inspection is None:
        return []
    notes += [_short(note, folder) for note in inspection.notes]
    return [
        replace(
            one,
            path=os.path.relpath(one.path, folder),
            reasons=[_short(reason, folder) for reason in one.reasons],
            notes=[_short(note, folder) for note in one.notes],
        )
        for one in inspection.checkpoints
    ]


def _short(text: str, folder: Path) -> str:
    return text.replace(f"{folder}/", "").replace(str(folder), _ROOT)
