"""Runs one command and keeps what it answers: so long, so much, and no longer than wanted."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import IO

from diagnose.collect.reach.model import Call
from diagnose.collect.reach.tools import last_line

_BLOCK = 1 << 16
_STDERR = 1 << 16  # of its messages the last so many bytes
_LOOK_S = 0.2  # how often it is asked whether the user wants to stop
_GRACE_S = 2.0  # for a command that was asked to end
_DRAIN_S = 1.0  # for what still is in the pipes of a command that ended


@dataclass(slots=True)
class Ending:
    """How a command ended. `status` is None where it was ended by us, and `why` says why."""

    status: int | None = None
    why: str = ""
    message: str = ""  # the last line of its standard error


@dataclass(slots=True)
class _Run:
    """A command under way."""

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    limit: int
    stdin: memoryview
    taken: int = 0
    messages: bytes = b""
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
                self.messages = (self.messages + data)[-_STDERR:]

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


def pour(
    call: Call,
    out: IO[bytes],
    *,
    seconds: float,
    limit: int,
    stop: Event,
    environment: Mapping[str, str] | None = None,
) -> Ending:
    """Run a command and write its standard output to `out`. Raises OSError of `out` only."""
    try:
        process = subprocess.Popen(
            call.command,
            stdin=subprocess.PIPE if call.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            start_new_session=True,  # Ctrl-C is ours to pass on
        )
    except OSError as error:
        return Ending(why=f"{call.command[0]}: {(error.strerror or str(error)).lower()}")
    run = _Run(process, out, limit, memoryview(call.stdin))
    try:
        with selectors.DefaultSelector() as selector:
            run.watch(selector)
            ending = _follow(run, selector, time.monotonic() + seconds, seconds, stop)
    finally:
        _end(process)
    ending.message = last_line(run.messages)
    return ending


def _follow(
    run: _Run, selector: selectors.BaseSelector, ends: float, seconds: float, stop: Event
) -> Ending:
    while True:
        left = ends - time.monotonic()
        if left <= 0:
            return Ending(why=f"no end in {seconds:g} s")
        if stop.is_set():
            return Ending(why="interrupted")
        if run.taken > run.limit:
            return Ending(why=f"more than {run.limit} bytes")
        if selector.get_map():
            run.step(selector, min(left, _LOOK_S))
        else:
            with suppress(subprocess.TimeoutExpired):
                run.process.wait(min(left, _LOOK_S))
        status = run.process.poll()
        if status is not None:
            run.step(selector, 0)
            # A process that outlives the command may hold its output open.
            until = time.monotonic() + _DRAIN_S
            while run.open and time.monotonic() < until:
                run.step(selector, 0.05)
            return Ending(status)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and what it started, with time to tell the far end."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    if process.poll() is None:
        for number, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
            with suppress(OSError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                return
