"""Where bytes come from: anything that can be opened again and read at an offset."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from pathlib import Path
from typing import IO, Protocol

from diagnose.lazy import dataclass


class Reader(Protocol):
    """An opened store of `size` bytes; reads are short only at its end."""

    @property
    def size(self) -> int:
        """Its size in bytes when it was opened."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on; empty at the end. Raises OSError."""


def data_from(reader: Reader, offset: int) -> int:
    """Where from `offset` on a reader has bytes, its size if nowhere; elsewhere it reads as NULs.

    Only a reader that knows of holes in its store skips any.
    """
    skip = getattr(reader, "data_from", None)
    found: int = offset if skip is None else skip(offset)
    return found


class Store(Protocol):
    """Something that can be opened any number of times, also at the same time."""

    def open(self) -> AbstractContextManager[Reader]:
        """Open it for reading. Raises OSError."""


@dataclass(frozen=True, slots=True)
class _FdReader:
    fd: int
    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        # A log that is still written to grows: its end is where it was when it was opened, so
        # that reading ends.
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        data = os.pread(self.fd, length, offset)
        if not data or len(data) == length:
            return data
        parts = [data]
        have = len(data)
        while have < length and (data := os.pread(self.fd, length - have, offset + have)):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def data_from(self, offset: int) -> int:
        try:
            return min(os.lseek(self.fd, offset, os.SEEK_DATA), self.size)
        except OSError as error:
            # Behind the last data; anything else: a file system that does not tell.
            return self.size if error.errno == errno.ENXIO else offset


@dataclass(frozen=True, slots=True)
class _BytesReader:
    data: bytes
    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


@dataclass(frozen=True, slots=True)
class FileStore:
    """A regular file."""

    path: Path

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """Open the file; see Store."""
        # O_NONBLOCK: the path may have become a FIFO since it was found; opening must not hang.
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield _FdReader(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class BytesStore:
    """Bytes in memory."""

    data: bytes = field(repr=False)

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """Give a reader; see Store."""
        yield _BytesReader(self.data, len(self.data))


@dataclass(frozen=True, slots=True)
class SpoolStore:
    """A temporary file that lives as long as this object, which cannot be pickled."""

    file: IO[bytes] = field(repr=False)
    size: int

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """Give a reader; see Store."""
        yield _FdReader(self.file.fileno(), self.size)


def reason(error: Exception) -> str:
    """What an error of reading says, for a note."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return text[:1].lower() + text[1:] if first[1:].islower() else text
