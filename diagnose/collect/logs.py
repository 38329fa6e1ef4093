"""The last lines of what ranks and their launchers print, where that goes into files.

Only what standard output and standard error lead to, and only regular files of the very user that
the process runs as. Each file is there once, however many processes share it.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from diagnose.collect import owners, proc
from diagnose.collect.children import Unavailable
from diagnose.collect.model import Process
from diagnose.collect.sink import Sink

TAIL = 256 << 10
_BEFORE = 16 << 10  # read and masked, too: of a secret that is cut nobody sees what it is
_NAMES = {(1,): "stdout.log", (2,): "stderr.log", (1, 2): "output.log"}
_WRITERS = ("rank", "launcher")


@dataclass(frozen=True, slots=True)
class Output:
    """One file or stream that processes write to: by `pid`'s descriptor `fd` it is reached."""

    pid: int
    fd: int
    target: str
    folder: str
    name: str


def outputs(processes: Iterable[Process]) -> list[Output]:
    """Where they write to, by what the links of their descriptors say: no file system is asked."""
    writers: dict[tuple[str, str], list[tuple[Process, int]]] = defaultdict(list)
    for one in processes:
        if one.role in _WRITERS:
            for fd in (1, 2):
                with suppress(OSError):
                    writers[_space(one.pid), proc.link(_path(one.pid, fd))].append((one, fd))
    found, shared = [], 0
    for (_, target), ends in writers.items():
        one, fd = ends[0]
        if len({writer.pid for writer, _ in ends}) == 1:
            place = one.folder, _NAMES[tuple(sorted(number for _, number in ends))]
        else:
            shared += 1
            place = "", f"output-{shared}.log"
        found.append(Output(one.pid, fd, target, *place))
    return found


def tail(sink: Sink, output: Output) -> str | None:
    """The end of a file as the log that it is. Raises Unavailable, OSError."""
    path = _path(output.pid, output.fd)
    mine = owners.uid(output.pid)
    # Looked at before it is opened, for to open a device may be a deed.
    if why := _unfit(os.stat(path), mine):  # noqa: PTH116
        raise Unavailable(why)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        about = os.fstat(fd)
        if why := _unfit(about, mine):
            raise Unavailable(why)
        begin = max(0, about.st_size - TAIL - _BEFORE)
        data = os.pread(fd, TAIL + _BEFORE, begin)
    finally:
        os.close(fd)
    if not data:
        raise Unavailable("nothing was printed")
    whole = data if begin == 0 else data.partition(b"\n")[2] or data
    text = sink.masked(whole.decode("utf-8", "replace"))
    kept = text.rstrip("\n").encode("utf-8", "replace") + b"\n"
    room = min(TAIL, sink.left)
    if len(kept) > room:
        kept = kept[kept.find(b"\n", len(kept) - room) + 1 :]
    sink.data(output.name, kept)
    with suppress(OSError):  # when it was last written is what a hang's log tells
        os.utime(sink.folder / output.name, ns=(about.st_atime_ns, about.st_mtime_ns))
    return None


def _unfit(about: os.stat_result, owner: int | None) -> str | None:
    """Why a file is not read, if it is not."""
    if stat.S_ISFIFO(about.st_mode):
        return "it prints into a pipe"
    if stat.S_ISSOCK(about.st_mode):
        return "it prints into a socket"
    if stat.S_ISCHR(about.st_mode):
        return "it prints to a terminal or a device"
    if not stat.S_ISREG(about.st_mode):
        return "it prints into what is no file"
    return None if about.st_uid == owner else "it prints into a file of another user"


def _path(pid: int, fd: int) -> str:
    return f"{proc.PROC}/{pid}/fd/{fd}"


def _space(pid: int) -> str:
    """The mounts that a process sees: one path may be two files in two containers."""
    with suppress(OSError):
        return proc.link(f"{proc.PROC}/{pid}/ns/mnt")
    return ""
