"""Whatever fsspec reads: s3, gs, hdfs, http and others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, TypeVar

from diagnose.errors import InputError
from diagnose.ingest.place import MAX_ENTRIES, File, is_url
from diagnose.ingest.raw import BytesStore, Reader, SpoolStore, Store
from diagnose.lazy import dataclass

T = TypeVar("T")

IN_MEMORY = 16 << 20  # bytes of a remote file that are kept in memory
FETCH_LIMIT = 16 << 30  # bytes of a remote file that are fetched at all
_EXTRAS = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hdfs": "pyarrow",
    "http": "aiohttp", "https": "aiohttp", "abfs": "adlfs", "az": "adlfs",
}  # fmt: skip


@lru_cache(maxsize=8)
def _file_system(protocol: str) -> Any:
    import fsspec  # noqa: PLC0415  for URLs only

    return fsspec.filesystem(protocol)


def remote_place(protocol: str, path: str) -> RemotePlace:
    """The place of a URL. Raises InputError if its reader is not installed."""
    try:
        if "::" in path:
            raise InputError(f"{path}: chained URLs are not read")
        return RemotePlace(_file_system(protocol), protocol)
    except ImportError as error:
        needs = _EXTRAS.get(protocol, "a reader for it")
        raise InputError(f"{path}: needs fsspec and {needs} (pip install {needs})") from error
    except ValueError as error:
        raise InputError(f"{path}: no reader for {protocol}:// ({error})") from error


@dataclass(frozen=True, slots=True)
class _Ranges:
    """A remote file that is asked for ranges of its bytes."""

    fs: Any
    path: str
    size: int

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """Give a reader; see Store."""
        yield self

    def read_at(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        if offset >= end:
            return b""
        return bytes(_asked(lambda: self.fs.cat_file(self.path, start=offset, end=end)))


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """A file system of fsspec; paths are URLs."""

    fs: Any
    scheme: str

    def look(self, path: str) -> File | None:
        """See Place."""
        info = _asked(lambda: self.fs.info(self._inner(path)))
        return self._file(info) if info["type"] == "file" else None

    def listing(self, folder: str, *, every: bool = False) -> tuple[list[File], list[str]]:
        """See Place."""
        inner = self._inner(folder)
        infos = _asked(lambda: self.fs.ls(inner, detail=True))[:MAX_ENTRIES]
        files, folders = [], []
        for info in infos:
            name = str(info["name"]).rstrip("/")
            if name == inner.rstrip("/"):
                continue
            if not every and name.rsplit("/", 1)[-1].startswith("."):
                continue
            if info["type"] == "directory":
                folders.append(self._outer(name))
            elif info["type"] == "file":
                files.append(self._file(info))
        return sorted(files, key=lambda file: file.path), sorted(folders)

    def matches(self, pattern: str) -> list[str]:
        """See Place."""
        found = _asked(lambda: self.fs.glob(self._inner(pattern)))
        return sorted(self._outer(str(path).rstrip("/")) for path in found[:MAX_ENTRIES])

    def tag(self, file: File) -> str:
        """See Place: nothing is read, the place has told what it knows."""
        return file.tag or (f"{file.size}-{file.mtime}" if file.mtime else "")

    def store(self, file: File) -> Store:
        """See Place: fetched once, into memory or a nameless temporary file."""
        if file.size > FETCH_LIMIT:
            raise OSError(f"more than {FETCH_LIMIT} bytes: not fetched")

        def fetch() -> Store:
            with self.fs.open(self._inner(file.path), "rb", cache_type="readahead") as remote:
                spool = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
                size = 0
                while block := remote.read(1 << 20):
                    size += spool.write(block)
                    if size > FETCH_LIMIT:
                        raise OSError(f"more than {FETCH_LIMIT} bytes: not fetched")
            if size > IN_MEMORY:
                spool.flush()
                return SpoolStore(spool, size)
            spool.seek(0)
            return BytesStore(spool.read())

        return _asked(fetch)

    def ranges(self, file: File) -> Store:
        """See Place."""
        return _Ranges(self.fs, self._inner(file.path), file.size)

    def _file(self, info: dict[str, Any]) -> File:
        tag = next(
            (info[key] for key in ("ETag", "etag", "md5Hash", "checksum") if info.get(key)), ""
        )
        return File(
            self._outer(str(info["name"])),
            int(info.get("size") or 0),
            _when(info),
            str(tag).strip('"'),
        )

    def _inner(self, path: str) -> str:
        return str(self.fs._strip_protocol(path))

    def _outer(self, name: str) -> str:
        return name if is_url(name) else f"{self.scheme}://{name.lstrip('/')}"


def _when(info: dict[str, Any]) -> float:
    """When a remote file was last changed, by whatever name its file system gives the time."""
    for key in ("LastModified", "mtime", "last_modified", "updated", "modified", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            for read in (datetime.fromisoformat, parsedate_to_datetime):
                try:
                    return read(value).timestamp()
                except ValueError:
                    continue
    return 0.0


def _asked(question: Callable[[], T]) -> T:
    """Ask a remote place; its many kinds of errors become OSError."""
    try:
        return question()
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
