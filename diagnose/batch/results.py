"""The results of a scan: a row and a diagnosis a job, in one SQLite file.

    results/
      diagnose.sqlite    jobs: one row a job, see COLUMNS; diagnoses: JSON, zstd; scan: what it read
      reports/           post-mortems that `fleet --reports` made

Every job is there as soon as it is read. Tables of it, for pandas and others, are exports.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import zstandard

from diagnose import __version__
from diagnose.batch.jobs import JobRef
from diagnose.batch.names import page_of, shown, stored
from diagnose.batch.work import Result
from diagnose.errors import InputError
from diagnose.ingest.names import RESULTS, is_results
from diagnose.ingest.raw import reason
from diagnose.redact.redactor import mask
from diagnose.report.safe import masked_strings
from diagnose.runtime.database import Database, locked, unusable

if TYPE_CHECKING:
    import pyarrow as pa

LOCK = ".lock"
MAX_DOCUMENT = 64 << 20
_MOST = (1 << 63) - 1
_ROWS = 20_000  # of a table that is made at once
_KEY = ("size", "mtime", "tag", "catalog")  # by which it is seen that a job has changed

# What a column holds: texts, numbers, times by the job's own clock (ISO 8601), lists as JSON.
COLUMNS = {
    "job": "text",  # its id; `source` is the key
    "source": "text",  # path or URL, see `names`
    "labels": "text",  # JSON object
    "verdict": "text",  # null where the job could not be diagnosed
    "class": "text",
    "signature": "text",
    "confidence": "text",
    "culprit_ranks": "integers",
    "culprit_hosts": "texts",
    "culprit_kind": "text",
    "phase": "text",
    "onset": "time",
    "duration_hung_s": "real",  # onset to the end of the job
    "gpu_hours_lost": "real",  # the same times its ranks
    "checkpoint": "text",  # the whole one to resume from; null: none was found
    "checkpoint_step": "integer",
    "checkpoint_state": "text",  # of the one written last: whole, partial, corrupt …
    "fingerprint": "text",
    "title": "text",
    "hosts": "texts",  # all of the job's
    "ranks": "integer",  # world size
    "versions": "text",  # JSON object
    "frameworks": "texts",
    "started": "time",
    "ended": "time",
    "size": "integer",  # bytes, as stored
    "mtime": "real",  # seconds since 1970
    "tag": "text",  # of the content; null: to be read again
    "catalog": "text",  # revision of the catalog
    "error": "text",
    "notes": "texts",
}
_LISTS = ("texts", "integers")
_TYPES = {"integer": "INTEGER", "real": "REAL"}
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS jobs (
  {", ".join(f"{name} {_TYPES.get(kind, 'TEXT')}" for name, kind in COLUMNS.items())},
  PRIMARY KEY (source)
);
CREATE TABLE IF NOT EXISTS diagnoses (source TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS scan (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class Results:
    """The results folder of one scan, held by a lock; close it, or use it in `with`."""

    def __init__(self, folder: Path, database: Database, lock: int, *, made: bool) -> None:
        self.folder = folder
        self._db = database
        self._lock = lock
        self._made = made  # the folder was not there
        self._pack = zstandard.ZstdCompressor()
        columns = ", ".join(("source", *_KEY))
        self.known = {row[0]: row[1:] for row in database.rows(f"SELECT {columns} FROM jobs")}
        self._keys: dict[str, str] = {}  # source → what it is called here
        self._taken: set[str] = set()

    def __enter__(self) -> Results:
        """Nothing to do: opened already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the folder, and leave none behind that was made for nothing."""
        self._db.close()
        if self._made and not self.known:
            with suppress(OSError):
                for name in (RESULTS, LOCK):
                    (self.folder / name).unlink(missing_ok=True)
                self.folder.rmdir()
        os.close(self._lock)

    def done(self, ref: JobRef, catalog: str) -> bool:
        """Whether the results hold this job, unchanged and by this catalog."""
        if not ref.tag:
            return False
        return self.known.get(self.key(ref.source)) == (ref.size, ref.mtime, ref.tag, catalog)

    def key(self, source: str) -> str:
        """What a source is called in the results: without secrets, and with no other's name."""
        if source not in self._keys:
            bare = key = stored(mask(source))
            number = 1
            while key in self._taken:
                number += 1
                key = f"{bare} ({number})"
            self._keys[source] = key
            self._taken.add(key)
        return self._keys[source]

    def add(self, result: Result) -> None:
        """Keep a job instead of what was kept of it, and remove its page, which is of that.

        Raises InputError where it cannot be written; then none of it is in the results.
        """
        row = _row(result, self.key(result.row["source"]))
        places = ", ".join("?" * len(row))
        with self._db.usable(), self._db.change() as db:
            db.execute(f"INSERT OR REPLACE INTO jobs VALUES ({places})", [*row.values()])
            db.execute("DELETE FROM diagnoses WHERE source = ?", [row["source"]])
            if result.document:
                data = self._pack.compress(shown(result.document, within_json=True).encode())
                db.execute("INSERT INTO diagnoses VALUES (?, ?)", [row["source"], data])
        self.known[row["source"]] = tuple(row[name] for name in _KEY)
        (self.folder / page_of(row["source"])).unlink(missing_ok=True)

    def describe(self, **facts: Any) -> None:
        """Keep what is known of the scan so far."""
        rows = [
            (name, json.dumps(value))
            for name, value in masked_strings({"diagnose": __version__, **facts}).items()
        ]
        with self._db.usable(), self._db.change() as db:
            db.executemany("INSERT OR REPLACE INTO scan VALUES (?, ?)", rows)


def open_results(folder: Path, *, resume: bool) -> Results:
    """Open a folder for a scan; made if needed. Raises InputError.

    Without `resume` it must not hold results.
    """
    try:
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_old(folder)
        lock = locked(folder / LOCK)
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else folder
        raise InputError(f"cannot write results to {where}: {reason(error)}") from error
    if lock is None:
        raise InputError(f"{folder}: another scan is writing there")
    try:
        database = Database(folder / RESULTS, _SCHEMA, {"jobs": [*COLUMNS]})
        with database.usable():
            found = Results(folder, database, lock, made=made)
        if found.known and not resume:
            database.close()
            raise InputError(
                f"{folder} holds results already: --resume to go on, or give another folder"
            )
    except BaseException:
        os.close(lock)
        raise
    return found


def folder_of(results: Path) -> Path:
    """The folder of results; the file in it may be given, too."""
    return results.parent if results.name == RESULTS and not results.is_dir() else results


def tables(folder: Path, columns: Sequence[str] = (*COLUMNS,)) -> Iterator[pa.Table]:
    """The rows, so many at a time, with these columns. Raises InputError."""
    with _opened(folder) as db:
        cursor = db.execute(f"SELECT {', '.join(columns)} FROM jobs ORDER BY rowid")
        while rows := cursor.fetchmany(_ROWS):
            table = table_of(dict(zip(columns, zip(*rows, strict=True), strict=True)))
            rows.clear()
            yield table


def rows_of(folder: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """These columns of all rows, as they are stored. Raises InputError."""
    with _opened(folder) as db:
        return db.execute(f"SELECT {', '.join(columns)} FROM jobs ORDER BY rowid").fetchall()


def table_of(columns: dict[str, Sequence[Any]]) -> pa.Table:
    """A table of columns as they are stored."""
    import pyarrow as pa  # noqa: PLC0415  not before there are results

    def column(kind: str, values: Sequence[Any]) -> pa.Array:
        if kind == "time":
            return pa.array(values, pa.string()).cast(pa.timestamp("us"))
        if kind == "texts":
            return _texts(pa.array(values, pa.string()))
        if kind == "integers":
            return pa.array(json.loads(f"[{','.join(values)}]"), pa.list_(pa.int64()))
        return pa.array(
            values, {"integer": pa.int64(), "real": pa.float64()}.get(kind, pa.string())
        )

    return pa.table({name: column(COLUMNS[name], values) for name, values in columns.items()})


def _texts(stored: pa.StringArray) -> pa.ListArray:
    """Lists of texts from their JSON: a row without a backslash has quotes between texts alone."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if pc.any(pc.match_substring(stored, "\\")).as_py():
        return pa.array(json.loads(f"[{','.join(stored.to_pylist())}]"), pa.list_(pa.string()))
    split = pc.split_pattern(pc.utf8_slice_codeunits(stored, 2, -2), '", "')
    some = pc.not_equal(stored, "[]")
    lengths = pc.multiply(pc.list_value_length(split), some.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    items = pc.list_flatten(split.filter(some))
    return pa.ListArray.from_arrays(offsets.cast(pa.int32()), items)


def diagnoses(folder: Path, sources: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """The stored diagnoses: dicts with job, source and diagnosis (schema `diagnose/2`).

    Of all jobs, or of those in `sources` (as stored); one that is damaged is left out. Raises
    InputError.
    """
    query = "SELECT job, source, data FROM diagnoses JOIN jobs USING (source)"
    unpack = zstandard.ZstdDecompressor()
    with _opened(folder) as db:
        if sources is None:
            rows: Iterable[Any] = db.execute(f"{query} ORDER BY jobs.rowid")
        else:
            each = (db.execute(f"{query} WHERE source = ?", [one]) for one in sources)
            rows = (row for found in each for row in found)
        for job, source, data in rows:
            with suppress(zstandard.ZstdError, ValueError, RecursionError):
                document = json.loads(unpack.decompress(data, max_output_size=MAX_DOCUMENT))
                yield {"job": job, "source": source, "diagnosis": document}


def diagnosis_of(folder: Path, job: str) -> tuple[str, str, dict[str, Any]]:
    """Name, fingerprint and stored diagnosis of one job, by its id or its source.

    Raises InputError where there is none, or several.
    """
    with _opened(folder) as db:
        query = "SELECT source, job, fingerprint FROM jobs WHERE job = ? OR source = ? LIMIT 5"
        rows = db.execute(query, [job, job]).fetchall()
    if not rows:
        raise InputError(f"{folder} has no job {job}: diagnose fleet {folder} --jobs lists them")
    if len(rows) > 1:
        sources = ", ".join(row[0] for row in rows)
        raise InputError(f"several jobs are called {job}: give the source of one: {sources}")
    source, name, mark = rows[0]
    for one in diagnoses(folder, [source]):
        return name or source, mark or "", one["diagnosis"]
    raise InputError(f"{source} could not be diagnosed: diagnose fleet {folder} says why")


def described(folder: Path) -> dict[str, Any]:
    """What is known of the scan. Raises InputError."""
    with _opened(folder) as db:
        return {name: json.loads(value) for name, value in db.execute("SELECT * FROM scan")}


def export(folder: Path, target: Path) -> None:
    """Write the rows as Parquet or, where the target is so called, CSV. Raises InputError."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv, parquet  # noqa: PLC0415

    whole = pa.concat_tables([*tables(folder)] or [table_of(dict.fromkeys(COLUMNS, ()))])
    sink = pa.BufferOutputStream()
    if target.suffix == ".csv":
        for at, kind in enumerate(COLUMNS.values()):
            if kind in _LISTS:
                texts = [json.dumps(value, ensure_ascii=False) for value in whole[at].to_pylist()]
                whole = whole.set_column(at, whole.field(at).name, pa.array(texts, pa.string()))
        csv.write_csv(whole, sink)
    else:
        parquet.write_table(whole, sink, compression="zstd")
    from diagnose.runtime.files import write  # noqa: PLC0415

    try:
        write(target, sink.getvalue().to_pybytes())
    except OSError as error:
        raise InputError(f"cannot write {target}: {reason(error)}") from error


def _refuse_old(folder: Path) -> None:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if RESULTS not in names and is_results(names):
        raise InputError(
            f"{folder} holds results of an earlier version: scan into another folder (it keeps "
            "nothing that a scan cannot find again)"
        )


@contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """The results for reading."""
    path = folder / RESULTS
    if not path.exists():
        _refuse_old(folder)
        raise InputError(
            f"{path} does not exist: give the folder that `diagnose scan ARCHIVES -o FOLDER` wrote"
        )
    if not path.is_file():
        raise InputError(f"{path} is not a regular file")
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=rw", uri=True)) as db:
            yield db
    except sqlite3.Error as error:
        raise InputError(unusable(path, error)) from error


def _row(result: Result, key: str) -> dict[str, Any]:
    """A row as it is stored."""
    row = masked_strings({name: result.row.get(name) for name in COLUMNS}) | {"source": key}
    if not result.final:
        row["tag"] = None
    return {name: _value(COLUMNS[name], shown(value)) for name, value in row.items()}


def _value(kind: str, value: Any) -> Any:
    """A value as its column holds it: a log may tell of a rank with twenty digits."""
    if kind in _LISTS:
        kept = [item for item in value or () if not isinstance(item, int) or abs(item) <= _MOST]
        return json.dumps(kept, ensure_ascii=False)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return None if isinstance(value, int) and abs(value) > _MOST else value
