"""Stacks of a process by py-spy, which reads its memory from outside.

Python frames are read without pausing the process. Native ones need it paused, mostly for a few
tenths of a second, in which py-spy looks up symbols; who is paused too long is let go: the kernel
resumes a process whose tracer ends. A process that is stopped or stuck is never paused, since
that would wait for it.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress

from diagnose.collect import proc, syscalls
from diagnose.collect.children import TimedOut, Unavailable, found, output
from diagnose.collect.model import Process
from diagnose.collect.sink import Sink

_TRIES = 3  # a running process may change while its memory is read
_LOOK_S = 3.0
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
            printed, _ = output(words, min(left, 2 * _LOOK_S), _Pause(process.pid, pause_s).over)
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
    call = syscalls.call(stat.pid, stat.pid)
    file = syscalls.file_of(stat.pid, call) if call is not None else None
    if file and file.startswith("/"):
        with suppress(OSError):
            mount = syscalls.mount_of(file, syscalls.mounts(stat.pid))
            # A server that does not answer keeps it from being paused, too.
            if mount is not None and syscalls.is_remote(mount):
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
            return output(words, _LOOK_S)[0]
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
