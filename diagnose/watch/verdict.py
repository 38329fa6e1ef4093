"""The ordinary diagnosis of the logs so far, made by a process of its own.

It may take more memory than a watch that runs for weeks should keep, and its time is bounded.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from diagnose.runtime.process import run

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
    answer = BytesIO()
    ending = run(
        [*command, "--", *paths],
        answer,
        seconds=limit_s,
        limit=_MOST,
        stop=lambda: "the watch is over" if stop is not None and stop.is_set() else None,
        nice=_NICE,
        grace_s=0,
    )
    if ending.status is None:
        return Verdict(problem=f"the diagnosis has no answer: {ending.why}")
    return _read(answer.getvalue())


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
