"""Runs one program and keeps what it answers: so long, so much, and no longer than wanted.

The standard library alone: a compute node has nothing else.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Protocol

_PR_SET_PDEATHSIG = 1  # prctl(2)
_BLOCK = 1 << 16
_ERRORS = 1 << 16  # of its messages the last so many bytes
_LOOK_S = 0.2  # how often it is asked whether it is still wanted
_DRAIN_S = 1.0  # for what still is in the pipes of a program that ended
GRACE_S = 2.0  # for a program that was asked to end


class Sink(Protocol):
    """What takes the standard output of a program."""

    def write(self, data: bytes, /) -> Any:
        """Take some of it."""


@dataclass(slots=True)
class Ending:
    """How a program ended. `status` is None where it was ended by us, and `why` says why."""

    status: int | None = None
    why: str = ""
    errors: bytes = b""  # the end of its standard error


@dataclass(slots=True)
class _Run:
    """A program under way."""

    process: subprocess.Popen[bytes]
    out: Sink
    limit: float
    stdin: memoryview
    taken: int = 0
    errors: bytes = b""
    open: bool = True  # its standard output

    def watch(self, selector: selectors.BaseSelector) -> None:
        for stream, event in (
            (self.process.stdin, selectors.EVENT_WRITE),
            (self.process.stdout, selectors.EVENT_READ),
            (self.process.stderr, selectors.EVENT_READ),
        ):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, event)

    def step(self, selector: selectors.BaseSelector, seconds: float) -> None:
        """Move what can be moved."""
        for key, _ in selector.select(seconds):
            if key.fileobj is self.process.stdin:
                self._feed(selector, key.fileobj)
                continue
            data = os.read(key.fd, _BLOCK)
            if not data:
                selector.unregister(key.fileobj)
                self.open &= key.fileobj is not self.process.stdout
            elif key.fileobj is self.process.stdout:
                self.taken += len(data)
                if self.taken <= self.limit:
                    self.out.write(data)
            else:
                self.errors = (self.errors + data)[-_ERRORS:]

    def _feed(self, selector: selectors.BaseSelector, stream: IO[bytes]) -> None:
        try:
            self.stdin = self.stdin[os.write(stream.fileno(), self.stdin[:_BLOCK]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not want it; its messages say why
            self.stdin = memoryview(b"")
        if not self.stdin:
            selector.unregister(stream)
            stream.close()


def run(
    words: Sequence[str],
    out: Sink,
    *,
    seconds: float,
    limit: float = float("inf"),
    stop: Callable[[], str | None] = lambda: None,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    merged: bool = False,
    tied: bool = False,
    grace_s: float = GRACE_S,
    nice: int = 0,
) -> Ending:
    """Run a program and write its standard output to `out`: of `limit` bytes, within `seconds`.

    `stop` is asked all the time and ends it by saying why. It is ended with all that it started,
    after `grace_s` seconds to do so itself. merged: its standard error goes to `out`, too. tied: it
    ends with this process and its session. Raises OSError of `out` only.
    """
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            bufsize=0,
            env=environment,
            start_new_session=not tied,  # Ctrl-C is ours to pass on
            preexec_fn=die_with_parent if tied else None,  # noqa: PLW1509
        )
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        return Ending(why=f"{words[0]}: {why}")
    if nice:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, nice)
    under_way = _Run(process, out, limit, memoryview(stdin))
    try:
        with selectors.DefaultSelector() as selector:
            under_way.watch(selector)
            ending = _follow(under_way, selector, seconds, stop, 0.01 if tied else _LOOK_S)
    finally:
        _end(process, grace_s)
    ending.errors = under_way.errors
    return ending


def _follow(
    run: _Run,
    selector: selectors.BaseSelector,
    seconds: float,
    stop: Callable[[], str | None],
    look_s: float,
) -> Ending:
    ends = time.monotonic() + seconds
    while True:
        left = ends - time.monotonic()
        if left <= 0:
            return Ending(why=f"no end in {seconds:g} s")
        if why := stop():
            return Ending(why=why)
        if run.taken > run.limit:
            return Ending(why=f"more than {run.limit:.0f} bytes")
        if selector.get_map():
            run.step(selector, min(left, look_s))
        else:
            with suppress(subprocess.TimeoutExpired):
                run.process.wait(min(left, look_s))
        status = run.process.poll()
        if status is not None:
            run.step(selector, 0)
            # A process that outlives the program may hold its output open.
            until = time.monotonic() + _DRAIN_S
            while run.open and time.monotonic() < until:
                run.step(selector, 0.05)
            return Ending(status)


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a program and what it started; one that the kernel holds is not waited for."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL) if grace_s else (signal.SIGKILL,):
        with suppress(OSError):
            os.killpg(process.pid, number)
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s or 0.5)
            return


def die_with_parent() -> None:
    """Let this process end where its parent was killed, on Linux; also while C code runs."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  for children only

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
