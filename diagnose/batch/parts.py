"""The parts of a results folder as files: names, columns, and reading what may be damaged.

A part is a table (Parquet) and the diagnoses of its jobs (JSON lines, zstd) under the same number.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from diagnose.ingest.file_names import RESULTS

TABLE, DIAGNOSES, MANIFEST = RESULTS
MAX_LINE = 64 << 20
MAX_MANIFEST = 16 << 20

_PART = re.compile(r"part-(\d{5}|[1-9]\d{5,8})\.(?:parquet|jsonl\.zst)\Z")
_FRAME_HEAD = 18  # bytes at most, with the size of what is inside
_BODY = b', "diagnosis": '

_TEXTS = pa.list_(pa.string())
SCHEMA = pa.schema(
    {
        "job": pa.string(),  # its id; `source` is the key
        "source": pa.string(),  # path or URL, see `stored`
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


class DamagedError(Exception):
    """A file of the results that can be reached and does not hold what it should."""


def name(number: int, suffix: str) -> str:
    """The name of a part's file."""
    return f"part-{number:05d}.{suffix}"


def numbers(folder: Path) -> list[int]:
    """The parts in one of the two folders, in order."""
    if not folder.is_dir():
        return []
    found = (_PART.match(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def read_table(folder: Path, number: int, columns: Sequence[str] | None = None) -> pa.Table:
    """A part's table, or these columns of it, with all that is read looked at.

    Raises DamagedError, or OSError where it is not read.
    """
    with _opened(folder / TABLE / name(number, "parquet")) as file:
        try:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            fits = parquet.schema_arrow.equals(SCHEMA)
            table = parquet.read(columns, use_threads=False)
            table.validate(full=True)
        except Exception as error:  # Arrow's have no base, and some of them are OSError
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise DamagedError(" ".join(str(error).split())[:200]) from error
    if not fits:
        raise DamagedError("its columns are not the ones this version writes")
    return table


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """The table of rows, whose names are those of the columns."""
    with _without_pandas():
        return pa.Table.from_pylist(rows, schema=SCHEMA)


class _NoPandas:
    """Finds that there is no pandas."""

    @staticmethod
    def find_spec(module: str, *_: object) -> None:
        """See importlib.abc.MetaPathFinder."""
        if module == "pandas":
            raise ImportError


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Keep Arrow from loading pandas, only to ask it whether a list is one of its own.

    That would be a third of the memory of a scan, and a quarter of a second.
    """
    sys.meta_path.insert(0, _NoPandas)
    try:
        yield
    finally:
        sys.meta_path.remove(_NoPandas)


def write_table(table: pa.Table) -> bytes:
    """The bytes of a part's table; `read_table` sees when any of them changes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def line(job: str, source: str, document: str) -> bytes:
    """A line of a part's diagnoses; `document` is JSON."""
    head = json.dumps({"job": job, "source": source}).encode()
    # Half characters are only inside of its strings, where a backslash is written as two.
    whole = re.sub("[\ud800-\udfff]", lambda m: f"\\\\u{ord(m[0]):04x}", document)
    return head[:-1] + _BODY + whole.encode() + b"}"


def lines(folder: Path, number: int) -> Iterator[tuple[str, bytes]]:
    """(source, line) of a part's diagnoses.

    Raises DamagedError behind what can be read, or OSError.
    """
    try:
        with _opened(folder / DIAGNOSES / name(number, "jsonl.zst")) as packed:
            yield from _lines(packed)
    except FileNotFoundError as error:
        raise DamagedError("it is missing") from error


def write_lines(whole: list[bytes]) -> bytes:
    """The bytes of a part's diagnoses."""
    packer = zstandard.ZstdCompressor(write_checksum=True)
    return packer.compress(b"".join(line + b"\n" for line in whole))


def _lines(packed: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    try:
        size = zstandard.frame_content_size(packed.read(_FRAME_HEAD))
        packed.seek(0)
        reader = zstandard.ZstdDecompressor().stream_reader(packed)
        with io.BufferedReader(reader) as plain:
            while line := plain.readline(MAX_LINE):
                size -= len(line)
                head, body, _ = line.partition(_BODY)
                if not body or not line.endswith(b"}\n"):
                    raise DamagedError("a line is cut")
                source = json.loads(head + b"}")["source"]
                if not isinstance(source, str):
                    raise DamagedError("a line has no source")
                yield source, line[:-1]
    except (ValueError, KeyError, TypeError, RecursionError, zstandard.ZstdError) as error:
        raise DamagedError(" ".join(str(error).split())[:200]) from error
    if size > 0:  # the end of a cut frame is no error to the reader
        raise DamagedError("it is cut")


def complete(folder: Path) -> bool:
    """Whether the manifest says that a scan came to its end."""
    try:
        with _opened(folder / MANIFEST) as file:
            manifest = json.loads(file.read(MAX_MANIFEST))
    except (OSError, DamagedError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("complete") is True


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """A regular file; opening a pipe that somebody put there must not wait."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise DamagedError("not a regular file")
        with os.fdopen(file, "rb", closefd=False) as opened:
            yield opened
    finally:
        os.close(file)


def document_of(line: bytes) -> Any:
    """What a line holds: job, source and diagnosis. Raises DamagedError."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedError(" ".join(str(error).split())[:200]) from error
