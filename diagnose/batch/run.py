"""Drives a scan: jobs to workers, results to the table, through whatever happens to a worker.

Only `concurrent.futures.Executor` is asked for, so a pool of this machine and a Dask cluster do the
same. A few jobs for each worker are out at a time; results are committed as they come.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from diagnose.batch.jobs import JobRef
from diagnose.batch.progress import Progress
from diagnose.batch.results import Results
from diagnose.batch.row import error_row
from diagnose.batch.work import Options, Result, diagnose_one
from diagnose.catalog.load import load_catalog
from diagnose.errors import InputError
from diagnose.ingest.raw import reason
from diagnose.match.compile import compile_matcher

AHEAD = 3  # jobs out at a time, for each worker
PART_ROWS = 1000  # a table of a million jobs is read in seconds, not minutes
PART_SECONDS = 10.0
POLL_SECONDS = 5.0
MAX_KILLS = 2  # of its worker, then a job is given up

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

MakeExecutor = Callable[[], Executor]


@dataclass(slots=True)
class Summary:
    """What a scan did: jobs read now, jobs that were there before, and how it ended.

    Of `close` jobs of these it was not clear whether they are one each; their notes say why.
    `several` of them are archives that may hold several jobs.
    """

    read: int = 0
    unchanged: int = 0
    errors: int = 0
    close: int = 0
    several: int = 0
    interrupted: bool = False


class _Interrupts:
    """Makes what asks to end a KeyboardInterrupt, put off while results are being written."""

    def __init__(self) -> None:
        self.held = self.pending = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        if self.held:
            self.pending = True
        else:
            raise KeyboardInterrupt

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Inside nothing is interrupted."""
        self.held = True
        try:
            yield
        finally:
            self.held = False
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals, where this thread may, but not what is ignored, as by nohup."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(slots=True)
class _Scan:
    """A scan under way."""

    results: Results
    options: Options
    catalog: str
    progress: Progress
    ahead: int
    todo: deque[JobRef] = field(default_factory=deque)
    out: dict[Future[Result], JobRef] = field(default_factory=dict)
    done: SimpleQueue[Future[Result]] = field(default_factory=SimpleQueue)
    suspects: deque[JobRef] = field(default_factory=deque)  # were out when a worker died
    kills: dict[str, int] = field(default_factory=dict)
    ready: list[Result] = field(default_factory=list)
    committed: float = field(default_factory=time.monotonic)
    summary: Summary = field(default_factory=Summary)
    interrupts: _Interrupts = field(default_factory=_Interrupts)

    def left(self) -> bool:
        """Whether jobs wait for a result."""
        return bool(self.todo or self.suspects or self.out)

    def take(self, result: Result) -> None:
        self.ready.append(result)
        self.summary.read += 1
        self.summary.several += result.several
        self.summary.errors += result.row.get("error") is not None
        self.progress.done(result)

    def commit(self, *, now: bool = False) -> None:
        late = time.monotonic() - self.committed > PART_SECONDS
        if not self.ready or not (now or late or len(self.ready) >= PART_ROWS):
            return
        with self.interrupts.hold():
            # First, so that nothing is written twice where writing fails.
            ready, self.ready = self.ready, []
            self.committed = time.monotonic()
            self.results.commit(ready)

    def lost(self, ref: JobRef) -> None:
        """A job's worker died: try it again alone, or give it up."""
        kills = self.kills[ref.source] = self.kills.get(ref.source, 0) + 1
        if kills >= MAX_KILLS:
            why = f"its worker died {kills} times (killed, out of memory, or stuck): given up"
            self.take(Result(error_row(ref, self.catalog, why)))
        else:
            self.suspects.append(ref)

    def broken(self) -> None:
        """The executor broke: keep what is done, try the rest again."""
        for future, ref in self.out.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                self.take(future.result())
            else:
                self.lost(ref)
        self.out.clear()


def scan(
    refs: Iterable[JobRef],
    results: Results,
    make_executor: MakeExecutor,
    *,
    workers: int,
    options: Options,
    progress: Progress,
) -> Summary:
    """Diagnose all jobs that the results do not hold yet; each is in them exactly once.

    `make_executor` is called at the start and again when its executor broke. An interrupt (also
    SIGTERM or SIGHUP) ends the scan with all finished jobs committed and `interrupted` set. Raises
    InputError where the results cannot be written or workers do not start.
    """
    catalog = load_catalog([Path(path) for path in options.patterns])
    compile_matcher(catalog)  # once, for the cache that the workers read
    run = _Scan(results, options, catalog.revision, progress, workers * AHEAD)
    complete = started = False
    with run.interrupts.installed():
        try:
            for ref in refs:
                run.summary.close += bool(ref.note) and ref.kind != "missing"
                if results.done(ref, run.catalog):
                    run.summary.unchanged += 1
                else:
                    run.todo.append(ref)
            progress.start(run.todo, run.summary.unchanged)
            started = True
            with run.interrupts.hold():
                results.describe(complete=False, catalog=run.catalog)
                results.forget({ref.source for ref in run.todo})
            while run.left():
                _with_executor(run, make_executor)
            run.commit(now=True)
            complete = True
        except KeyboardInterrupt:
            run.summary.interrupted = True
            run.commit(now=True)
        except OSError as error:
            raise InputError(f"scan stopped: {reason(error)}; --resume continues") from error
        finally:
            with run.interrupts.hold():
                results.describe(complete=complete)
                if started or run.summary.interrupted:
                    progress.end(run.summary)
    return run.summary


def _with_executor(run: _Scan, make_executor: MakeExecutor) -> None:
    """Go on until all is done, or until the executor breaks."""
    executor = make_executor()
    clean = False
    try:
        run.done = SimpleQueue()  # none of an executor that broke
        _check(executor)
        stuck = 2 * run.options.seconds + 60
        moved = time.monotonic()
        while run.left():
            _hand_out(run, executor)
            with suppress(Empty):
                _collect(run, run.done.get(timeout=POLL_SECONDS))
                moved = time.monotonic()
            if time.monotonic() - moved > stuck:
                # A worker keeps to its time by itself, but not inside of C code that loops.
                _end_workers(executor)
                moved = time.monotonic()
            run.commit()
        clean = True
    except BrokenExecutor:
        run.broken()
    finally:
        # What is being worked on is not waited for. Futures of a pool that was ended must not be
        # cancelled: it would fail on them.
        if not clean and not _end_workers(executor):
            for future in run.out:
                future.cancel()
        executor.shutdown(wait=clean)


def _check(executor: Executor) -> None:
    """Raise InputError if no worker comes up, so that no job is blamed for it."""
    try:
        executor.submit(os.getpid).result()
    except BrokenExecutor as error:
        raise InputError(f"the workers do not start: {error}") from error


def _hand_out(run: _Scan, executor: Executor) -> None:
    """Keep the workers busy; a job that may have killed its worker runs with no other beside."""
    if run.suspects:
        if not run.out:
            _submit(run, run.suspects.popleft(), executor)
        return
    while run.todo and len(run.out) < run.ahead:
        _submit(run, run.todo.popleft(), executor)


def _submit(run: _Scan, ref: JobRef, executor: Executor) -> None:
    try:
        future = executor.submit(diagnose_one, ref, run.options)
    except BrokenExecutor:
        run.todo.appendleft(ref)  # it was not out yet
        raise
    run.out[future] = ref
    future.add_done_callback(run.done.put)


def _collect(run: _Scan, future: Future[Result]) -> None:
    """Take a job's result. Raises BrokenExecutor with the job still out."""
    ref = run.out[future]
    try:
        result = future.result()
    except BrokenExecutor:
        raise
    except CancelledError as error:
        raise InputError("the workers' scheduler is gone; --resume continues") from error
    except Exception as error:
        # Dask gives a job up by itself, as KilledWorker, after it has lost several workers.
        why = f"no result from its worker: {type(error).__name__}: {error}"
        result = Result(error_row(ref, run.catalog, why))
    del run.out[future]
    run.take(result)


def _end_workers(executor: Executor) -> bool:
    """End the processes of a local pool, which then breaks; others are left alone."""
    processes: dict[int, Any] = getattr(executor, "_processes", None) or {}
    for process in list(processes.values()):
        process.kill()
    return bool(processes)
