"""Reads /proc, and nothing else: every read is bounded, and what has ended meanwhile is absent.

What needs the memory map of a process (its command line, its environment) waits for whoever
holds the map's lock, which may be forever; see `children`. Formats: proc(5).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_SMALL = 1 << 20


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat says; CPU times in clock ticks, `started` in ticks since boot."""

    pid: int
    name: str
    state: str
    parent: int
    threads: int
    user: int
    system: int
    waits_io: int
    started: int
    session: int


def text(path: str | Path, limit: int = _SMALL) -> str:
    """The first bytes of a file as text. Raises OSError."""
    return raw(path, limit).decode("utf-8", "replace")


def raw(path: str | Path, limit: int = _SMALL) -> bytes:
    """The first bytes of a file; one that is neither regular nor of a kernel's does not block.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        parts, rest = [], limit
        while rest > 0 and (part := os.read(fd, min(rest, 1 << 16))):
            parts.append(part)
            rest -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def link(path: str | Path) -> str:
    """Where a symbolic link of /proc leads, which may be no path. Raises OSError."""
    return os.readlink(path)  # noqa: PTH115  `socket:[7]` is no path


def sockets(pid: int) -> list[str]:
    """The inodes of a process's open sockets; none where they may not be seen."""
    found = []
    with suppress(OSError), os.scandir(PROC / str(pid) / "fd") as entries:
        for entry in entries:
            with suppress(OSError):
                target = link(entry.path)
                if target.startswith("socket:["):
                    found.append(target[8:-1])
    return found


def pids() -> list[int]:
    """All processes that can be seen."""
    return sorted(int(entry.name) for entry in os.scandir(PROC) if entry.name.isdecimal())


def stat(pid: int, thread: int | None = None) -> Stat | None:
    """The state of a process, or of one of its threads; None if it has ended."""
    task = f"/task/{thread}" if thread is not None else ""
    with suppress(OSError, ValueError, IndexError):
        line = text(f"{PROC}/{pid}{task}/stat", 4096)
        begin, end = line.index("("), line.rindex(")")  # a name may hold brackets
        rest = line[end + 2 :].split()
        return Stat(
            pid=thread or pid,
            name=line[begin + 1 : end],
            state=rest[0],
            parent=int(rest[1]),
            session=int(rest[3]),
            user=int(rest[11]),
            system=int(rest[12]),
            threads=int(rest[17]),
            started=int(rest[19]),
            waits_io=int(rest[39]),
        )
    return None


def environment(pid: int) -> dict[str, str]:
    """The environment with which a process began. Raises OSError; may block."""
    pairs = (item.partition("=") for item in text(PROC / str(pid) / "environ").split("\0"))
    return {name: value for name, found, value in pairs if found}


def command(pid: int) -> list[str]:
    """The words of a command line; empty for threads of the kernel. Raises OSError; may block."""
    words = text(PROC / str(pid) / "cmdline", 64 << 10).rstrip("\0").split("\0")
    return words if words != [""] else []


def threads(pid: int) -> list[int]:
    """The threads of a process; none if it has ended."""
    with suppress(OSError):
        return sorted(int(entry.name) for entry in os.scandir(PROC / str(pid) / "task"))
    return []


def keyed(path: str | Path) -> dict[str, str]:
    """`Name: value` lines, as in /proc/PID/status and /proc/PID/io. Raises OSError."""
    pairs = (line.partition(":") for line in text(path).splitlines())
    return {name.strip(): value.strip() for name, found, value in pairs if found}
