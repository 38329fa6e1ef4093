"""Folders of this machine."""

from __future__ import annotations

import glob
import hashlib
import os
from itertools import islice
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from diagnose.ingest.place import MAX_ENTRIES, File
from diagnose.ingest.raw import FileStore, Store

_TAG_PIECE = 4096


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
