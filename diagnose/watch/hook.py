"""The command that runs once for each stall."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from diagnose.runtime.children import run

LIMIT_S = 600.0  # after which it and all that it started are killed
_LINE, _LINES = 2000, 200  # of its output are shown


class Hook:
    """Runs a shell command beside the watch; of one command at a time.

    Its output goes, line by line and bounded, to `say`, apart from what the watch itself prints.
    """

    def __init__(self, command: str, say: Callable[[str], None], limit_s: float = LIMIT_S) -> None:
        self._command, self._say, self._limit_s = command, say, limit_s
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def run(self, values: Mapping[str, str]) -> None:
        """Start it with these variables, unless the one before still runs."""
        if self._thread is not None and self._thread.is_alive():
            self._say("not started: it still runs for the stall before")
            return
        self._thread = threading.Thread(target=self._attend, args=(dict(values),), daemon=True)
        self._thread.start()

    def close(self, wait_s: float) -> None:
        """Wait so long for it to end, then end it."""
        if self._thread is None:
            return
        self._thread.join(wait_s)
        self._over.set()
        self._thread.join(5)

    def _attend(self, values: dict[str, str]) -> None:
        lines = _Lines(self._say)
        ending = run(
            ["/bin/sh", "-c", self._command],
            lines,
            seconds=self._limit_s,
            stop=lambda: "the watch is over" if self._over.is_set() else None,
            environment={**os.environ, **values},
            merged=True,
            grace_s=0,
        )
        lines.end()
        if ending.status is None:
            self._say(f"ended: {ending.why}")
        elif ending.status:
            self._say(f"exit status {ending.status}")


class _Lines:
    """Says what is written, line by line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rest = b""
        self._count = 0

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._one(line)
        while len(self._rest) > _LINE:
            self._one(self._rest[:_LINE])
            self._rest = self._rest[_LINE:]

    def end(self) -> None:
        if self._rest:
            self._one(self._rest)

    def _one(self, line: bytes) -> None:
        self._count += 1
        if self._count <= _LINES:
            self._say(line[:_LINE].decode(errors="replace").rstrip())
        elif self._count == _LINES + 1:
            self._say("[...]")
