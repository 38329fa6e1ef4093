"""Bytes in short lines, for launchers that mix what their processes write.

    ~D1 ID NUMBER CRC32 BASE64~

ID stands for one stream of bytes, NUMBER counts its pieces, all of one size but the last, and a
last line has their count instead of a piece. Launchers pass on what they read from a process at
once, some in whole lines, some not: so each line is written alone, and the next one when it has
been taken. That cannot be seen on a terminal, which Open MPI gives its processes, and through
which one line in a hundred comes in two pieces: there lines come slowly, and all of them three
times. What a launcher prints before a line, such as a host's name, does not matter.

Only the standard library: it runs on the nodes, too.
"""

from __future__ import annotations

import array
import fcntl
import os
import re
import stat
import termios
import time
import tty
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO
from zlib import crc32

PIECE = 696  # bytes in a line, which stays below the 1024 that Slurm passes on as one
MAX_PIECES = 4_000_000  # of one stream
MAX_STREAMS = 20_000
# A frame that breaks off may be followed by another, whose first sign would look like its last.
_FRAME = re.compile(
    rb"~D1 ([0-9a-f]{8}) (\d{1,8}) ([0-9a-f]{8}) (#|[A-Za-z0-9+/]{2,928}={0,2})(?=~)"
)
_LINE = 4096
_COUNT = b"#"
_PATIENCE_S = 2.0  # for a launcher to take a line; then the next one is written all the same
_PACE_S = 0.0005  # between two lines on a terminal
_ON_TERMINAL = 3  # times that each line is written there


def send(fd: int, data: IO[bytes]) -> None:
    """Write all of a file in lines. Raises OSError."""
    name = os.urandom(4).hex().encode()
    is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
    terminal = os.isatty(fd)
    if terminal:
        with suppress(termios.error):
            tty.setraw(fd)  # a line goes as it is, in one piece
    for _ in range(_ON_TERMINAL if terminal else 1):
        data.seek(0)
        for line in _lines(name, data):
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if is_pipe:
                _wait_until_taken(fd)
            elif terminal:
                time.sleep(_PACE_S)


def _lines(name: bytes, data: IO[bytes]) -> Iterator[bytes]:
    number = 0
    while piece := data.read(PIECE):
        yield _line(name, number, b64encode(piece))
        number += 1
    yield _line(name, number, _COUNT)


def _line(name: bytes, number: int, text: bytes) -> bytes:
    return b"~D1 %b %d %08x %b~\r\n" % (name, number, _sum(name, number, text), text)


def _sum(name: bytes, number: int, text: bytes) -> int:
    return crc32(b"%b %d %b" % (name, number, text))


def _wait_until_taken(fd: int) -> None:
    ends = time.monotonic() + _PATIENCE_S
    count = array.array("i", [0])
    while time.monotonic() < ends:
        fcntl.ioctl(fd, termios.FIONREAD, count)
        if not count[0]:
            return
        time.sleep(0.0001)


@dataclass(slots=True)
class Part:
    """One stream out of many: where each of its pieces is, -1 for one that did not come.

    `count` is how many it has, None where that was never said.
    """

    places: array.array[int] = field(default_factory=lambda: array.array("q"))
    count: int | None = None

    @property
    def missing(self) -> int:
        """How many pieces, or the count, did not come."""
        expected = len(self.places) + 1 if self.count is None else self.count
        return max(0, expected - len(self.places)) + self.places.count(-1)

    def take(self, number: int, text: bytes, place: int) -> None:
        """Note a line."""
        if number > MAX_PIECES:
            return
        if text == _COUNT:
            self.count = number
            return
        if number >= len(self.places):
            self.places.extend([-1] * (number + 1 - len(self.places)))
        self.places[number] = place

    def copy(self, lines: IO[bytes], out: IO[bytes]) -> None:
        """Write its pieces, up to the first that did not come. Raises OSError."""
        for place in self.places:
            if place < 0:
                return
            lines.seek(place)
            found = _FRAME.match(lines.read(_LINE))
            if found is not None:
                out.write(b64decode(found[4]))


def split(lines: IO[bytes]) -> tuple[list[Part], list[str]]:
    """The streams in a file that a launcher wrote, and the last of its other lines.

    Raises OSError.
    """
    parts: dict[bytes, Part] = {}
    others: deque[str] = deque(maxlen=10)
    place = 0
    while line := lines.readline(_LINE):
        found = False
        for match in _FRAME.finditer(line):
            found = True
            name, number, checksum, text = match.groups()
            known = name in parts or len(parts) < MAX_STREAMS
            if known and int(checksum, 16) == _sum(name, int(number), text):
                parts.setdefault(name, Part()).take(int(number), text, place + match.start())
        stripped = line.strip()
        if not found and b" " in stripped and not (b"~D1" in stripped or stripped.endswith(b"~")):
            others.append(stripped.decode("utf-8", "replace"))
        place += len(line)
    return list(parts.values()), list(others)
