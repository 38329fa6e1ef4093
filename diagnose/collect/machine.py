"""The node of a job: limits, pressure, file systems, devices, clock. Everything is only read.

And what the kernel said since the job began: Xid, killed for memory, hung tasks, file systems. From
/dev/kmsg, which never blocks here and takes nothing away from other readers; where that is not
allowed, from `dmesg` or the journal. Format: Documentation/ABI/testing/dev-kmsg of Linux.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from diagnose.collect import proc
from diagnose.collect.bundle import Process, Sink
from diagnose.formats import data
from diagnose.runtime.children import Answer, TimedOut, Unavailable, each, found, output

_CGROUP = Path("/sys/fs/cgroup")
_STAT_S = 2.0  # that a file system may take to answer
_MAX_MOUNTS = 64
_INFINIBAND = Path("/sys/class/infiniband")
_STA_UNSYNC = 0x40  # timex(7)


def pressure(sink: Sink) -> str | None:
    """`pressure.json`: for what share of the time tasks waited for CPU, memory, I/O; and memory."""
    document: dict[str, Any] = {"diagnose": "pressure/1"}
    for name in ("cpu", "memory", "io"):
        with suppress(OSError):
            document[name] = proc.text(f"{proc.PROC}/pressure/{name}", 4096).splitlines()
    with suppress(OSError):
        memory = proc.keyed(proc.PROC / "meminfo")
        names = ("MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree", "Shmem", "Dirty",
                 "Writeback", "HugePages_Free")  # fmt: skip
        document["meminfo"] = {name: memory[name] for name in names if name in memory}
    with suppress(OSError):
        document["loadavg"] = proc.text(proc.PROC / "loadavg", 256).strip()
    document["cpus"] = os.cpu_count()
    sink.json("pressure.json", document)
    return None


def cgroups(sink: Sink, processes: list[Process]) -> str | None:
    """`cgroup.json`: limits, usage and events of the groups that the job's processes are in."""
    groups: dict[str, dict[str, Any]] = {}
    for one in processes:
        with suppress(OSError):
            for line in proc.text(f"{proc.PROC}/{one.pid}/cgroup", 64 << 10).splitlines():
                _, controllers, path = line.split(":", 2)
                group = groups.setdefault(f"{controllers}:{path}", {"pids": []})
                group["pids"].append(one.pid)
    for key, group in groups.items():
        controllers, _, path = key.partition(":")
        for root in _roots(controllers):
            folder = Path(f"{root}/{path.lstrip('/')}")
            # In a container the path is the host's, and its own group is the root.
            for place in (folder, root):
                limits = _limits(place)
                if limits:
                    group |= {"folder": str(place), **limits}
                    break
    groups = {key: group for key, group in groups.items() if len(group) > 1}
    if not groups:
        raise Unavailable("no limits can be read below /sys/fs/cgroup")
    sink.json("cgroup.json", {"diagnose": "cgroup/1", "groups": groups})
    return None


def _roots(controllers: str) -> list[Path]:
    if not controllers:
        return [_CGROUP, _CGROUP / "unified"]
    return [_CGROUP / controllers, *(_CGROUP / name for name in controllers.split(","))]


def _limits(folder: Path) -> dict[str, str]:
    limits = {}
    for name in data("nodes")["limits"]:
        with suppress(OSError):
            limits[name] = proc.text(folder / name, 4096).strip()
    return limits


def filesystems(sink: Sink, processes: list[Process]) -> str | None:
    """`filesystems.json`: size, free space and inodes of each mount, or that it does not answer.

    Each is asked in a child process of its own, which is given up if it does not answer.
    """
    mounted: dict[tuple[str, str], tuple[proc.Mount, int]] = {}
    for one in processes or [Process(os.getpid(), "rank")]:
        with suppress(OSError):
            for mount in proc.mounts(one.pid):
                mounted.setdefault((mount.point, mount.source), (mount, one.pid))
    none = data("nodes")["no_files"]
    wanted = [(m, pid) for m, pid in mounted.values() if m.type not in none][:_MAX_MOUNTS]
    asked: list[tuple[str, Callable[[], Any]]] = [
        (str(number), partial(_space, mount, pid)) for number, (mount, pid) in enumerate(wanted)
    ]
    answers = {int(a.name): a for a in each(asked, _STAT_S, at_once=len(asked) or 1)}
    entries = [_entry(mount, answers[number]) for number, (mount, _) in enumerate(wanted)]
    sink.json("filesystems.json", {"diagnose": "filesystems/1", "mounts": entries})
    silent = [one["point"] for one in entries if one.get("answers") is False]
    return f"no answer in {_STAT_S:.0f} s: {', '.join(silent)}" if silent else None


def _space(mount: proc.Mount, pid: int) -> dict[str, int]:
    try:
        stat = os.statvfs(f"{proc.PROC}/{pid}/root{mount.point}")
    except PermissionError:
        stat = os.statvfs(mount.point)
    return {
        "size": stat.f_blocks * stat.f_frsize, "free": stat.f_bavail * stat.f_frsize,
        "inodes": stat.f_files, "inodes_free": stat.f_favail, "read_only": stat.f_flag & 1,
    }  # fmt: skip


def _entry(mount: proc.Mount, answer: Answer) -> dict[str, Any]:
    about = {"point": mount.point, "type": mount.type, "source": mount.source}
    try:
        return {**about, "answers": True, **answer.result()}
    except TimedOut:
        return {**about, "answers": False}
    except (OSError, Unavailable) as error:
        return {**about, "error": str(error)}


def gpus(sink: Sink, seconds: float) -> str | None:
    """`gpus.json`: what nvidia-smi or rocm-smi says of each device. Raises Unavailable."""
    program = ""
    for name in ("rocm-smi", "nvidia-smi"):
        with suppress(Unavailable):
            program = found(name)
    if not program:
        raise Unavailable("there is no nvidia-smi and no rocm-smi here")
    words = data("nodes")[Path(program).name]
    report: dict[str, Any] = {"diagnose": "gpus/1", "program": Path(program).name, "said": {}}
    problem = ""
    for name, options in words.items():
        try:
            report["said"][name] = output([program, *options], seconds / len(words))[0].splitlines()
        except (OSError, TimedOut) as error:
            problem = problem or str(error)
    if not report["said"]:
        raise OSError(problem)
    sink.json("gpus.json", report)
    return problem or None


def rdma(sink: Sink) -> str | None:
    """`rdma.json`: state and counters of each port, read twice a second apart, never cleared."""
    ports = sorted(_INFINIBAND.glob("*/ports/*"))
    if not ports:
        raise Unavailable("no RDMA devices below /sys/class/infiniband")
    first = {str(port): _counters(port) for port in ports}
    time.sleep(1.0)
    entries = []
    for port in ports:
        about: dict[str, Any] = {"device": port.parts[-3], "port": port.name}
        for name in ("state", "phys_state", "rate", "link_layer", "lid"):
            with suppress(OSError):
                about[name] = proc.text(port / name, 256).strip()
        last = _counters(port)
        about["counters"] = last
        about["grew"] = {k: v - first[str(port)].get(k, v) for k, v in last.items()}
        about["grew"] = {name: by for name, by in about["grew"].items() if by}
        entries.append(about)
    sink.json("rdma.json", {"diagnose": "rdma/1", "ports": entries})
    return None


def _counters(port: Path) -> dict[str, int]:
    counters = {}
    for folder in ("counters", "hw_counters"):
        for path in sorted((port / folder).glob("*"))[:256]:
            with suppress(OSError, ValueError):
                counters[path.name] = int(proc.text(path, 64))
    return counters


class _Timex(ctypes.Structure):
    """The beginning of struct timex, adjtimex(2); the rest is only room."""

    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long), ("esterror", ctypes.c_long), ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )  # fmt: skip


def clock(seconds: float) -> dict[str, Any]:
    """What the kernel and chrony know of the error of this node's clock, in seconds."""
    known: dict[str, Any] = {}
    timex = _Timex()  # modes 0: only read
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) >= 0:
            known["synchronised"] = not timex.status & _STA_UNSYNC
            known["most_s"] = timex.maxerror / 1e6
            known["estimated_s"] = timex.esterror / 1e6
    with suppress(OSError, Unavailable, TimedOut):
        printed, _ = output([found("chronyc"), "-n", "-c", "tracking"], seconds)
        fields = printed.strip().split(",")
        known["offset_s"] = float(fields[4])  # + is slow of the servers' time
        known["servers"] = fields[1]
    return known


def sockets(sink: Sink, processes: list[Process]) -> str | None:
    """`sockets.json`: TCP connections of each process: ends, state, queues, resends."""
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    entries = []
    for one in processes:
        inodes = proc.sockets(one.pid)
        if not inodes:
            continue
        space = ""
        with suppress(OSError):
            space = proc.link(f"{proc.PROC}/{one.pid}/ns/net")
        if space not in tables:
            tables[space] = _connections(one.pid)
        mine = [tables[space][inode] for inode in inodes if inode in tables[space]]
        entries.append({"pid": one.pid, "rank": one.rank, "role": one.role, "sockets": mine[:512]})
    if not entries:
        raise Unavailable("the open files of the processes may not be read")
    sink.json("sockets.json", {"diagnose": "sockets/1", "processes": entries})
    return None


def _connections(pid: int) -> dict[str, dict[str, Any]]:
    connections: dict[str, dict[str, Any]] = {}
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in proc.text(f"{proc.PROC}/{pid}/net/{name}", 16 << 20).splitlines()[1:]:
                words = line.split()
                with suppress(ValueError, IndexError):
                    sent, received = words[4].split(":")
                    connections[words[9]] = {
                        "local": _end(words[1]), "remote": _end(words[2]),
                        "state": data("nodes")["tcp_states"].get(words[3], words[3]),
                        "unsent": int(sent, 16), "unread": int(received, 16),
                        "resends": int(words[6], 16),
                    }  # fmt: skip
    return connections


def _end(text: str) -> str:
    """`0100007F:1F90` is 127.0.0.1:8080: the address is in 32-bit words of this machine's order."""
    address, port = text.split(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    data = b"".join(words)
    if len(data) == 4:
        host = ".".join(map(str, data))
    elif data[:12] == b"\0" * 10 + b"\xff\xff":
        host = ".".join(map(str, data[12:]))
    else:
        host = "[" + ":".join(data[at : at + 2].hex() for at in range(0, 16, 2)) + "]"
    return f"{host}:{int(port, 16)}"


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
