"""Worker processes: copies of one process that has the engine and the catalog loaded.

A worker does one job at a time, and another takes its place after JOBS of them, when it was ended
over a bound, or when it died. A copy starts in a few hundredths of a second.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

from diagnose.errors import InputError
from diagnose.serve.task import Done, Failed, Progress, Task, encoded, receive
from diagnose.workers import Relief, end_with_parent, set_environment

JOBS = 200  # of one worker
_TICK = 0.1  # seconds between two looks at whether a job was cancelled
_END_SECONDS = 5.0
_CHECK_SECONDS = 120.0


class Stopped(Exception):  # noqa: N818  no error: somebody wanted it
    """A job was ended because it was cancelled."""


def context() -> ForkServerContext:
    """Where workers come from. Call it before there are threads."""
    set_environment()
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["diagnose.serve.warm"])
    return made


class Worker:
    """A process that does tasks, and is replaced when it must be. For one thread only."""

    def __init__(self, made: ForkServerContext) -> None:
        self._context = made
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._jobs = 0
        self.replaced = 0

    def run(
        self,
        task: Task,
        seconds: float,
        on_progress: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Done | Failed:
        """Do a task, within `seconds`. Raises Stopped as soon as `stop` says so."""
        try:
            connection = self._ready()
            deadline = time.monotonic() + seconds
            connection.send_bytes(encoded(task))
            relief = Relief(self._pid())
            while True:
                if connection.poll(_TICK):
                    message = receive(connection)
                    if isinstance(message, Progress):
                        on_progress(message)
                        continue
                    self._jobs += 1
                    if self._jobs >= JOBS:
                        self.close()
                    return message
                relief.look()
                if stop():
                    self.kill()
                    raise Stopped
                if time.monotonic() > deadline:
                    self.kill()
                    return Failed(f"took longer than the {seconds:g} s that a job may take")
        except (EOFError, OSError, ValueError):
            self.kill()
            return Failed("its worker process died, probably for lack of memory")

    def start(self) -> None:
        """Start the process, so that the first job does not wait for it."""
        self._ready()

    def close(self) -> None:
        """End the process between two jobs."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.join(_END_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the process now, whatever it does."""
        if self._process is not None:
            with suppress(OSError, ValueError):
                self._process.kill()
            self._process.join(_END_SECONDS)
            self._process = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _pid(self) -> int:
        return (self._process and self._process.pid) or 0

    def _ready(self) -> Connection:
        if self._process is not None and self._process.is_alive() and self._connection is not None:
            return self._connection
        if self._process is not None:
            self.kill()
            self.replaced += 1
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        self._process, self._connection, self._jobs = process, ours, 0
        return ours


def check(made: ForkServerContext, patterns: tuple[str, ...], folder: Path) -> None:
    """Raise InputError if no worker comes up, or the patterns are not to be used."""
    worker = Worker(made)
    task = Task(str(folder), "check", (), patterns=patterns)
    try:
        worker.start()
        result = worker.run(task, _CHECK_SECONDS, lambda _: None, lambda: False)
    except (EOFError, OSError) as error:
        raise InputError(f"the workers do not start: {error}") from error
    finally:
        worker.kill()
    if isinstance(result, Failed) and result.error:
        raise InputError(result.error)


def _work(connection: Connection) -> None:
    """What a worker runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the server decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    gc.enable()
    from diagnose.serve.work import serve  # noqa: PLC0415  there already, as `warm` imported it

    serve(connection)
