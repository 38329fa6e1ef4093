"""What a blocked thread waits for in the kernel: the call, its file, the file system below it.

`/proc/PID/syscall` has the number of the call and its arguments (proc(5)); numbers are those of the
kernel's tables for x86_64 and of its generic table for arm64. Nothing here opens or looks up the
file itself: it may be on a mount that does not answer.
"""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from dataclasses import dataclass

from diagnose.collect import proc

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll",
    9: "mmap", 11: "munmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev",
    21: "access", 23: "select", 28: "madvise", 34: "pause", 35: "nanosleep", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4",
    72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate",
    78: "getdents", 82: "rename", 83: "mkdir", 84: "rmdir", 87: "unlink", 89: "readlink",
    128: "rt_sigtimedwait", 130: "rt_sigsuspend", 137: "statfs", 202: "futex", 217: "getdents64",
    220: "semtimedop", 230: "clock_nanosleep", 231: "exit_group", 232: "epoll_wait", 247: "waitid",
    257: "openat", 258: "mkdirat", 262: "newfstatat", 263: "unlinkat", 264: "renameat",
    267: "readlinkat", 269: "faccessat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait",
    285: "fallocate", 288: "accept4", 295: "preadv", 316: "renameat2", 326: "copy_file_range",
    332: "statx", 426: "io_uring_enter", 437: "openat2", 439: "faccessat2", 441: "epoll_pwait2",
    449: "futex_waitv",
}  # fmt: skip
_ARM64 = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 34: "mkdirat", 35: "unlinkat",
    43: "statfs", 45: "truncate", 46: "ftruncate", 47: "fallocate", 48: "faccessat", 56: "openat",
    57: "close", 61: "getdents64", 63: "read", 64: "write", 65: "readv", 66: "writev",
    67: "pread64", 68: "pwrite64", 69: "preadv", 72: "pselect6", 73: "ppoll", 78: "readlinkat",
    79: "newfstatat", 80: "fstat", 82: "fsync", 83: "fdatasync", 94: "exit_group", 95: "waitid",
    98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 133: "rt_sigsuspend",
    137: "rt_sigtimedwait", 192: "semtimedop", 202: "accept", 203: "connect", 206: "sendto",
    207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 215: "munmap", 222: "mmap", 233: "madvise",
    242: "accept4", 260: "wait4", 276: "renameat2", 285: "copy_file_range", 291: "statx",
    426: "io_uring_enter", 437: "openat2", 439: "faccessat2", 441: "epoll_pwait2",
    449: "futex_waitv",
}  # fmt: skip
_NAMES = {"x86_64": _X86_64, "aarch64": _ARM64}.get(platform.machine(), {})

_OF_FD = frozenset(
    {"read", "write", "close", "fstat", "ioctl", "pread64", "pwrite64", "readv", "writev",
     "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "fcntl",
     "flock", "fsync", "fdatasync", "ftruncate", "getdents", "getdents64", "fallocate", "preadv"}
)  # fmt: skip
_OF_PATH = frozenset(
    {"open", "stat", "lstat", "access", "truncate", "rename", "mkdir", "rmdir", "unlink",
     "readlink", "statfs"}
)  # fmt: skip
_OF_PATH_AT = frozenset(
    {"openat", "openat2", "mkdirat", "newfstatat", "unlinkat", "renameat", "renameat2",
     "readlinkat", "faccessat", "faccessat2", "statx"}
)  # fmt: skip
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
        words = proc.text(f"{proc.PROC}/{pid}/task/{thread}/syscall", 1024).split()
        if len(words) < 7:
            return None
        number = int(words[0])
        return Call(_NAMES.get(number, str(number)), tuple(int(word, 16) for word in words[1:7]))
    return None


def file_of(pid: int, made: Call) -> str | None:
    """The file or socket that a call is about; may block, where the process's memory is locked."""
    with suppress(OSError, ValueError, IndexError):
        if made.name in _OF_FD:
            return proc.link(f"{proc.PROC}/{pid}/fd/{made.arguments[0]}")
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
    for line in proc.text(f"{proc.PROC}/{pid}/mountinfo", _MAX_MOUNTS).splitlines():
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
    fd = os.open(f"{proc.PROC}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
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
    link = "cwd" if folder == _AT_FDCWD else f"fd/{folder}"
    base = proc.link(f"{proc.PROC}/{pid}/{link}")
    return os.path.normpath(f"{base}/{path}") if path else base


def _plain(word: str) -> str:
    r"""The kernel writes blanks as \040."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, char)
    return word
