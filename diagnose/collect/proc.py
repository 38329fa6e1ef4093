"""Reads /proc, and nothing else: every read is bounded, and what has ended meanwhile is absent.

What needs the memory map of a process (its command line, its environment) waits for whoever
holds the map's lock, which may be forever; see `runtime.children`. Formats: proc(5).

What a blocked thread waits for is in `/proc/PID/syscall`: the number of the call and its arguments;
numbers are those of the kernel's tables for x86_64 and of its generic table for arm64. Nothing here
opens or looks up the file itself: it may be on a mount that does not answer.
"""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diagnose.formats import data

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


# The names of calls by their numbers, and what the first arguments of a call are.
_NAMES: dict[str, str] = data("nodes")["calls"].get(platform.machine(), {})
_OF_FD, _OF_PATH, _OF_PATH_AT = (
    frozenset(data("nodes")[name]) for name in ("of_fd", "of_path", "of_path_at")
)
_REMOTE = re.compile(
    r"nfs|fuse|lustre|ceph|gpfs|mmfs|beegfs|wekafs|cifs|smb3|9p|virtiofs|afs|pvfs2|orangefs|daos"
)
_AT_FDCWD = -100
_MAX_PATH = 4096
_MAX_MOUNTS = 8 << 20


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a file system is mounted, its type and what it is a mount of."""

    point: str
    type: str
    source: str


@dataclass(frozen=True, slots=True)
class Call:
    """The system call in which a thread is: its name, or its number as text; arguments."""

    name: str
    arguments: tuple[int, ...] = ()


def call(pid: int, thread: int) -> Call | None:
    """The call in which a thread is blocked; None where it runs, or nobody may know."""
    with suppress(OSError, ValueError):
        words = text(f"{PROC}/{pid}/task/{thread}/syscall", 1024).split()
        if len(words) < 7:
            return None
        number = str(int(words[0]))
        return Call(_NAMES.get(number, number), tuple(int(word, 16) for word in words[1:7]))
    return None


def file_of(pid: int, made: Call) -> str | None:
    """The file or socket that a call is about; may block, where the process's memory is locked."""
    with suppress(OSError, ValueError, IndexError):
        if made.name in _OF_FD:
            return link(f"{PROC}/{pid}/fd/{made.arguments[0]}")
        if made.name in _OF_PATH:
            return _absolute(pid, _AT_FDCWD, _string(pid, made.arguments[0]))
        if made.name in _OF_PATH_AT:
            folder = made.arguments[0] & 0xFFFFFFFF
            folder -= (folder & 0x80000000) << 1
            return _absolute(pid, folder, _string(pid, made.arguments[1]))
    return None


def mounts(pid: int) -> list[Mount]:
    """What is mounted where a process is. Raises OSError."""
    found = []
    for line in text(f"{PROC}/{pid}/mountinfo", _MAX_MOUNTS).splitlines():
        head, split, tail = line.partition(" - ")
        words, about = head.split(" "), tail.split(" ")
        if split and len(words) > 4 and len(about) > 1:
            found.append(Mount(_plain(words[4]), about[0], _plain(about[1])))
    return found


def mount_of(path: str, mounted: list[Mount]) -> Mount | None:
    """The mount below which a path is: the longest one, of these the last."""
    best = None
    for mount in mounted:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def is_remote(mount: Mount) -> bool:
    """Whether another machine or process answers for a file system."""
    return _REMOTE.match(mount.type) is not None


def _string(pid: int, address: int) -> str:
    fd = os.open(f"{PROC}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A page at a time: the next one may not be there.
        data = b""
        while len(data) < _MAX_PATH and b"\0" not in data:
            at = address + len(data)
            part = os.pread(fd, 4096 - at % 4096, at)
            if not part:
                break
            data += part
        return data.partition(b"\0")[0].decode("utf-8", "replace")
    finally:
        os.close(fd)


def _absolute(pid: int, folder: int, path: str) -> str | None:
    if path.startswith("/"):
        return path
    name = "cwd" if folder == _AT_FDCWD else f"fd/{folder}"
    base = link(f"{PROC}/{pid}/{name}")
    return os.path.normpath(f"{base}/{path}") if path else base


def _plain(word: str) -> str:
    r"""The kernel writes blanks as \040."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, char)
    return word
