"""Reading a results folder: what is damaged in it is left out and told."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from diagnose.batch import parts as stored
from diagnose.batch.results import diagnoses
from diagnose.batch.stored import shown
from diagnose.errors import InputError
from diagnose.fleet.jobs import Jobs, joined
from diagnose.fleet.parts import part, unexplained

FILE = stored.TABLE
COLUMNS = (
    "job", "source", "labels", "verdict", "class", "confidence", "culprit_hosts", "onset",
    "gpu_hours_lost", "fingerprint", "title", "hosts", "ranks", "versions",
    "started", "ended", "mtime", "tag", "error", "notes",
)  # fmt: skip
# Also read where the table has them, as all that this version writes does.
_READ = [*COLUMNS, "signature", "frameworks", "duration_hung_s"]


def table_of(results: Path) -> Path:
    """The table of a results folder; it may be given itself."""
    inside = results / FILE
    return results if results.suffix == ".parquet" and not inside.exists() else inside


def read(results: Path, warn: Callable[[str], None] = warnings.warn) -> Jobs:
    """The jobs of a results folder, or of the file in it.

    `warn` gets a line of each damaged part, left out. Raises InputError with what to do when
    the table is absent, damaged as a whole, empty or not one of jobs.
    """
    path = table_of(results)
    if not path.exists():
        raise InputError(
            f"{path} does not exist: give the folder that `diagnose scan ARCHIVES -o FOLDER` wrote"
        )
    # A part at a time is made small, so that no more than one is there in full.
    found = [part(table) for table in (_parts(path, warn) if path.is_dir() else [_file(path)])]
    pa.default_memory_pool().release_unused()
    if not any(map(len, found)):
        raise InputError(f"{path} holds no jobs: `diagnose scan` found nothing to diagnose")
    return joined(found, _endings(path.parent, unexplained(found), warn))


def typed(table: pa.Table, endings: Mapping[str, str] | None = None) -> Jobs:
    """Rows as the scan writes them, made ready for the questions asked here.

    `endings` gives the text for `ending` by source; without one it is the last note or the title.
    """
    return joined([part(table)], endings or {})


def _parts(path: Path, warn: Callable[[str], None]) -> Iterator[pa.Table]:
    """All whole parts."""
    whole, wrong = 0, []
    try:
        for number in stored.numbers(path):
            try:
                table = stored.read_table(path.parent, number, _READ)
            except stored.DamagedError as error:
                wrong.append(f"{path / stored.name(number, 'parquet')} is damaged ({error})")
            else:
                whole += 1
                yield table
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from error
    advice = "`diagnose scan … --resume` reads its jobs again"
    if wrong and not whole:
        raise InputError(f"{wrong[0]}: {advice}")
    for text in wrong:
        warn(f"{text} and left out: {advice}")
    if not whole:
        raise InputError(f"{path.parent} holds no jobs yet: {_why_none(path.parent)}")


def _why_none(results: Path) -> str:
    """Why a scan has left no part, by its manifest."""
    if stored.complete(results):
        return "`diagnose scan` found nothing to diagnose"
    return "the first jobs of `diagnose scan` are not done, or it was stopped; --resume continues"


def _file(path: Path) -> pa.Table:
    """A table in one file, as `pandas` writes it."""
    if not path.is_file():
        raise InputError(f"{path} is not a regular file")
    try:
        table = pq.read_table(path)
        table.validate(full=True)
    except Exception as error:  # pyarrow has no common base for its errors
        why = " ".join(str(error).split())[:200]
        raise InputError(f"{path} cannot be read ({why}): scan again into a new folder") from error
    absent = [name for name in COLUMNS if name not in table.column_names]
    if absent:
        raise InputError(
            f"{path} lacks the columns {', '.join(absent)}: it was not written by this version of "
            "`diagnose scan`; scan again into a new folder"
        )
    return table


def _endings(results: Path, sources: set[str], warn: Callable[[str], None]) -> dict[str, str]:
    """By source what the stored diagnoses quote first. Old results may lack them."""
    found = {}
    try:
        for one in diagnoses(results, sources, warn) if sources else ():
            ending = _ending(one)
            if ending:
                found[one["source"]] = ending
    except OSError as error:
        warn(f"{error.filename or results}: {error.strerror or error}: no texts of unknown jobs")
    return found


def _ending(one: Any) -> str:
    try:
        diagnosis = one["diagnosis"]
        quoted = [item["text"] for item in diagnosis["evidence"]]
        text = quoted[0] if quoted else diagnosis["root_cause"]["summary"]
    except (KeyError, TypeError, IndexError):
        return ""
    return shown(text) if isinstance(text, str) else ""
