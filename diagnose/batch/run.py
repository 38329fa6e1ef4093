"""Drives a scan: jobs to workers, results to the table, through whatever happens to a worker.

Only `concurrent.futures.Executor` is asked for, so a pool of this machine and a Dask cluster do the
same. A few jobs for each worker are out at a time; results are kept as they come. How it goes is
shown by a bar on a terminal, a line now and then elsewhere.
"""

from __future__ import annotations

import importlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from diagnose.batch.jobs import JobRef
from diagnose.batch.results import Results
from diagnose.batch.work import Options, Result, diagnose_one, error_row
from diagnose.catalog.load import load_catalog
from diagnose.errors import InputError
from diagnose.ingest.raw import reason
from diagnose.match.compile import compile_matcher
from diagnose.runtime.command import handling, width
from diagnose.runtime.workers import Pool, TooLongError
from diagnose.text.ranks import counted

AHEAD = 3  # jobs out at a time, for each worker
POLL_SECONDS = 5.0
MAX_KILLS = 2  # of its worker, then a job is given up
JOB_SECONDS = 600.0
LINE_SECONDS = 15.0
_VERDICTS = ("hung", "failed", "unknown", "healthy", "running")


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


class Tally:
    """What a scan tells of itself, counted; on its own it prints nothing."""

    def __init__(self) -> None:
        self.total = self.jobs = self.bytes = self.total_bytes = self.errors = self.unchanged = 0
        self.partly = 0  # diagnosed from what could be read
        self.verdicts: Counter[str] = Counter()
        self.began = time.monotonic()

    def start(self, todo: Collection[JobRef], unchanged: int) -> None:
        """The jobs that will be read, and how many need not."""
        self.total, self.unchanged = len(todo), unchanged
        self.total_bytes = sum(ref.size for ref in todo)
        self.began = time.monotonic()
        self.show()

    def done(self, result: Result) -> None:
        """One job has its row."""
        self.jobs += 1
        self.bytes += result.row.get("size") or 0
        verdict, wrong = result.row.get("verdict"), result.row.get("error") is not None
        self.errors += wrong and not verdict
        self.partly += wrong and bool(verdict)
        self.verdicts[verdict or ""] += 1
        self.show()

    def end(self, summary: Summary) -> None:
        """The scan is over, also by an error or an interrupt."""
        self.show(summary)

    def show(self, summary: Summary | None = None) -> None:
        """Show how far it is; with its `summary` a scan that is over."""

    @property
    def seconds(self) -> float:
        """Since the start."""
        return max(time.monotonic() - self.began, 1e-6)

    @property
    def left(self) -> float | None:
        """Seconds until the end, by the bytes read so far; None before anything is."""
        if not self.jobs:
            return None
        share = self.bytes / self.total_bytes if self.total_bytes else self.jobs / self.total
        return self.seconds * (1 - share) / share if share else None

    def text(self) -> str:
        """Rate, bytes, verdicts, errors and the time left, in words; each job is counted once."""
        parts = [f"{self.jobs / self.seconds:.1f} jobs/s", f"{self.bytes / 2**20:.1f} MiB"]
        parts += [f"{self.verdicts[v]} {v}" for v in _VERDICTS if self.verdicts[v]]
        parts.append(counted(self.errors, "error"))
        if self.partly:
            parts[-1] += f" ({counted(self.partly, 'other job')} not fully readable)"
        if self.left is not None and self.jobs < self.total:
            parts.append(f"ETA {_clock(self.left)}")
        return " · ".join(parts)


class Lines(Tally):
    """For a pipe or a log: a plain line every LINE_SECONDS, and one at the end."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream
        self.printed_at = time.monotonic()

    def show(self, summary: Summary | None = None) -> None:
        """See Tally."""
        jobs = counted(self.total, "job")
        if summary is not None:
            line = _last(self, summary)
        elif not self.jobs:
            before = f", {self.unchanged} unchanged" if self.unchanged else ""
            line = f"scan: {jobs}, {self.total_bytes / 2**20:.1f} MiB{before}"
        elif time.monotonic() - self.printed_at >= LINE_SECONDS:
            line = f"scan: {self.jobs}/{jobs} · {self.text()}"
        else:
            return
        self.printed_at = time.monotonic()
        print(line, file=self.stream, flush=True)


class Live(Tally):
    """For a terminal: a bar that is redrawn."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        text = TextColumn("{task.completed:.0f}/{task.total:.0f} jobs · {task.description}")
        self.console = console
        self.bar = Bar(
            BarColumn(bar_width=30), text, console=console, auto_refresh=False, transient=True
        )
        self.task = self.bar.add_task("", total=None)
        self.drawn = 0.0

    def show(self, summary: Summary | None = None) -> None:
        """See Tally."""
        if summary is not None:
            self.bar.stop()
            self.console.print(_last(self, summary), markup=False, highlight=False)
        elif time.monotonic() - self.drawn > 0.2:
            self.bar.start()
            self.drawn = time.monotonic()
            text = self.text()
            self.bar.update(self.task, total=self.total, completed=self.jobs, description=text)
            self.bar.refresh()


def progress(stream: TextIO) -> Tally:
    """What fits the stream: a bar on a terminal, lines elsewhere."""
    if not stream.isatty():
        return Lines(stream)
    return Live(Console(file=stream, width=width(), height=25))


def _last(tally: Tally, summary: Summary) -> str:
    before = f", {summary.unchanged} unchanged" if summary.unchanged else ""
    text = f"{summary.read} of {counted(tally.total, 'job')} in {_clock(tally.seconds)}{before}"
    text += f" · {tally.text()}"
    return f"interrupted: {text}; --resume continues" if summary.interrupted else f"done: {text}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def local(workers: int) -> MakeExecutor:
    """Pools of `workers` processes on this machine."""
    return lambda: Pool(workers, JOB_SECONDS, ["diagnose.batch.warm"])


@contextmanager
def dask(scheduler: str | None) -> Iterator[tuple[MakeExecutor, int]]:
    """The executor of a Dask cluster and its number of workers; None takes Dask's configuration.

    Raises InputError if `distributed` is not installed or the scheduler does not answer.
    """
    try:
        client_of: Any = importlib.import_module("distributed").Client
    except ImportError as error:
        raise InputError("--executor dask needs `pip install distributed`") from error
    try:
        client = client_of(scheduler, timeout="20s") if scheduler else client_of(timeout="20s")
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no Dask scheduler at {scheduler}: {error}") from error
    with client:
        threads = sum(client.nthreads().values())
        yield (lambda: client.get_executor(pure=False)), max(1, threads)


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


@dataclass(slots=True)
class _Scan:
    """A scan under way."""

    results: Results
    options: Options
    catalog: str
    progress: Tally
    ahead: int
    todo: deque[JobRef] = field(default_factory=deque)
    out: dict[Future[Result], JobRef] = field(default_factory=dict)
    done: SimpleQueue[Future[Result]] = field(default_factory=SimpleQueue)
    kills: Counter[str] = field(default_factory=Counter)  # of workers, by the source of a job
    summary: Summary = field(default_factory=Summary)
    interrupts: _Interrupts = field(default_factory=_Interrupts)

    def take(self, result: Result) -> None:
        with self.interrupts.hold():
            self.results.add(result)
            self.summary.read += 1
            self.summary.several += result.several
            self.summary.errors += result.row.get("error") is not None
            self.progress.done(result)

    def collect(self, future: Future[Result]) -> None:
        """Take what became of a job; one whose worker died is tried again, or given up."""
        ref = self.out.pop(future)
        try:
            result = future.result()
        except CancelledError as error:
            raise InputError("the workers' scheduler is gone; --resume continues") from error
        except TooLongError as error:
            self._failed(ref, str(error))
        except BrokenExecutor:
            self.kills[ref.source] += 1
            if self.kills[ref.source] < MAX_KILLS:
                self.todo.append(ref)
            else:
                why = f"its worker died {MAX_KILLS} times (killed, out of memory, or stuck)"
                self._failed(ref, f"{why}: given up")
        except Exception as error:
            # Dask gives a job up by itself, as KilledWorker, after it has lost several workers.
            self._failed(ref, f"no result from its worker: {type(error).__name__}: {error}")
        else:
            self.take(result)

    def _failed(self, ref: JobRef, why: str) -> None:
        self.take(Result(error_row(ref, self.catalog, why)))


def scan(
    refs: Iterable[JobRef],
    results: Results,
    make_executor: MakeExecutor,
    *,
    workers: int,
    options: Options,
    progress: Tally,
) -> Summary:
    """Diagnose all jobs that the results do not hold yet; each is in them exactly once.

    `make_executor` is called where there is one. An interrupt (also SIGTERM or SIGHUP) ends the
    scan with all finished jobs kept and `interrupted` set. Raises InputError where the results
    cannot be written or workers do not start.
    """
    catalog = load_catalog([Path(path) for path in options.patterns])
    compile_matcher(catalog)  # once, for the cache that the workers read
    run = _Scan(results, options, catalog.revision, progress, workers * AHEAD)
    complete = started = False
    with handling(run.interrupts):
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
            if run.todo:
                _work(run, make_executor())
            complete = True
        except KeyboardInterrupt:
            run.summary.interrupted = True
        except OSError as error:
            raise InputError(f"scan stopped: {reason(error)}; --resume continues") from error
        finally:
            with run.interrupts.hold():
                results.describe(complete=complete)
                if started or run.summary.interrupted:
                    progress.end(run.summary)
    return run.summary


def _work(run: _Scan, executor: Executor) -> None:
    """Keep the workers busy until all is done."""
    clean = False
    try:
        try:  # so that no job is blamed where no worker comes up
            executor.submit(os.getpid).result()
        except BrokenExecutor as error:
            raise InputError(f"the workers do not start: {error.__cause__ or error}") from error
        while run.todo or run.out:
            while run.todo and len(run.out) < run.ahead:
                ref = run.todo.popleft()
                future = executor.submit(diagnose_one, ref, run.options)
                run.out[future] = ref
                future.add_done_callback(run.done.put)
            with suppress(Empty):
                run.collect(run.done.get(timeout=POLL_SECONDS))
        clean = True
    finally:
        for future in run.out:  # what is being worked on is not waited for
            future.cancel()
        executor.shutdown(wait=clean)
