"""What is timed runs as people run it, and all of it is counted."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def keep_byte_code() -> None:
    """Let the processes that begin later keep what they compile of their source, as is usual."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of CPU of all processes and by the clock; MiB that the largest process held."""

    cpu: float
    wall: float
    peak: float


def timed(command: Sequence[str | Path], cores: int = 0) -> Cost:
    """What a command costs, pinned to so many cores if any; it may end with 0 or 1.

    Workers that a server forks are no children of the command. So what it leaves becomes ours when
    it ends, and is waited for. Linux counts what this process holds in the peak of those it starts.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=(lambda: os.sched_setaffinity(0, range(cores))) if cores else None,
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(map(str, command))[:200]} failed")
    usages = [usage]
    with suppress(ChildProcessError):
        while True:
            usages.append(os.wait4(-1, 0)[2])
    cpu = sum(one.ru_utime + one.ru_stime for one in usages)
    return Cost(cpu, wall, max(one.ru_maxrss for one in usages) / 1024)


def least(costs: Sequence[Cost]) -> Cost:
    """The least of each, as other work on the machine only ever adds; of memory the most."""
    cpu, wall = min(cost.cpu for cost in costs), min(cost.wall for cost in costs)
    return Cost(cpu, wall, max(cost.peak for cost in costs))
