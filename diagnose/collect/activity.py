"""What processes do: two samples a few seconds apart, and where their threads wait in the kernel.

running   a share of a CPU was used
waiting   asleep, and no CPU time worth mentioning was used
stuck     in state D both times: it cannot be interrupted
stopped   by a signal (SIGSTOP, SIGTSTP), in state T
ended     gone, or dead and not yet waited for (state Z)
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Literal

from diagnose.collect import proc, syscalls
from diagnose.collect.model import Process
from diagnose.collect.sink import Sink

Activity = Literal["running", "waiting", "stuck", "stopped", "ended"]

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = 0.1  # of a CPU
_MAX_THREADS = 256
_LOOK_S = 2.0  # for what threads wait for


def sample(pid: int) -> dict[str, Any] | None:
    """Counters of a process at this moment: CPU seconds, switches, bytes; None if it has ended."""
    stat = proc.stat(pid)
    if stat is None:
        return None
    counters: dict[str, Any] = {
        "at": time.monotonic(), "state": stat.state, "threads": stat.threads,
        "user_s": stat.user / _TICKS, "system_s": stat.system / _TICKS,
        "io_wait_s": stat.waits_io / _TICKS,
    }  # fmt: skip
    with suppress(OSError, ValueError):
        status = proc.keyed(f"{proc.PROC}/{pid}/status")
        counters["voluntary"] = int(status["voluntary_ctxt_switches"])
        counters["involuntary"] = int(status["nonvoluntary_ctxt_switches"])
    with suppress(OSError, ValueError):
        io = proc.keyed(f"{proc.PROC}/{pid}/io")
        counters |= {
            name: int(io[name]) for name in ("rchar", "wchar", "read_bytes", "write_bytes")
        }
    return counters


def judge(first: dict[str, Any] | None, second: dict[str, Any] | None) -> tuple[Activity, float]:
    """What a process did between two samples, and the share of a CPU that it used."""
    if second is None or first is None or second["state"] in "ZX":
        return "ended", 0.0
    spent = sum(second[key] - first[key] for key in ("user_s", "system_s"))
    share = spent / max(0.001, second["at"] - first["at"])
    if second["state"] in "Tt" and first["state"] in "Tt":
        return "stopped", share
    if second["state"] == "D" and first["state"] == "D" and share < _BUSY:
        return "stuck", share
    return ("running" if share >= _BUSY else "waiting"), share


def observe(sink: Sink, processes: list[Process], apart_s: float) -> str | None:
    """`activity.json` of every process. Raises OSError where one cannot be written."""
    before = {one.pid: (sample(one.pid), _threads(one.pid)) for one in processes}
    time.sleep(apart_s if processes else 0)
    problems = []
    workers = ThreadPoolExecutor(8)
    looks = {one.pid: workers.submit(waits, one.pid) for one in processes}
    wait(looks.values(), _LOOK_S)
    workers.shutdown(wait=False, cancel_futures=True)
    for one in processes:
        first, threads = before[one.pid]
        second = sample(one.pid)
        done = looks[one.pid].done() and not looks[one.pid].cancelled()
        if not done:
            problems.append(f"process {one.pid} does not show where it waits")
        doing, share = judge(first, second)
        place = sink.below(one.folder)
        place.json("activity.json", {
            "diagnose": "activity/1", "pid": one.pid, "rank": one.rank, "role": one.role,
            "activity": doing, "cpu": round(share, 3),
            "seconds": round(second["at"] - first["at"], 3) if first and second else 0.0,
            "samples": [first, second], "waits": looks[one.pid].result() if done else [],
            "busy": _busy(threads, _threads(one.pid)),
        })  # fmt: skip
        sink.written += place.written
    return "; ".join(problems) or None


def waits(pid: int) -> list[dict[str, Any]]:
    """Where the main thread waits in the kernel, and every thread that cannot be interrupted."""
    found = []
    mounted: list[syscalls.Mount] = []
    with suppress(OSError):
        mounted = syscalls.mounts(pid)
    for thread in proc.threads(pid)[:_MAX_THREADS]:
        stat = proc.stat(pid, thread)
        if stat is None or not (thread == pid or stat.state == "D"):
            continue
        wait: dict[str, Any] = {"thread": thread, "name": stat.name, "state": stat.state}
        with suppress(OSError):
            wait["wchan"] = proc.text(f"{proc.PROC}/{pid}/task/{thread}/wchan", 256)
        with suppress(OSError):
            wait["kernel"] = proc.text(f"{proc.PROC}/{pid}/task/{thread}/stack", 8192).splitlines()
        made = syscalls.call(pid, thread)
        if made is not None:
            wait["call"] = made.name
            file = syscalls.file_of(pid, made)
            mount = syscalls.mount_of(file, mounted) if file and file.startswith("/") else None
            if file:
                wait["file"] = file
            if mount:
                wait |= {"mount": mount.point, "type": mount.type, "source": mount.source}
        found.append(wait)
    return found


def _threads(pid: int) -> dict[int, tuple[str, int]]:
    """The name and CPU ticks of each thread."""
    found = {}
    for thread in proc.threads(pid)[:_MAX_THREADS]:
        stat = proc.stat(pid, thread)
        if stat is not None:
            found[thread] = (stat.name, stat.user + stat.system)
    return found


def _busy(
    first: dict[int, tuple[str, int]], second: dict[int, tuple[str, int]]
) -> list[dict[str, Any]]:
    """The threads that used CPU time, the busiest first."""
    spent = [
        (ticks - first[thread][1], thread, name)
        for thread, (name, ticks) in second.items()
        if thread in first and ticks > first[thread][1]
    ]
    return [
        {"thread": thread, "name": name, "cpu_s": ticks / _TICKS}
        for ticks, thread, name in sorted(spent, reverse=True)[:8]
    ]
