"""The results of a scan as files: a Parquet data set that grows by parts, and the diagnoses.

    results/
      jobs.parquet/part-00000.parquet    one row a job; pandas, DuckDB and Spark read the folder
      diagnoses/part-00000.jsonl.zst     the diagnoses of the same part, one JSON line a job
      manifest.json                      what was scanned, with what, and whether to its end

A part is written beside its place, flushed to the disk and renamed; its table last. So a table
that is there is whole, and a job is in the results once its part's table is. What a disk or a
person damaged later is found when the folder is opened: it costs the jobs of that part one more
reading, and a line.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from diagnose import __version__, files
from diagnose.batch import parts
from diagnose.batch.jobs import JobRef
from diagnose.batch.pages import FOLDER, mark, marked
from diagnose.batch.parts import DIAGNOSES, MANIFEST, SCHEMA, TABLE, DamagedError
from diagnose.batch.stored import shown, stored
from diagnose.batch.work import Result
from diagnose.errors import InputError
from diagnose.ingest.raw import reason
from diagnose.redact.redactor import mask
from diagnose.report.safe import masked_strings

FORMAT = "diagnose-results/1"
LOCK = ".lock"
ASIDE = ".{}.damaged"  # hidden: who reads the folder as a whole passes it by
_MOST = (1 << 63) - 1
_KEY = ("size", "mtime", "tag", "catalog")

Warn = Callable[[str], None]


@dataclass(slots=True)
class Results:
    """The results folder of one scan, held by a lock; close it, or use it in `with`."""

    folder: Path
    part: int  # number of the next part
    known: dict[str, tuple[Any, ...]]  # stored source → (size, mtime, tag, catalog)
    lock: int
    made: bool = False  # the folder was not there
    state: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)  # source → what it is called here
    taken: set[str] = field(default_factory=set)

    def __enter__(self) -> Results:
        """Nothing to do: opened already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the folder, and leave none behind that was made for nothing."""
        if self.made and not self.part:
            self._remove()
        os.close(self.lock)

    def _remove(self) -> None:
        """Remove what a scan makes before its first job; a folder with anything else stays."""
        with suppress(OSError):
            for name in (MANIFEST, LOCK):
                (self.folder / name).unlink(missing_ok=True)
            for inside in (TABLE, DIAGNOSES, ""):
                (self.folder / inside).rmdir()

    def done(self, ref: JobRef, catalog: str) -> bool:
        """Whether the results hold this job, unchanged and by this catalog."""
        if not ref.tag:
            return False
        return self.known.get(self.key(ref.source)) == (ref.size, ref.mtime, ref.tag, catalog)

    def key(self, source: str) -> str:
        """What a source is called in the results: without secrets, and with no other's name."""
        if source not in self.keys:
            bare = key = stored(mask(source))
            number = 1
            while key in self.taken:
                number += 1
                key = f"{bare} ({number})"
            self.keys[source] = key
            self.taken.add(key)
        return self.keys[source]

    def commit(self, results: Sequence[Result]) -> None:
        """Add a part, and remove the pages of its jobs, which are of an earlier reading.

        Raises OSError; then none of it is in the results.
        """
        if not results:
            return
        rows = [_stored(result, self.key(result.row["source"])) for result in results]
        lines = [
            parts.line(row["job"], row["source"], result.document)
            for row, result in zip(rows, results, strict=True)
            if result.document
        ]
        _write_part(self.folder, self.part, parts.table_of(rows), lines)
        self.part += 1
        for row in rows:
            self.known[row["source"]] = ()
        marks = {mark(row["source"]) for row in rows}
        for page in (self.folder / FOLDER).glob("*.html"):
            if marked(page.name) in marks:
                page.unlink(missing_ok=True)

    def forget(self, sources: set[str]) -> None:
        """Take jobs out that are to be read again, before they are."""
        stale = {self.key(source) for source in sources} & self.known.keys()
        for number in parts.numbers(self.folder / TABLE) if stale else []:
            try:
                table = parts.read_table(self.folder, number)
            except DamagedError as error:
                path = self.folder / TABLE / parts.name(number, "parquet")
                raise InputError(f"{path} was damaged just now: {error}") from error
            keep = [source not in stale for source in table["source"].to_pylist()]
            if all(keep):
                continue
            lines, _ = _salvaged(self.folder, number)
            kept = [line for source, line in lines.items() if source not in stale]
            _write_part(self.folder, number, table.filter(pa.array(keep)), kept)
        for source in stale:
            del self.known[source]

    def describe(self, **facts: Any) -> None:
        """Write what is known of the scan so far into the manifest."""
        self.state |= masked_strings(facts)
        text = json.dumps({"format": FORMAT, "diagnose": __version__, **self.state}, indent=1)
        _write(self.folder / MANIFEST, text.encode() + b"\n")


def open_results(folder: Path, *, resume: bool, warn: Warn = warnings.warn) -> Results:
    """Open a folder for a scan; made if needed. Raises InputError.

    Without `resume` it must not hold results. What an unfinished commit left behind is removed;
    what is damaged is put aside, so that its jobs are read again, and `warn` gets a line about it.
    """
    try:
        made = not folder.exists()
        for inside in (folder, folder / TABLE, folder / DIAGNOSES):
            inside.mkdir(parents=True, exist_ok=True)
        lock = _locked(folder)
        try:
            numbers = parts.numbers(folder / TABLE)
            if numbers and not resume:
                raise InputError(
                    f"{folder} holds results already: --resume to go on, or give another folder"
                )
            _clean(folder, set(numbers))
            known: dict[str, tuple[Any, ...]] = {}
            for number in numbers:
                known |= _known(folder, number, warn)
            return Results(folder, max(numbers, default=-1) + 1, known, lock, made)
        except BaseException:
            os.close(lock)
            raise
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else folder
        raise InputError(f"cannot write results to {where}: {reason(error)}") from error


def diagnoses(
    folder: Path, sources: Iterable[str] | None = None, warn: Warn = warnings.warn
) -> Iterator[dict[str, Any]]:
    """The stored diagnoses: dicts with job, source and diagnosis (schema `diagnose/2`).

    Of all jobs, or of those in `sources` (as stored). `warn` gets a line of damaged parts, of which
    there is what comes before the damage. Raises OSError.
    """
    wanted = None if sources is None else set(sources)
    for number in parts.numbers(folder / TABLE):
        try:
            for source, line in parts.lines(folder, number):
                if wanted is None or source in wanted:
                    yield parts.document_of(line)
        except DamagedError as error:
            path = folder / DIAGNOSES / parts.name(number, "jsonl.zst")
            warn(f"{path} is damaged ({error}): `diagnose scan … --resume` reads its jobs again")


def _stored(result: Result, key: str) -> dict[str, Any]:
    row = masked_strings({name: result.row.get(name) for name in SCHEMA.names})
    for name in ("culprit_ranks", "culprit_hosts", "hosts", "frameworks", "notes"):
        row[name] = row[name] or []
    if not result.final:
        row["tag"] = None
    held = {name: _bounded(shown(value)) for name, value in row.items()}
    return held | {"source": key}


def _bounded(value: Any) -> Any:
    """Numbers that a column holds: a log may tell of a rank with twenty digits."""
    if isinstance(value, list):
        return [item for item in map(_bounded, value) if item is not None]
    return None if isinstance(value, int) and abs(value) > _MOST else value


def _write_part(folder: Path, number: int, table: pa.Table, lines: list[bytes]) -> None:
    _write(folder / DIAGNOSES / parts.name(number, "jsonl.zst"), parts.write_lines(lines))
    _write(folder / TABLE / parts.name(number, "parquet"), parts.write_table(table))


def _write(path: Path, data: bytes) -> None:
    files.replace(path, data, durable=True)


def _locked(folder: Path) -> int:
    """A file of the folder, opened and locked for one scan."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    lock = os.open(folder / LOCK, flags, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise InputError(f"{folder}: another scan is writing there") from error
    return lock


def _clean(folder: Path, whole: set[int]) -> None:
    for inside in (folder, folder / TABLE, folder / DIAGNOSES):
        for path in inside.glob(f".*{files.PARTIAL}"):
            path.unlink()
    for number in set(parts.numbers(folder / DIAGNOSES)) - whole:
        (folder / DIAGNOSES / parts.name(number, "jsonl.zst")).unlink()


def _known(folder: Path, number: int, warn: Warn) -> dict[str, tuple[Any, ...]]:
    """The jobs of a part by source, and by what to see that they have changed."""
    path = folder / TABLE / parts.name(number, "parquet")
    try:
        table = parts.read_table(folder, number)
    except DamagedError as error:
        stored = folder / DIAGNOSES / parts.name(number, "jsonl.zst")
        with suppress(FileNotFoundError):
            stored.replace(stored.with_name(ASIDE.format(stored.name)))
        aside = path.with_name(ASIDE.format(path.name))
        path.replace(aside)
        warn(f"{path} is damaged ({error}): moved aside as {aside.name}, its jobs are read again")
        return {}
    table = _repaired(folder, number, table, warn)
    columns = (table[name].to_pylist() for name in _KEY)
    return dict(zip(table["source"].to_pylist(), zip(*columns, strict=True), strict=True))


def _repaired(folder: Path, number: int, table: pa.Table, warn: Warn) -> pa.Table:
    """The table of a part; where diagnoses are lost, written anew so that these jobs are read."""
    lines, damage = _salvaged(folder, number)
    lost = [
        verdict is not None and tag is not None and source not in lines
        for source, verdict, tag in zip(
            *(table[name].to_pylist() for name in ("source", "verdict", "tag")), strict=True
        )
    ]
    if not damage and not any(lost):
        return table
    tags = [None if gone else tag for gone, tag in zip(lost, table["tag"].to_pylist(), strict=True)]
    place = SCHEMA.get_field_index("tag")
    table = table.set_column(place, SCHEMA.field("tag"), pa.array(tags, pa.string()))
    _write_part(folder, number, table, list(lines.values()))
    path = folder / DIAGNOSES / parts.name(number, "jsonl.zst")
    what = f"is damaged ({damage})" if damage else "is not whole"
    cost = f"{sum(lost)} of its jobs are read again" if any(lost) else "no diagnosis was lost"
    warn(f"{path} {what}: {cost}")
    return table


def _salvaged(folder: Path, number: int) -> tuple[dict[str, bytes], str]:
    """What can be read of a part's diagnoses by source, and why not more."""
    found: dict[str, bytes] = {}
    try:
        for source, line in parts.lines(folder, number):
            found[source] = line
    except DamagedError as error:
        return found, str(error)
    return found, ""
