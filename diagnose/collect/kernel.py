"""What the kernel said since the job began: Xid, killed for memory, hung tasks, file systems.

From /dev/kmsg, which never blocks here and takes nothing away from other readers; where that is
not allowed, from `dmesg` or the journal. Format: Documentation/ABI/testing/dev-kmsg of Linux.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from diagnose.collect.children import TimedOut, Unavailable, found, output
from diagnose.collect.sink import Sink

_RECORD = re.compile(r"(\d+),(\d+),(\d+),[^;]*;(.*)", re.S)
_MAX = 8 << 20
_BEFORE_S = 60.0  # the machine's trouble may begin before the job


def messages(sink: Sink, host: str, began: float, seconds: float) -> str | None:
    """`kernel.log`: what the kernel said since `began` (seconds since 1970).

    Raises Unavailable where nobody may read it.
    """
    since = began - _BEFORE_S
    try:
        text = _kmsg(host, since)
    except OSError:
        text = _by_program(since, seconds)
    sink.text("kernel.log", text or f"-- no kernel messages since {_stamp(since)} --")
    return None


def _kmsg(host: str, since: float) -> str:
    boot = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    lines: list[str] = []
    size = 0
    for record in _records():
        match = _RECORD.match(record)
        if match is None or int(match[1]) >> 3:  # of programs, not of the kernel
            continue
        at = boot + int(match[3]) / 1e6
        if at >= since and size < _MAX:
            lines.append(f"{_stamp(at)} {host} kernel: {match[4].partition(chr(10))[0]}")
            size += len(lines[-1])
    return "\n".join(lines)


def _records() -> Iterator[str]:
    fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            # A record overwritten meanwhile is skipped; the next read goes on behind it.
            with suppress(BrokenPipeError):
                yield os.read(fd, 8192).decode("utf-8", "replace")
    except BlockingIOError:
        return
    finally:
        os.close(fd)


def _by_program(since: float, seconds: float) -> str:
    when = datetime.fromtimestamp(since).strftime("%Y-%m-%d %H:%M:%S")
    tries = [
        ["dmesg", "--time-format", "iso", "--since", when],
        ["journalctl", "-k", "-b", "--no-pager", "-o", "short-iso", "--since", when],
    ]
    for words in tries:
        with suppress(OSError, TimedOut, Unavailable):
            printed, _ = output([found(words[0]), *words[1:]], seconds / len(tries))
            if "insufficient permissions" not in printed and "No journal files" not in printed:
                return printed
    raise Unavailable("kernel messages may not be read: root, or kernel.dmesg_restrict=0")


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
