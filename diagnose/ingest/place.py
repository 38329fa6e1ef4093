"""Where jobs lie: folders of this machine, or whatever fsspec reads (s3, gs, hdfs, http …)."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, TypeVar

from diagnose.errors import InputError
from diagnose.ingest.names import MAX_ENTRIES, is_results, is_url
from diagnose.ingest.raw import FileStore, Reader, Store, reason, spooled

_TAG_PIECE = 4096


@dataclass(frozen=True, slots=True)
class File:
    """A file where it lies: its path or URL, bytes, seconds since 1970 (0: unknown).

    `tag` changes when the content does, as far as the place tells without reading it (an ETag).
    `on_disk` are the bytes its blocks take, None where the place does not tell: fewer than `size`
    for a file with holes, and where a file system compresses or has not written yet.
    """

    path: str
    size: int
    mtime: float
    tag: str = ""
    on_disk: int | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


class LocalPlace:
    """Folders of this machine. All methods raise OSError; paths are whole ones, divided by `/`."""

    def look(self, path: str) -> File | None:
        """The file at `path`, or None for a folder."""
        status = Path(path).stat()
        if S_ISDIR(status.st_mode):
            return None
        if not S_ISREG(status.st_mode):
            raise OSError("neither a file nor a folder")
        return _local(path, status)

    def listing(self, folder: str, *, every: bool = False) -> tuple[list[File], list[str]]:
        """Files and folders right inside a folder, sorted; no hidden ones and no links.

        `every`: hidden ones too, and the files that links lead to; a link to nothing has size -1.
        """
        files, folders = [], []
        with os.scandir(folder) as entries:
            for entry in islice(entries, MAX_ENTRIES):
                if not every and (entry.name.startswith(".") or entry.is_symlink()):
                    continue
                if entry.is_symlink():
                    files += _linked(entry.path)
                    continue
                if entry.is_dir():
                    folders.append(entry.path)
                elif entry.is_file():
                    with suppress(FileNotFoundError):  # gone: the others are there
                        files.append(_local(entry.path, entry.stat()))
        return sorted(files, key=lambda file: file.path), sorted(folders)

    def matches(self, pattern: str) -> list[str]:
        """Paths that match a glob; `**` crosses folders."""
        found = islice(glob.iglob(pattern, recursive=True), MAX_ENTRIES)  # noqa: PTH207
        return sorted(path.rstrip("/") for path in found)

    def tag(self, file: File) -> str:
        """What changes with a file's content, read from its ends where nothing else tells.

        The CRC of a gzip and the directory of a zip lie at the end.
        """
        with FileStore(Path(file.path)).open() as reader:
            ends = reader.read_at(0, _TAG_PIECE)
            ends += reader.read_at(max(0, reader.size - _TAG_PIECE), _TAG_PIECE)
        return hashlib.blake2b(ends, digest_size=8).hexdigest()

    def store(self, file: File) -> Store:
        """Its bytes, to be read any number of times as a whole."""
        return FileStore(Path(file.path))

    ranges = store  # of which only single ranges are read: nothing else is fetched


def _local(path: str, status: os.stat_result) -> File:
    blocks = getattr(status, "st_blocks", None)  # of 512 bytes, whatever the file system's are
    on_disk = None if blocks is None else blocks * 512
    return File(path, status.st_size, status.st_mtime, on_disk=on_disk)


def _linked(path: str) -> list[File]:
    """The file that a link leads to; nothing for a link to a folder, which may lead in circles."""
    try:
        status = Path(path).stat()
    except OSError:
        return [File(path, -1, 0.0)]
    return [_local(path, status)] if S_ISREG(status.st_mode) else []


def place_of(path: str) -> tuple[Place, str]:
    """The place of a path or URL, and the path as that place writes it.

    Raises InputError for a URL whose reader is not installed.
    """
    if is_url(path):
        protocol = re.split(r"::|://", path, maxsplit=1)[0].lower()
        if protocol != "file":
            return remote_place(protocol, path), path.rstrip("/")
        path = path.partition("://")[2]
    return LocalPlace(), os.path.abspath(path)  # noqa: PTH100


def holds_results(files: Iterable[File], folders: Iterable[str]) -> bool:
    """Whether a folder, by its listing, is one of results of `diagnose scan`."""
    inside = (*(file.path for file in files), *folders)
    return is_results(path.rstrip("/").rpartition("/")[2] for path in inside)


def walk(
    place: Place, folder: str, depth: int, missed: list[tuple[str, str]] | None = None
) -> Iterator[File]:
    """All files below a folder, `depth` folders deep at most, but none of results of a scan.

    Passes by what cannot be listed; `missed` takes these folders, and why.
    """
    try:
        files, folders = place.listing(folder)
    except OSError as error:
        if missed is not None:
            missed.append((folder, reason(error)))
        return
    if holds_results(files, folders):
        return
    yield from files
    for inside in folders:
        if depth > 0:
            yield from walk(place, inside, depth - 1, missed)
        elif missed is not None:
            missed.append((inside, "too many folders deep"))


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
        """See LocalPlace."""
        info = _asked(lambda: self.fs.info(self._inner(path)))
        return self._file(info) if info["type"] == "file" else None

    def listing(self, folder: str, *, every: bool = False) -> tuple[list[File], list[str]]:
        """See LocalPlace."""
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
        """See LocalPlace."""
        found = _asked(lambda: self.fs.glob(self._inner(pattern)))
        return sorted(self._outer(str(path).rstrip("/")) for path in found[:MAX_ENTRIES])

    def tag(self, file: File) -> str:
        """See LocalPlace: nothing is read, the place has told what it knows."""
        return file.tag or (f"{file.size}-{file.mtime}" if file.mtime else "")

    def store(self, file: File) -> Store:
        """See LocalPlace: fetched once, into memory or a nameless temporary file."""
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
            return spooled(spool, size, IN_MEMORY)

        return _asked(fetch)

    def ranges(self, file: File) -> Store:
        """See LocalPlace."""
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


Place = LocalPlace | RemotePlace


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
