"""The ordinary diagnosis of the logs so far, made by a process of its own.

It may take more memory than a watch that runs for weeks should keep, and its time is bounded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIVE_S, FINAL_S = 60.0, 600.0  # how long it may take during a stall, and at the end
LIVE_BYTES = 1 << 30  # of logs, beyond which it is not cheap during a stall
_MOST = 16 << 20  # bytes of its answer
_NICE = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the diagnosis says; `problem` where there is none."""

    verdict: str = "unknown"
    cause: str = "unknown"
    title: str = ""
    summary: str = ""
    confidence: str = "low"
    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def names_cause(self) -> bool:
        """Whether it says more than that nothing is known."""
        return self.cause not in ("unknown", "none") and not self.problem


def diagnosed(
    paths: Sequence[str],
    limit_s: float,
    patterns: Sequence[Path] = (),
    stop: threading.Event | None = None,
) -> Verdict:
    """The verdict on these logs, within so many seconds, or until `stop`."""
    command = [sys.executable, "-m", "diagnose", "triage", "--format", "json", "--workers", "1"]
    command += [option for folder in patterns for option in ("--patterns", str(folder))]
    with tempfile.TemporaryFile() as answer:
        try:
            process = subprocess.Popen(
                [*command, "--", *paths],
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return Verdict(problem=f"the diagnosis could not be started: {error.strerror}")
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        if not _ended(process, limit_s, stop):
            return Verdict(problem=f"the diagnosis took longer than {limit_s:.0f} s")
        answer.seek(0)
        return _read(answer.read(_MOST))


def _ended(process: subprocess.Popen[bytes], limit_s: float, stop: threading.Event | None) -> bool:
    """Wait for it; kill it after its time, or when the watch stops."""
    turns = max(1, round(limit_s / 0.1))
    for _ in range(turns):
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            if stop is None or not stop.is_set():
                continue
            break
        return True
    process.kill()
    process.wait()
    return False


def _read(answer: bytes) -> Verdict:
    try:
        found: dict[str, Any] = json.loads(answer)
        cause, culprits = found["root_cause"], found["culprits"]
        return Verdict(
            found["verdict"], cause["class"], cause["title"], cause["summary"], cause["confidence"],
            culprits["ranks"], culprits["hosts"],
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return Verdict(problem="the diagnosis gave no verdict")


class Question:
    """A diagnosis under way in a thread; `answer` is None until it is made."""

    def __init__(self, paths: Sequence[str], limit_s: float, patterns: Sequence[Path] = ()) -> None:
        self.answer: Verdict | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._ask, args=(paths, limit_s, patterns), daemon=True
        )
        self._thread.start()

    def _ask(self, paths: Sequence[str], limit_s: float, patterns: Sequence[Path]) -> None:
        self.answer = diagnosed(paths, limit_s, patterns, self._stop)

    def wait(self, seconds: float) -> Verdict | None:
        """The answer, if it comes so soon."""
        self._thread.join(seconds)
        return self.answer

    def cancel(self) -> None:
        """It is not needed any more."""
        self._stop.set()
        self._thread.join(5)
