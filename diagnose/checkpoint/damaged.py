"""How the readers of file formats read a file, and say what is wrong with it."""

from __future__ import annotations

from dataclasses import field
from threading import Lock

from diagnose.checkpoint.model import Flaw, State
from diagnose.ingest.raw import Reader
from diagnose.lazy import dataclass

LARGE = 1 << 20  # bytes of one read; what is made of it may take a hundred times as much memory
_ALONE = Lock()


class DamagedError(ValueError):
    """A file is not what it should be; `flaw` says how, without naming the file."""

    def __init__(self, state: State, why: str) -> None:
        super().__init__(why)
        self.flaw = Flaw(state, why)


def exactly(reader: Reader, offset: int, length: int) -> bytes:
    """`length` bytes from `offset` on. Raises OSError where there are fewer: the file shrank."""
    data = reader.read_at(offset, length)
    if len(data) != length:
        raise OSError("it shrank while being read")
    return data


def is_blank(data: bytes) -> bool:
    """Whether all bytes are zero; any() takes a hundred times as long."""
    return data == bytes(len(data))


def span(seconds: float) -> str:
    """A time that has passed, in words."""
    for unit, length in (("days", 86400.0), ("h", 3600.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


@dataclass(slots=True)
class Ends:
    """A reader that asks for the ends of a file once, each `piece` bytes long: requests cost.

    After a LARGE read it is the only one of this process that reads so much, until it is closed.
    """

    reader: Reader
    piece: int
    kept: dict[int, bytes] = field(default_factory=dict)
    alone: bool = False

    @property
    def size(self) -> int:
        """See Reader."""
        return self.reader.size

    def read_at(self, offset: int, length: int) -> bytes:
        """See Reader."""
        if length > LARGE and not self.alone:
            self.alone = _ALONE.acquire()
        last = max(0, self.size - self.piece)
        end = min(offset + length, self.size)
        for begin in (0, last):
            if begin <= offset and end <= begin + self.piece:
                if begin not in self.kept:
                    self.kept[begin] = exactly(self.reader, begin, min(self.piece, self.size))
                return self.kept[begin][offset - begin : end - begin]
        return self.reader.read_at(offset, length)

    def close(self) -> None:
        """Let others read."""
        if self.alone:
            self.alone = False
            _ALONE.release()
