"""Runs a tool's commands under a time limit and adds up what they use of the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

NONE: Mapping[str, str] = MappingProxyType({})


class CommandError(Exception):
    """A command that could not be started, ran past the limit, or failed."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed, and its exit status (negative: ended by that signal)."""

    text: str
    errors: str
    status: int


class Commands:
    """The commands that one tool runs for one case.

    environment: folder of the environment with the tools. limit_s: seconds for a command by the
    clock. cpu_s: CPU seconds of all commands so far with the processes that they waited for;
    peak_mib: resident memory of the largest of these processes. A started process counts with what
    its starter held, so this program keeps itself small (about 30 MiB is the least it can measure).
    """

    def __init__(self, environment: Path, limit_s: float) -> None:
        self.environment = environment
        self.limit_s = limit_s
        self.cpu_s = 0.0
        self.peak_mib = 0.0

    def python(self) -> str:
        """The interpreter of the environment with the tools."""
        return str(self.environment / "bin" / "python")

    def run(self, command: Sequence[str | Path], variables: Mapping[str, str] = NONE) -> Output:
        """Run one command to its end, whatever its exit status.

        Raises `CommandError` where it cannot be started or runs past the limit; then all of its
        processes are killed.
        """
        with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=text, stderr=errors,
                    env=os.environ | variables, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise CommandError(f"{command[0]}: {error.strerror}") from error
            expired = threading.Event()
            timer = threading.Timer(self.limit_s, _kill, (process.pid, expired))
            timer.start()
            try:
                _, status, usage = os.wait4(process.pid, 0)
            finally:
                timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s += usage.ru_utime + usage.ru_stime
            self.peak_mib = max(self.peak_mib, usage.ru_maxrss / 1024)
            if expired.is_set():
                raise CommandError(f"no answer within {self.limit_s:g} s")
            text.seek(0)
            errors.seek(0)
            return Output(
                text.read().decode(errors="replace"),
                errors.read().decode(errors="replace"),
                process.returncode,
            )


def _kill(pid: int, expired: threading.Event) -> None:
    expired.set()
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        expired.clear()  # it ended by itself in the same moment
