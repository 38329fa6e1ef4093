"""When to look: after a pause, or sooner where the file system tells of a change."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any


class Stop:
    """A flag that a signal handler may set: an Event's lock may be held by what it interrupts."""

    def __init__(self) -> None:
        self._set = False
        self._ear, self._mouth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def set(self) -> None:
        """End all waiting, now and later."""
        self._set = True
        with suppress(OSError):
            os.write(self._mouth, b"!")

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it is set."""
        if not self._set and seconds > 0:
            select.select([self._ear], [], [], seconds)
        return self._set

    def close(self) -> None:
        """Give its pipe back; the flag stays."""
        for end in (self._ear, self._mouth):
            os.close(end)


class Wake:
    """Waits for changes below folders, or only for time where there are no events.

    Events need the package watchfiles, and folders (a file of its own may be replaced). Without
    them, or where the kernel has no more of its watches, nothing is missed: it is found later.
    """

    def __init__(self, paths: Sequence[str], stop: Stop) -> None:
        self._stop = stop
        self._folders = [path for path in paths if os.path.isdir(path)]  # noqa: PTH112
        self._changes: Iterator[Any] | None = None
        self._turn_ms = 0  # for which events are gathered

    def wait(self, seconds: float) -> set[str]:
        """The paths that changed, after half of so many seconds or, where none did, all of them."""
        turn = round(1000 * seconds)
        if self._folders and turn != self._turn_ms:
            self._turn_ms, self._changes = turn, _changes(self._folders, self._stop, turn)
        begin, paths = time.monotonic(), set[str]()
        if self._changes is not None:
            try:
                paths = {path for _, path in next(self._changes, ())}
            except (OSError, RuntimeError):  # what watchfiles makes of a failing kernel
                self._changes = None
        # A file that grows all the time is not looked at all the time.
        least = seconds / 2 if paths else seconds
        self._stop.wait(max(0.0, least - (time.monotonic() - begin)))
        return paths


def _changes(folders: Sequence[str], stop: Stop, turn: int) -> Iterator[Any] | None:
    try:
        from watchfiles import watch  # noqa: PLC0415  of an extra
    except ImportError:
        return None
    return watch(
        *folders,
        watch_filter=None,
        debounce=turn,
        rust_timeout=turn,
        yield_on_timeout=True,
        stop_event=stop,
        raise_interrupt=False,
    )
