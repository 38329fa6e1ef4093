"""A log on standard input, followed as it comes."""

from __future__ import annotations

import os
import queue
import threading
import time

from diagnose.parse.path import PathHints
from diagnose.watch.follow import Stream
from diagnose.watch.notice import Memory
from diagnose.watch.spool import Spool

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
