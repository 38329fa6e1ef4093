"""One process of the job: who it is, what it does, where it is, what it printed last.

What it does is judged by two samples a few seconds apart:

running   a share of a CPU was used
waiting   asleep, and no CPU time worth mentioning was used
stuck     in state D both times: it cannot be interrupted
stopped   by a signal (SIGSTOP, SIGTSTP), in state T
ended     gone, or dead and not yet waited for (state Z)

Where it is py-spy shows, which reads its memory from outside. Python frames are read without
pausing the process. Native ones need it paused, mostly for a few tenths of a second, in which
py-spy looks up symbols; who is paused too long is let go: the kernel resumes a process whose tracer
ends. A process that is stopped or stuck is never paused, since that would wait for it.

Of its log it is the last lines, where standard output and standard error lead to regular files of
the very user that the process runs as. Each file is there once, however many processes share it.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from diagnose.collect import proc
from diagnose.collect.bundle import Process, Sink
from diagnose.collect.find import Found, uid
from diagnose.runtime.children import TimedOut, Unavailable, found, output

# What of an environment says where a process stands in its job; nothing else is taken.
_ALLOWED = re.compile(
    r"(?:LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(?:LOCAL_|GROUP_|ROLE_)?WORLD_SIZE"
    r"|(?:SLURM|OMPI|PMI|PMIX|RAY|MASTER|NCCL|RCCL|GLOO|TORCH_NCCL|TORCH_FR|TORCH_GLOO|TORCHELASTIC"
    r"|TORCH_DISTRIBUTED|TORCH_CPP_LOG)_\w+"
    r"|PMI_RANK|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING|OMP_NUM_THREADS"
    r"|TOKENIZERS_PARALLELISM|PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF|HOSTNAME|SLURMD_NODENAME"
    r"|PBS_JOBID|LSB_JOBID|PYTHONFAULTHANDLER|NVIDIA_VISIBLE_DEVICES"
)


def identify(sink: Sink, process: Process, found: Found) -> str | None:
    """`process.json`. Raises OSError."""
    sink.json("process.json", about(process, found, sink))
    return None


def about(process: Process, found: Found, sink: Sink) -> dict[str, Any]:
    """Who a process is: its place in the job, its parents and children, its settings."""
    seen = found.seen[process.pid]
    children = [one.pid for one in found.processes if one.parent == process.pid]
    return {
        "diagnose": "process/1", "pid": process.pid, "role": process.role, "rank": process.rank,
        "local_rank": process.local_rank, "world": process.world,
        "local_world": process.local_world, "parent": process.parent,
        "children": children, "name": seen.name, "command": sink.masked(" ".join(seen.words)),
        "environment": {
            # The name of a variable may say that its value is a secret.
            name: sink.masked(f"{name}={value}").removeprefix(f"{name}=")
            for name, value in sorted(seen.environment.items())
            if _ALLOWED.fullmatch(name)
        },
        "output": {name: sink.masked(place) for name, place in _output(process.pid).items()},
        "status": _status(process.pid),
    }  # fmt: skip


def _output(pid: int) -> dict[str, str]:
    """Where it prints to: a path, or what the kernel calls a pipe or a socket."""
    found = {}
    for fd, name in ((1, "stdout"), (2, "stderr")):
        with suppress(OSError):
            found[name] = proc.link(proc.PROC / str(pid) / "fd" / str(fd))
    return found


def _status(pid: int) -> dict[str, str]:
    try:
        status = proc.keyed(proc.PROC / str(pid) / "status")
    except OSError:
        return {}
    names = ("State", "Threads", "VmRSS", "VmSwap", "RssShmem", "SigBlk", "SigIgn", "SigCgt",
             "CapEff", "Cpus_allowed_list", "TracerPid", "Seccomp", "NSpid")  # fmt: skip
    return {name: status[name] for name in names if name in status}


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
    mounted: list[proc.Mount] = []
    with suppress(OSError):
        mounted = proc.mounts(pid)
    for thread in proc.threads(pid)[:_MAX_THREADS]:
        stat = proc.stat(pid, thread)
        if stat is None or not (thread == pid or stat.state == "D"):
            continue
        wait: dict[str, Any] = {"thread": thread, "name": stat.name, "state": stat.state}
        with suppress(OSError):
            wait["wchan"] = proc.text(f"{proc.PROC}/{pid}/task/{thread}/wchan", 256)
        with suppress(OSError):
            wait["kernel"] = proc.text(f"{proc.PROC}/{pid}/task/{thread}/stack", 8192).splitlines()
        made = proc.call(pid, thread)
        if made is not None:
            wait["call"] = made.name
            file = proc.file_of(pid, made)
            mount = proc.mount_of(file, mounted) if file and file.startswith("/") else None
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


_TRIES = 3  # a running process may change while its memory is read
_DUMP_S = 3.0
_NO_RIGHT = re.compile(r"[Pp]ermission [Dd]enied|EPERM|Operation not permitted")
_NO_PYTHON = re.compile(
    r"[Ff]ailed to (?:find python|locate python|get python)|not a python|version from"
)
HINT = "py-spy may not look into processes: it needs the capability SYS_PTRACE, or root"


def quick(sink: Sink, process: Process) -> str | None:
    """`stack-1.txt`: Python frames of all threads, nobody paused. Raises Unavailable, OSError."""
    sink.text("stack-1.txt", _python(process.pid))
    return None


def full(sink: Sink, process: Process, pause_s: float, until: float) -> str | None:
    """`stack-2.txt`: Python and native frames, else Python frames alone, and why.

    `until` is the time (monotonic) after which nobody is paused any more.
    """
    problem = None
    stat = proc.stat(process.pid)
    if stat is None:
        raise Unavailable("the process has ended")
    left = until - time.monotonic()
    why = _leave_alone(stat, left)
    if pause_s > 0 and why is not None:
        problem = f"no native stacks: {why}"
    elif pause_s > 0:
        try:
            words = [_pyspy(), "dump", "--native", "--full-filenames", "--pid", str(process.pid)]
            printed, _ = output(words, min(left, 2 * _DUMP_S), _Pause(process.pid, pause_s).over)
            sink.text("stack-2.txt", printed)
            return None
        except TimedOut as error:
            problem = f"no native stacks: {error}"
        except OSError as error:
            problem = f"no native stacks: {_reason(error)}"
    sink.text("stack-2.txt", _python(process.pid))
    return problem or None


def _leave_alone(stat: proc.Stat, left: float) -> str | None:
    """Why a process cannot be paused, or not in so many seconds."""
    if stat.state in "TtD":
        return {"T": "it is stopped", "t": "another debugger has it", "D": "it is stuck"}[
            stat.state
        ]
    if left <= 0:
        return "no time left"
    call = proc.call(stat.pid, stat.pid)
    file = proc.file_of(stat.pid, call) if call is not None else None
    if file and file.startswith("/"):
        with suppress(OSError):
            mount = proc.mount_of(file, proc.mounts(stat.pid))
            # A server that does not answer keeps it from being paused, too.
            if mount is not None and proc.is_remote(mount):
                return f"it waits for {mount.point}"
    return None


class _Pause:
    """Watches that a process is not paused for too long."""

    def __init__(self, pid: int, limit: float) -> None:
        self._pid, self._limit = pid, limit
        self._since: float | None = None

    def over(self) -> str | None:
        """Why the tracer must end now, if it must."""
        stat = proc.stat(self._pid)
        if stat is None or stat.state != "t":
            self._since = None
            return None
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since < self._limit:
            return None
        return f"the process was paused for {self._limit:.1f} s, and let go"


def _pyspy() -> str:
    try:
        return found("py-spy")
    except Unavailable:
        raise Unavailable("py-spy is not installed: pip install py-spy") from None


def _python(pid: int) -> str:
    words = [_pyspy(), "dump", "--nonblocking", "--full-filenames", "--pid", str(pid)]
    for attempt in range(_TRIES):
        if proc.stat(pid) is None:
            raise Unavailable("the process has ended")
        try:
            return output(words, _DUMP_S)[0]
        except OSError as error:
            reason = _reason(error)
            if reason == HINT:
                raise Unavailable(HINT) from error
            if attempt == _TRIES - 1:
                raise OSError(reason) from error
        except TimedOut as error:
            raise OSError(str(error)) from error
        time.sleep(0.05)
    raise OSError("no stacks")


def _reason(error: OSError) -> str:
    message = " ".join(str(error).split())
    if _NO_RIGHT.search(message):
        return HINT
    return "no Python in it that py-spy knows" if _NO_PYTHON.search(message) else message


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
    mine = uid(output.pid)
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
