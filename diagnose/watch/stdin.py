"""A log on standard input, followed as it comes."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
from pathlib import Path

from diagnose.parse.path import PathHints
from diagnose.watch.follow import Stream
from diagnose.watch.notice import Memory

HEAD, TAIL = 4 << 20, 16 << 20  # bytes


class Spool:
    """Keeps the first HEAD bytes of a stream and between half of TAIL and all of it of its end.

    They are in a folder of their own for temporary files, `path`, which `close` removes.
    """

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="diagnose-watch-")
        self.path = os.path.join(self._folder.name, "stdin.log")  # noqa: PTH118
        self._head, self._half = head, tail // 2
        self._parts = [Path(self._folder.name) / f".{name}" for name in ("head", "old", "new")]
        self._sizes = [0, 0, 0]
        self._dropped = False
        for part in self._parts:
            part.touch()

    def add(self, data: bytes) -> None:
        """Keep these bytes, which come next."""
        room = max(0, self._head - self._sizes[0])
        self._append(0, data[:room])
        data = data[room:]
        if not data:
            return
        if self._sizes[2] + len(data) > self._half and self._sizes[2]:
            self._dropped = self._dropped or self._sizes[1] > 0
            self._parts[2].replace(self._parts[1])
            self._sizes[1:] = [self._sizes[2], 0]
            self._parts[2].touch()
        self._append(2, data)

    def file(self) -> str:
        """One log of all that is kept; a line says where something is left out."""
        with open(self.path, "wb") as whole:  # noqa: PTH123
            whole.write(self._parts[0].read_bytes())
            if self._dropped:
                whole.write(b"\n[...]\n")
            for part in self._parts[1:]:
                whole.write(part.read_bytes())
        return self.path

    def close(self) -> None:
        """Remove it all."""
        self._folder.cleanup()

    def _append(self, number: int, data: bytes) -> None:
        if data:
            with self._parts[number].open("ab") as file:
                file.write(data)
            self._sizes[number] += len(data)


NAME = "<stdin>"
_READ, _WAITING = 64 << 10, 64


class Stdin:
    """Reads a descriptor in a thread, which waits when nobody takes what it read."""

    def __init__(self, descriptor: int) -> None:
        self.stream = Stream(Memory(NAME, PathHints()))
        self.spool = Spool()
        self.ended = False
        self._pieces: queue.Queue[bytes] = queue.Queue(_WAITING)
        threading.Thread(target=self._read, args=(descriptor,), daemon=True).start()

    def look(self, now: float) -> bytes:
        """The lines that ended since the last look; at the end of input also one that did not."""
        blocks = []
        while True:
            try:
                piece = self._pieces.get_nowait()
            except queue.Empty:
                break
            self.stream.grew = now
            if not piece:
                self.ended = True
                piece = b"\n"
            else:
                self.spool.add(piece)
            blocks.append(self.stream.lines.feed(piece))
        return b"".join(blocks)

    def _read(self, descriptor: int) -> None:
        while True:
            try:
                piece = os.read(descriptor, _READ)
            except BlockingIOError:
                time.sleep(0.1)
                continue
            except OSError:
                piece = b""
            self._pieces.put(piece)
            if not piece:
                return
