"""The command that runs once for each stall."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO

LIMIT_S = 600.0  # after which it and all that it started are killed
_LINE, _LINES = 2000, 200  # of its output are shown


class Hook:
    """Runs a shell command beside the watch; of one command at a time.

    Its output goes, line by line and bounded, to `say`, apart from what the watch itself prints.
    """

    def __init__(self, command: str, say: Callable[[str], None], limit_s: float = LIMIT_S) -> None:
        self._command, self._say, self._limit_s = command, say, limit_s
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, values: Mapping[str, str]) -> None:
        """Start it with these variables, unless the one before still runs."""
        if self._thread is not None and self._thread.is_alive():
            self._say("not started: it still runs for the stall before")
            return
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                env={**os.environ, **values},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._say(f"could not be started: {error}")
            return
        self._thread = threading.Thread(target=self._attend, args=(self._process,), daemon=True)
        self._thread.start()

    def close(self, wait_s: float) -> None:
        """Wait so long for it to end, then end it."""
        if self._thread is None or self._process is None:
            return
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._kill(self._process, "ended: the watch is over")
            self._thread.join(5)

    def _attend(self, process: subprocess.Popen[bytes]) -> None:
        late = threading.Timer(
            self._limit_s, self._kill, (process, f"killed after {self._limit_s:.0f} s")
        )
        late.daemon = True
        late.start()
        if process.stdout is not None:
            self._show(process.stdout)
        status = process.wait()
        late.cancel()
        if status:
            self._say(f"exit status {status}")

    def _show(self, output: IO[bytes]) -> None:
        lines = 0
        with output:
            while line := output.readline(_LINE):
                lines += 1
                if lines <= _LINES:
                    self._say(line.decode(errors="replace").rstrip())
                elif lines == _LINES + 1:
                    self._say("[...]")

    def _kill(self, process: subprocess.Popen[bytes], why: str) -> None:
        self._say(why)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
