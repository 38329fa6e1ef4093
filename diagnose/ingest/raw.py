"""Where bytes come from: anything that can be opened again and read at an offset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol


class Reader(Protocol):
    """An opened store; short reads happen only at its end."""

    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on; empty at the end. Raises OSError."""
        ...


class Store(Protocol):
    """Something that can be opened any number of times, also at the same time."""

    def open(self) -> _Opened:
        """A context manager that gives a Reader. Raises OSError."""
        ...


class _Opened(Protocol):
    def __enter__(self) -> Reader: ...
    def __exit__(self, *error: object) -> bool | None: ...


@dataclass(slots=True)
class _FdReader:
    fd: int
    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        # A log that is still written to grows: its end is where it was when it was opened, so
        # that reading ends and two passes over one open file agree.
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


@dataclass(slots=True)
class _BytesReader:
    data: bytes
    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


@dataclass(frozen=True, slots=True)
class FileStore:
    """A regular file, opened without blocking and never through a device or pipe."""

    path: Path

    @contextmanager
    def open(self) -> Iterator[Reader]:
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
        yield _BytesReader(self.data, len(self.data))


@dataclass(frozen=True, slots=True)
class SpoolStore:
    """A temporary file that lives as long as this object. Cannot be pickled."""

    file: IO[bytes] = field(repr=False)
    size: int

    @contextmanager
    def open(self) -> Iterator[Reader]:
        yield _FdReader(self.file.fileno(), self.size)
