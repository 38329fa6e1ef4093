"""How much memory a process of ours may hold, on Linux."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BLOCK = 1 << 20  # bytes that Python asks for at a time
_ROOM = 4 << 20  # bytes more for who is at his bound
_RELIEFS = 4  # times that one job gets them
_STUCK_SECONDS = 1.0


@contextmanager
def memory_bound(limit: int) -> Iterator[None]:
    """Let this process hold `limit` bytes of memory and no more, on Linux; 0 is no bound.

    What asks for more gets a MemoryError.
    """
    held = _held() if limit else None
    if held is None:
        yield
        return
    import resource  # noqa: PLC0415  not on every system

    resident, reserved = held
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    # Far more is reserved than used: only what may come on top is known.
    resource.setrlimit(resource.RLIMIT_DATA, (reserved + max(0, limit - resident), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class Relief:
    """Raises the bound of memory of a process that has been at it for seconds, on Linux.

    Python 3.11 needs a number to hand a MemoryError to a `with` or a `finally`. Where there is no
    room even for that it tries again, for ever and without a look at signals or other threads
    (`exception_unwind` in its ceval.c). A little more room lets the error come through.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since: float | None = None
        self._left = _RELIEFS

    def look(self) -> None:
        """Look at the process; to be called a few times a second."""
        bound = _bound_reached(self._pid) if self._left else None
        now = time.monotonic()
        if bound is None:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= _STUCK_SECONDS:
            self._since, self._left = None, self._left - 1
            soft, hard = bound
            import resource  # noqa: PLC0415  not on every system

            with suppress(OSError, ValueError):  # it ended; there is no more to give
                resource.prlimit(self._pid, resource.RLIMIT_DATA, (soft + _ROOM, hard))


def _bound_reached(pid: int) -> tuple[int, int] | None:
    """The bounds of a process's data where it has no room left below the first; None else."""
    held = _held(pid)
    if held is None:
        return None
    import resource  # noqa: PLC0415  not on every system

    try:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
    except OSError:
        return None
    full = soft != resource.RLIM_INFINITY and held[1] > soft - _BLOCK
    return (soft, hard) if full else None


def _held(pid: int | str = "self") -> tuple[int, int] | None:
    """Bytes of memory a process uses, and of data it has reserved (proc(5), statm)."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    return int(fields[1]) * page, int(fields[5]) * page
