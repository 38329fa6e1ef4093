"""The process of a command: its standard streams, their width, its cores, its end by Ctrl-C."""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

MIN_WIDTH, MAX_WIDTH = 20, 1000

INTERRUPTED = 128 + signal.SIGINT

# The largest block that glibc may learn to take from its heap.
_LARGE_BLOCK = 31 << 20
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1

_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

unfinished: set[str] = set()  # files that are to be removed if this process ends now
held: list[object] = []  # what is to end with this process and not before


def prepare() -> None:
    """Make a process a well-behaved command; to be called before slow imports."""
    _keep_streams()
    reuse_memory()
    # A command in the background of a script must not hear the script's Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextmanager
def handling(
    handler: Callable[[int, FrameType | None], object], *others: signal.Signals
) -> Iterator[bool]:
    """Inside, `handler` gets what asks a process to end, but not what is ignored, as by nohup.

    And `others`. Gives whether it does: only the main thread may handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    handled = [number for number in _TO_END if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in (*handled, *others)}
    try:
        yield True
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def leave(status: int) -> NoReturn:
    """End a command without taking apart what it holds: of a large job that takes half a second."""
    if threading.active_count() > 1:
        sys.exit(status)
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            sys.exit(status)  # Python says what it could not write
    os._exit(status)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_thread() -> None:
    """Let numerical libraries that are loaded later, here or in a child, start no threads.

    None of them helps with logs, and OpenBLAS's wait for work with their core busy.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def reuse_memory() -> None:
    """Let blocks of some MiB be used again, where the system would be given back each of them.

    glibc maps large blocks one by one, and every page of a new one costs a fault: for a log that is
    read in such blocks more than reading does. Once a mapped block was freed it keeps blocks of
    that size (this one costs nothing, its pages are never touched). Elsewhere nothing changes.
    """
    bytes(_LARGE_BLOCK)


def return_memory() -> None:
    """Give freed blocks of some MiB back to the system: the opposite of `reuse_memory`.

    For columns of a million jobs, of which each is used once and none fits where another was; those
    of Arrow too, if it is not imported yet, as its own allocator keeps what it had.
    """
    import ctypes  # noqa: PLC0415  few need it

    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 18)
        mallopt(_M_TRIM_THRESHOLD, 1 << 20)


def width() -> int:
    """Columns of the terminal, or what COLUMNS says; 80 where neither is known.

    Our own answer: rich believes a COLUMNS of 0, prints nothing then, and stumbles over others.
    """
    columns = 0
    with suppress(ValueError):
        columns = int(os.environ.get("COLUMNS", ""))
    for number in (1, 2, 0):
        if columns < 1:
            with suppress(OSError):
                columns = os.get_terminal_size(number).columns
    return max(MIN_WIDTH, min(columns, MAX_WIDTH)) if columns > 0 else 80


def _keep_streams() -> None:
    """Let no file that is opened later take the number of a standard stream that was closed.

    A read of what stands there, or a write, fails as on the closed stream. A stream that does not
    block (its other end may be shared with an event loop) would seem to end where it only pauses.
    """
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.set_blocking(number, True)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # workers have the same
    stderr = io.BufferedWriter(_Beside(2, "wb", closefd=False))
    sys.stderr = io.TextIOWrapper(
        stderr,
        sys.stderr.encoding if sys.stderr else "utf-8",
        "backslashreplace",
        write_through=True,
    )


class _Beside(io.FileIO):
    """Standard error: that nobody can hear what stands beside the answer must not change it.

    Where it is closed Python has none, and what is printed there would go to standard output.
    """

    def write(self, data: Any, /) -> int:
        """Write, or do as if."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _end(_number: int, _frame: FrameType | None) -> None:
    """End at once and quietly.

    A KeyboardInterrupt would be printed, or lost, where it happens to arise: in an import, in a
    callback from C, while the interpreter ends.
    """
    for path in list(unfinished):
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108  no imports here: one may be under way
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\n")
    os._exit(INTERRUPTED)
