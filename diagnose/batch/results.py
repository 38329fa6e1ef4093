"""The results of a scan as files: a Parquet data set that grows by parts, and the diagnoses.

    results/
      jobs.parquet/part-00000.parquet    one row a job; pandas, DuckDB and Spark read the folder
      diagnoses/part-00000.jsonl.zst     the diagnoses of the same part, one JSON line a job
      manifest.json                      what was scanned, with what, and whether to its end

A part is written beside its place, flushed to the disk and renamed; its table last. So a table
that is there is whole, and a job is in the results once its part's table is.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from diagnose import __version__, files
from diagnose.batch.jobs import JobRef
from diagnose.batch.work import Result
from diagnose.errors import InputError
from diagnose.ingest.raw import reason
from diagnose.report.redact import mask
from diagnose.report.safe import masked_strings

FORMAT = "diagnose-results/1"
TABLE, DIAGNOSES, MANIFEST = "jobs.parquet", "diagnoses", "manifest.json"
_PART = re.compile(r"part-(\d{5,9})\.(?:parquet|jsonl\.zst)\Z")
_MAX_LINE = 64 << 20

_TEXTS = pa.list_(pa.string())
SCHEMA = pa.schema(
    {
        "job": pa.string(),  # its id; `source` is the key
        "source": pa.string(),  # path or URL
        "labels": pa.string(),  # JSON object
        "verdict": pa.string(),  # null where the job could not be diagnosed
        "class": pa.string(),
        "signature": pa.string(),
        "confidence": pa.string(),
        "culprit_ranks": pa.list_(pa.int64()),
        "culprit_hosts": _TEXTS,
        "culprit_kind": pa.string(),
        "phase": pa.string(),
        "onset": pa.timestamp("us"),  # by the job's own clock, like `started` and `ended`
        "duration_hung_s": pa.float64(),  # onset to the end of the job
        "gpu_hours_lost": pa.float64(),  # the same times its ranks
        "checkpoint": pa.string(),  # the whole one to resume from; null: none was found
        "checkpoint_step": pa.int64(),
        "checkpoint_state": pa.string(),  # of the one written last: whole, partial, corrupt …
        "fingerprint": pa.string(),
        "title": pa.string(),
        "hosts": _TEXTS,  # all of the job's
        "ranks": pa.int64(),  # world size
        "versions": pa.string(),  # JSON object
        "frameworks": _TEXTS,
        "started": pa.timestamp("us"),
        "ended": pa.timestamp("us"),
        "size": pa.int64(),  # bytes, as stored
        "mtime": pa.float64(),  # seconds since 1970
        "tag": pa.string(),  # of the content; null: to be read again
        "catalog": pa.string(),  # revision of the catalog
        "error": pa.string(),
        "notes": _TEXTS,
    }
)
_KEY = ("source", "size", "mtime", "tag", "catalog")


@dataclass(slots=True)
class Results:
    """The results folder of one scan, held by a lock; close it, or use it in `with`."""

    folder: Path
    part: int  # number of the next part
    known: dict[str, tuple[Any, ...]]  # source → (size, mtime, tag, catalog)
    lock: IO[bytes]
    state: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)  # source → what it is called here
    taken: set[str] = field(default_factory=set)

    def __enter__(self) -> Results:
        """Nothing to do: opened already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the folder."""
        self.lock.close()

    def done(self, ref: JobRef, catalog: str) -> bool:
        """Whether the results hold this job, unchanged and by this catalog."""
        if not ref.tag:
            return False
        return self.known.get(self.key(ref.source)) == (ref.size, ref.mtime, ref.tag, catalog)

    def key(self, source: str) -> str:
        """What a source is called in the results: without secrets, and with no other's name."""
        if source not in self.keys:
            bare = key = _encodable(mask(source))
            number = 1
            while key in self.taken:
                number += 1
                key = f"{bare} ({number})"
            self.keys[source] = key
            self.taken.add(key)
        return self.keys[source]

    def commit(self, results: Sequence[Result]) -> None:
        """Add a part. Raises OSError; then none of it is in the results."""
        if not results:
            return
        _write_part(
            self.folder,
            self.part,
            _table([_stored(result, self.key(result.row["source"])) for result in results]),
            [
                _line(result, self.key(result.row["source"]))
                for result in results
                if result.document
            ],
        )
        self.part += 1
        for result in results:
            self.known[self.key(result.row["source"])] = ()

    def forget(self, sources: set[str]) -> None:
        """Take jobs out that are to be read again, before they are."""
        stale = {self.key(source) for source in sources} & self.known.keys()
        for number in _parts(self.folder / TABLE) if stale else []:
            path = self.folder / TABLE / _name(number, "parquet")
            column = pq.read_table(path, columns=["source"]).column("source").to_pylist()
            keep = [source not in stale for source in column]
            if all(keep):
                continue
            table = pq.read_table(path, schema=SCHEMA).filter(pa.array(keep))
            lines = [line for source, line in _lines(self.folder, number) if source not in stale]
            _write_part(self.folder, number, table, lines)
        for source in stale:
            del self.known[source]

    def describe(self, **facts: Any) -> None:
        """Write what is known of the scan so far into the manifest."""
        self.state |= masked_strings(facts)
        text = json.dumps({"format": FORMAT, "diagnose": __version__, **self.state}, indent=1)
        _write(self.folder / MANIFEST, text.encode() + b"\n")


def open_results(folder: Path, *, resume: bool) -> Results:
    """Open a folder for a scan; made if needed. Raises InputError.

    Without `resume` it must not hold results. What an unfinished commit left behind is removed.
    """
    try:
        for inside in (folder, folder / TABLE, folder / DIAGNOSES):
            inside.mkdir(parents=True, exist_ok=True)
        lock = _lock_file(folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise InputError(f"{folder}: another scan is writing there") from error
        parts = _parts(folder / TABLE)
        if parts and not resume:
            lock.close()
            raise InputError(
                f"{folder} holds results already: --resume to go on, or give another folder"
            )
        _clean(folder, set(parts))
        return Results(folder, max(parts, default=-1) + 1, _known(folder, parts), lock)
    except OSError as error:
        raise InputError(f"cannot write results to {folder}: {reason(error)}") from error


def diagnoses(folder: Path, sources: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """The stored diagnoses: dicts with job, source and diagnosis (schema `diagnose/1`).

    Of all jobs, or of those in `sources`. Raises OSError.
    """
    wanted = None if sources is None else set(sources)
    for number in _parts(folder / TABLE):
        for source, line in _lines(folder, number):
            if wanted is None or source in wanted:
                yield json.loads(line)


def _stored(result: Result, key: str) -> dict[str, Any]:
    row = masked_strings({name: result.row.get(name) for name in SCHEMA.names})
    row["source"] = key
    for name in ("culprit_ranks", "culprit_hosts", "hosts", "frameworks", "notes"):
        row[name] = row[name] or []
    if not result.final:
        row["tag"] = None
    return {name: _encodable(value) for name, value in row.items()}


def _encodable(value: Any) -> Any:
    """Lone surrogates, as in undecodable file names, have no form in UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def _table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def _line(result: Result, key: str) -> bytes:
    head = json.dumps({"job": mask(result.row["job"]), "source": key})
    document = result.document.encode(errors="backslashreplace")
    return head[:-1].encode() + b', "diagnosis": ' + document + b"}"


def _lines(folder: Path, number: int) -> Iterator[tuple[str, bytes]]:
    """(source, line) of a part's diagnoses."""
    path = folder / DIAGNOSES / _name(number, "jsonl.zst")
    if not path.exists():
        return
    with path.open("rb") as packed:
        reader = zstandard.ZstdDecompressor().stream_reader(packed)
        with io.BufferedReader(reader) as lines:
            while line := lines.readline(_MAX_LINE):
                yield json.loads(line)["source"], line.rstrip(b"\n")


def _write_part(folder: Path, number: int, table: pa.Table, lines: Sequence[bytes]) -> None:
    packed = zstandard.ZstdCompressor().compress(b"".join(line + b"\n" for line in lines))
    _write(folder / DIAGNOSES / _name(number, "jsonl.zst"), packed)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    _write(folder / TABLE / _name(number, "parquet"), sink.getvalue().to_pybytes())


def _write(path: Path, data: bytes) -> None:
    files.replace(path, data, durable=True)


def _lock_file(folder: Path) -> IO[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(folder / ".lock", flags, 0o666), "wb")


def _name(number: int, suffix: str) -> str:
    return f"part-{number:05d}.{suffix}"


def _parts(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    found = (_PART.match(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def _clean(folder: Path, whole: set[int]) -> None:
    for inside in (folder, folder / TABLE, folder / DIAGNOSES):
        for path in inside.glob(f".*{files.PARTIAL}"):
            path.unlink()
    for number in set(_parts(folder / DIAGNOSES)) - whole:
        (folder / DIAGNOSES / _name(number, "jsonl.zst")).unlink()


def _known(folder: Path, parts: Iterable[int]) -> dict[str, tuple[Any, ...]]:
    known: dict[str, tuple[Any, ...]] = {}
    for number in parts:
        path = folder / TABLE / _name(number, "parquet")
        try:
            columns = pq.read_table(path, columns=list(_KEY)).to_pydict()
        except (pa.ArrowException, KeyError) as error:
            raise InputError(
                f"{path}: {' '.join(str(error).split())[:200]}; remove this part to go on"
            ) from error
        rows = zip(*(columns[name] for name in _KEY), strict=True)
        known |= {row[0]: row[1:] for row in rows}
    return known
