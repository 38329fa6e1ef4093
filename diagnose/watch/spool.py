"""What is kept of a stream that cannot be read again: its start, and its end."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

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
