"""One file that grows: what was added to it since the last look, whatever became of its name.

Logs are rotated in two ways. Renamed, the old file is read to its end before the new one of that
name is opened. Copied and truncated, it begins again, which shows in its size or, where it has
grown past the old size since, in the last bytes that were read.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass

from diagnose.ingest.chunks import without_escapes

LIMIT = 64 << 10  # bytes kept of a line; longer ones are cut, however they arrive
_BREAK = re.compile(rb"[\r\n]")


@dataclass(slots=True)
class Lines:
    """Joins pieces to lines. A line ends at a newline or, as a bar does, at a carriage return.

    The lines are the same for any cuts between pieces. What is not ended yet is kept, also while
    its file is rotated: the rest of the line then comes from the next one. At most LIMIT bytes of
    it stay in memory.
    """

    pending: bytes = b""
    skipping: bool = False  # until the end of the line: it is too long, or its start is not known

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` ends, in one block without escape codes; empty if it ends none."""
        if self.skipping:
            found = _BREAK.search(data)
            if found is None:
                return b""
            data, self.skipping = data[found.start() :], False
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut:
            self._keep(self.pending + data)
            return b""
        block = self.pending + data[:cut]
        self._keep(data[cut:])
        if len(block) > LIMIT:
            block = b"".join(map(_cut, block.splitlines(keepends=True)))
        return without_escapes(block) if b"\x1b" in block else block

    def skip(self) -> None:
        """The next bytes are not those that follow: begin with the line behind them."""
        self.pending, self.skipping = b"", True

    def _keep(self, rest: bytes) -> None:
        self.skipping = len(rest) > LIMIT
        self.pending = rest[:LIMIT]


def _cut(line: bytes) -> bytes:
    """A line with its end, cut to LIMIT if it is longer."""
    if len(line) <= LIMIT:
        return line
    text = line.rstrip(b"\r\n")
    return text[:LIMIT] + line[len(text) :]


READ = 1 << 20  # bytes read of a file at once
MAX_UNREAD = 4 << 20  # bytes that a file may be ahead; of more only the last READ are read
_MARK = 32  # of the last bytes read, to know the place again
_HEAD = 256  # of the first bytes, to know a copy of the file


@dataclass(slots=True)
class Tail:
    """A file by its path, the place up to which it was read, and when it was written last.

    `missed` counts bytes that were skipped because the file grew too fast to be read whole.
    """

    path: str
    descriptor: int = -1
    offset: int = 0
    mark: bytes = b""
    head: bytes = b""
    former: tuple[tuple[int, int] | None, bytes] = (None, b"")  # identity and head before rotation
    missed: int = 0
    written: int = -1  # when the file was, at the last look, in nanoseconds since 1970

    def close(self) -> None:
        """Let go of the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def start(self, keep: int) -> None:
        """Begin `keep` bytes before the end of the file. Raises OSError."""
        self._open()
        size = os.fstat(self.descriptor).st_size
        self.head = os.pread(self.descriptor, _HEAD, 0)
        self.offset = max(0, size - keep)
        self.mark = b""

    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the open file."""
        if self.descriptor < 0:
            return None
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino

    def grown(self) -> bool:
        """Whether there may be anything to read, in this file or in another of its name."""
        try:
            status = os.stat(self.path)  # noqa: PTH116  a thousand of them a second
        except OSError:
            return False
        if status.st_size != self.offset or status.st_mtime_ns != self.written:
            return True
        return (status.st_dev, status.st_ino) != self.identity()

    def read(self) -> tuple[bytes, bool]:
        """What came since, at most READ bytes, and whether bytes before it were skipped.

        A file that is gone, or may not be read, has nothing to say. Raises OSError for a disk that
        fails.
        """
        if self.descriptor < 0:
            try:
                self._open()
            except OSError:
                return b"", False
            self.offset, self.mark = 0, b""
        data, skipped = self._more()
        if not data and self._replaced():
            self.former = self.identity(), self.head
            self.close()
            with suppress(OSError):
                self._open()
                self.offset, self.mark, self.head = 0, b"", b""
                data, skipped = self._more()
        return data, skipped

    def _open(self) -> None:
        self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def _replaced(self) -> bool:
        """Whether the name belongs to another file now."""
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return False
        return (status.st_dev, status.st_ino) != self.identity()

    def _more(self) -> tuple[bytes, bool]:
        status = os.fstat(self.descriptor)
        size, skipped = status.st_size, False
        touched, self.written = status.st_mtime_ns != self.written, status.st_mtime_ns
        if size < self.offset or (touched and not self._same()):
            self.offset, self.mark, self.head = 0, b"", b""
        if size - self.offset > MAX_UNREAD:
            self.missed += size - READ - self.offset
            self.offset, skipped = size - READ, True
        if size == self.offset:
            return b"", skipped
        data = os.pread(self.descriptor, READ, self.offset)
        if not self.head:
            self.head = data[:_HEAD] if not self.offset else os.pread(self.descriptor, _HEAD, 0)
        self.offset += len(data)
        self.mark = (self.mark + data)[-_MARK:]
        return data, skipped

    def _same(self) -> bool:
        """Whether what stands before the place is what was read there.

        A hole there is no other file: a writer that does not append leaves it when its file is
        truncated, and goes on behind it.
        """
        if not self.mark:
            return True
        found = os.pread(self.descriptor, len(self.mark), self.offset - len(self.mark))
        return found == self.mark or not found.strip(b"\0")
