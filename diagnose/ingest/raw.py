"""Where bytes come from: anything that can be opened again and read at an offset.

Of an archive that is a stretch of the whole, a deflate stream, or a bounded copy.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from diagnose.ingest.source import Budget


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


class _FdReader(NamedTuple):
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


class _BytesReader(NamedTuple):
    data: bytes
    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


class FileStore(NamedTuple):
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


def spooled(spool: IO[bytes], size: int, most: int) -> Store:
    """What was written to a spooled file: the file itself if it is long."""
    if size > most:
        spool.flush()
        return SpoolStore(spool, size)
    with spool:
        spool.seek(0)
        return BytesStore(spool.read())


def reason(error: Exception) -> str:
    """What an error of reading says, for a note."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return text[:1].lower() + text[1:] if first[1:].islower() else text


IN_MEMORY = 16 << 20  # bytes of a member that may be kept in memory

# A member without name, time or extra fields (RFC 1952).
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


class SliceReader(NamedTuple):
    """`size` bytes of another reader from `start` on."""

    reader: Reader
    start: int
    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        """See Reader."""
        length = min(length, self.size - offset)
        return self.reader.read_at(self.start + offset, length) if length > 0 else b""

    def data_from(self, offset: int) -> int:
        """See `data_from`."""
        return min(data_from(self.reader, self.start + offset) - self.start, self.size)


class SliceStore(NamedTuple):
    """`size` bytes of another store from `start` on."""

    store: Store
    start: int
    size: int

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """Open the whole store and read in it; see Store."""
        with self.store.open() as reader:
            yield SliceReader(reader, self.start, self.size)


class _JoinedReader(NamedTuple):
    """Readers, one behind the other; `ends` are the sums of their sizes."""

    readers: Sequence[Reader]
    ends: Sequence[int]
    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        parts = []
        at = bisect_right(self.ends, offset)
        while length > 0 and at < len(self.ends):
            begins = self.ends[at - 1] if at else 0
            wanted = min(length, self.ends[at] - offset)
            data = self.readers[at].read_at(offset - begins, wanted)
            parts.append(data)
            if len(data) < wanted:
                break
            offset, length, at = offset + wanted, length - wanted, at + 1
        return b"".join(parts)


def _joined(readers: Sequence[Reader]) -> Reader:
    ends = [*accumulate(reader.size for reader in readers)]
    return _JoinedReader(readers, ends, ends[-1] if ends else 0)


class JoinedStore(NamedTuple):
    """Stretches of another store as one: each as (start, size)."""

    store: Store
    spans: Sequence[tuple[int, int]]

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """Open the whole store and read in it; see Store."""
        with self.store.open() as reader:
            yield _joined([SliceReader(reader, start, size) for start, size in self.spans])


class GzipStore(NamedTuple):
    """A raw deflate stream, as in zip archives, read as the gzip file that it is the inside of.

    So it is decompressed piece by piece and checked like any compressed log. `trailer` is the CRC
    and size that the zip's directory gives, or empty if nothing is known of them.
    """

    deflated: SliceStore
    trailer: bytes

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """Give a reader of the gzip file; see Store."""
        around = (BytesStore(_GZIP_HEADER), BytesStore(self.trailer))
        with around[0].open() as head, self.deflated.open() as body, around[1].open() as tail:
            yield _joined([head, body, tail])


@dataclass(slots=True)
class Keeper:
    """Keeps members that cannot be read again where they are, within bounds of an archive.

    Small members stay in memory as long as the budget has some, then and for large ones comes one
    temporary file, which has no name and goes with the last source in it.
    """

    budget: Budget
    file: IO[bytes] | None = field(default=None, repr=False)
    written: int = 0

    def keep(self, blocks: Iterable[bytes], size: int) -> tuple[Store | None, int, str]:
        """A store of `blocks`, of about `size` bytes by the archive; its true size; what is wrong.

        There is no store where the bounds do not allow it. Raises OSError from the blocks only.
        """
        parts: list[bytes] = []
        have = 0
        bound = min(self.budget.memory, IN_MEMORY)
        iterator = iter(blocks)
        if size <= bound:
            for block in iterator:
                parts.append(block)
                have += len(block)
                if have > bound:
                    break
            else:
                self.budget.memory -= have
                return BytesStore(parts[0] if len(parts) == 1 else b"".join(parts)), have, ""
        return self._spooled(chain(parts, iterator))

    def _spooled(self, blocks: Iterable[bytes]) -> tuple[Store | None, int, str]:
        import tempfile  # noqa: PLC0415  not for what is read where it is

        start = self.written
        for block in blocks:
            try:
                if self.file is None:
                    self.file = tempfile.TemporaryFile()  # noqa: SIM115
                if self.written + len(block) > self.budget.spool:
                    self._back(start)
                    return None, 0, "the archive's members together are too large: not read"
                self.file.seek(self.written)
                self.file.write(block)
                self.file.flush()
            except OSError as error:
                self._back(start)
                self.budget.spool = start
                return None, 0, f"not read: no temporary file for it ({reason(error)})"
            self.written += len(block)
        size = self.written - start
        if self.file is None:
            return BytesStore(b""), 0, ""
        return SliceStore(SpoolStore(self.file, self.written), start, size), size, ""

    def _back(self, start: int) -> None:
        self.written = start
        if self.file is not None:
            self.file.truncate(start)
