"""Bytes of an archive read forward: of a file that lies open, or of a stream of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from diagnose.ingest.raw import Reader


class Feed(Protocol):
    """Bytes of a tar archive, read forward."""

    @property
    def position(self) -> int:
        """Bytes taken or skipped so far."""

    def take(self, length: int) -> bytes:
        """The next `length` bytes, fewer only at the end. Raises OSError."""

    def skip_to(self, position: int) -> None:
        """Go forward to `position`, or to the end. Raises OSError."""


@dataclass(slots=True)
class ReaderFeed:
    """A tar archive that lies open as it is."""

    reader: Reader
    position: int = 0

    def take(self, length: int) -> bytes:
        """See Feed."""
        data = self.reader.read_at(self.position, length)
        self.position += len(data)
        return data

    def skip_to(self, position: int) -> None:
        """See Feed."""
        self.position = min(position, self.reader.size)


@dataclass(slots=True)
class StreamFeed:
    """A tar archive that comes in blocks of any size."""

    blocks: Iterator[bytes]
    position: int = 0
    _block: bytes = field(default=b"", repr=False)
    _at: int = 0

    def take(self, length: int) -> bytes:
        """See Feed."""
        end = self._at + length
        if end <= len(self._block):
            data = self._block[self._at : end]
            self._at = end
            self.position += length
            return data
        return b"".join(self.pieces(length))

    def peek(self, length: int) -> bytes:
        """The next bytes without taking them."""
        data = self.take(length)
        self.position -= len(data)
        self._at -= len(data)
        if self._at < 0:  # some of it was of the block before
            self._block, self._at = data + self._block[self._at + len(data) :], 0
        return data

    def pieces(self, length: int) -> Iterator[bytes]:
        """The next `length` bytes in pieces, fewer only at the end."""
        while length > 0:
            if self._at >= len(self._block):
                block = next(self.blocks, None)
                if block is None:
                    return
                self._block, self._at = block, 0
            piece = self._block[self._at : self._at + length]
            self._at += len(piece)
            self.position += len(piece)
            length -= len(piece)
            yield piece

    def skip_to(self, position: int) -> None:
        """See Feed."""
        while (length := position - self.position) > 0:
            inside = len(self._block) - self._at
            if length <= inside:
                self._at += length
                self.position = position
                return
            self.position += inside
            block = next(self.blocks, None)
            self._block, self._at = block or b"", 0
            if block is None:
                return
