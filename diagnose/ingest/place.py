"""Where jobs lie: folders of this machine, or whatever fsspec reads (s3, gs, hdfs, http …)."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Protocol

from diagnose.ingest.file_names import is_results
from diagnose.ingest.raw import FileStore, Store, reason
from diagnose.lazy import dataclass

MAX_ENTRIES = 200_000  # of one folder
_TAG_PIECE = 4096
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(?:::[A-Za-z][A-Za-z0-9+.\-]*)*://")


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


class Place(Protocol):
    """A tree of files. All methods raise OSError; paths are whole ones, divided by `/`."""

    def look(self, path: str) -> File | None:
        """The file at `path`, or None for a folder."""

    def listing(self, folder: str, *, every: bool = False) -> tuple[list[File], list[str]]:
        """Files and folders right inside a folder, sorted; no hidden ones and no links.

        `every`: hidden ones too, and the files that links lead to; a link to nothing has size -1.
        """

    def matches(self, pattern: str) -> list[str]:
        """Paths that match a glob; `**` crosses folders."""

    def tag(self, file: File) -> str:
        """What changes with a file's content, read from its ends where nothing else tells."""

    def store(self, file: File) -> Store:
        """Its bytes, to be read any number of times as a whole."""

    def ranges(self, file: File) -> Store:
        """Its bytes, of which only single ranges are read: nothing else is fetched."""


class LocalPlace:
    """Folders of this machine."""

    def look(self, path: str) -> File | None:
        """See Place."""
        status = Path(path).stat()
        if S_ISDIR(status.st_mode):
            return None
        if not S_ISREG(status.st_mode):
            raise OSError("neither a file nor a folder")
        return _local(path, status)

    def listing(self, folder: str, *, every: bool = False) -> tuple[list[File], list[str]]:
        """See Place."""
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
                    files.append(_local(entry.path, entry.stat()))
        return sorted(files, key=lambda file: file.path), sorted(folders)

    def matches(self, pattern: str) -> list[str]:
        """See Place."""
        found = islice(glob.iglob(pattern, recursive=True), MAX_ENTRIES)  # noqa: PTH207
        return sorted(path.rstrip("/") for path in found)

    def tag(self, file: File) -> str:
        """See Place; the CRC of a gzip and the directory of a zip lie at the end."""
        with FileStore(Path(file.path)).open() as reader:
            ends = reader.read_at(0, _TAG_PIECE)
            ends += reader.read_at(max(0, reader.size - _TAG_PIECE), _TAG_PIECE)
        return hashlib.blake2b(ends, digest_size=8).hexdigest()

    def store(self, file: File) -> Store:
        """See Place."""
        return FileStore(Path(file.path))

    ranges = store


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


def is_url(path: str) -> bool:
    """Whether a path is for fsspec."""
    return _URL.match(path) is not None


def place_of(path: str) -> tuple[Place, str]:
    """The place of a path or URL, and the path as that place writes it.

    Raises InputError for a URL whose reader is not installed.
    """
    if is_url(path):
        protocol = re.split(r"::|://", path, maxsplit=1)[0].lower()
        if protocol != "file":
            from diagnose.ingest.remote_place import remote_place  # noqa: PLC0415  for URLs only

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
