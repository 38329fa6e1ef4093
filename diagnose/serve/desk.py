"""The queue: jobs in their order, the workers that take them, and who waits for what.

A thread for each worker takes jobs and writes their results. Large jobs never occupy all workers,
so that a paste does not wait for somebody's archive.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import zstandard

from diagnose.errors import InputError
from diagnose.runtime.workers import Stopped, TooLongError, Worker, WorkerDiedError
from diagnose.serve import spool
from diagnose.serve.model import (
    MASKED,
    TEXT_LIMIT,
    Done,
    Failed,
    Kind,
    Metrics,
    Progress,
    Settings,
    Task,
    do,
    prepare,
)
from diagnose.serve.store import Record, Store

LATER = ("page", "markdown")  # outputs that can be made of the masked input of a paste
_MAX_LATER = 64  # of these that wait
_MAX_INPUT = 64 << 20  # bytes of a masked input
_FIRST_GUESS = 1.0  # seconds of a job
_CHECK_SECONDS = 120.0
_STARTING = Progress("Starting")
NOT_KEPT = "the result could not be kept: is the disk of the server full?"


def _worker() -> Worker:
    return Worker(["diagnose.serve.warm"], prepare)


def check(patterns: tuple[str, ...], folder: Path) -> None:
    """Raise InputError if no worker comes up, or the patterns are not to be used.

    What workers are copies of is started by it: call it before there are threads.
    """
    worker = _worker()
    try:
        result = worker.run(
            partial(do, Task(str(folder), "check", (), patterns=patterns)), _CHECK_SECONDS
        )
    except (TooLongError, WorkerDiedError) as error:
        raise InputError(f"the workers do not start: {error.__cause__ or error}") from error
    finally:
        worker.kill()
    if isinstance(result, Failed) and result.error:
        raise InputError(result.error)


class FullError(Exception):
    """The queue is full; `seconds` is when it is worth another try."""

    def __init__(self, seconds: int) -> None:
        super().__init__("the queue is full")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Status:
    """Where a job that has no result yet stands. `position` is 1 for the next, 0 where it runs."""

    position: int
    now: Progress = _STARTING


@dataclass(eq=False, slots=True)
class _Job:
    """A job that has no result yet; or an output of a finished one that somebody wants to see."""

    record: Record
    folder: Path
    small: bool
    task: Task
    progress: Progress | None = None
    running: bool = False
    cancelled: bool = False
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def of_output(self) -> bool:
        """Whether it makes an output of a job that has its result."""
        return self.task.kind == "masked"


class Desk:
    """The queue of one server. Made, started and asked in the thread of its event loop."""

    def __init__(self, settings: Settings, store: Store, metrics: Metrics) -> None:
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._jobs: dict[str, _Job] = {}
        self._outputs: dict[tuple[str, str], _Job] = {}  # by the job's name and theirs
        self._large = 0  # that run
        self._most_large = max(1, settings.workers - 1)
        self._closing = self._hurry = False
        self._usual = _FIRST_GUESS
        self._news = asyncio.Event()
        self._workers = [_worker() for _ in range(settings.workers)]
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name="diagnose-desk", daemon=True)
            for worker in self._workers
        ]

    # --- for the event loop ---------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers, and take up what an earlier server did not finish."""
        kept = set()
        for record in self._store.requeue():
            folder = self._folder(record.id)
            if folder.is_dir():
                kept.add(record.id)
                self.put(record)
            else:
                self._store.fail(record.id, "its input was lost when the server ended")
        for folder in self._spool.iterdir():
            if folder.name not in kept:
                spool.remove(folder)
        for thread in self._threads:
            thread.start()

    async def stop(self, seconds: float) -> None:
        """Let running jobs end within `seconds`; the others are taken up by the next server."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        until = time.monotonic() + seconds
        for thread in self._threads:
            await asyncio.to_thread(thread.join, max(0.0, until - time.monotonic()))
        self._hurry = True
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        for job in self._outputs.values():
            job.finished.set()

    @property
    def closing(self) -> bool:
        """Whether the server ends."""
        return self._closing

    def check(self) -> None:
        """Raise FullError where another job would be refused."""
        if len(self._waiting) >= self._settings.queue or self._closing:
            ahead = len(self._waiting) + len(self._workers)
            raise FullError(max(1, min(60, round(ahead * self._usual / len(self._workers) / 2))))

    def put(self, record: Record) -> None:
        """Take in a job that the store has accepted."""
        folder = self._folder(record.id)
        task = self._task(folder, record.kind, record, record.wanted.split())
        small = record.kind != "urls" and record.bytes <= TEXT_LIMIT
        job = _Job(record, folder, small, task)
        with self._lock:
            self._jobs[record.id] = job
            self._waiting.append(job)
            self._lock.notify()
        self._tell()

    def status(self, id_: str) -> Status | None:
        """Where a job stands; None if it has a result, or is not there."""
        with self._lock:
            job = self._jobs.get(id_)
            if job is None:
                return None
            if job.running:
                return Status(0, job.progress or _STARTING)
            return Status(self._waiting.index(job) + 1 if job in self._waiting else 1)

    async def result(self, id_: str, seconds: float) -> None:
        """Wait until a job has its result, `seconds` at most."""
        job = self._jobs.get(id_)
        if job is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(job.finished.wait(), seconds)

    async def news(self, seconds: float) -> None:
        """Wait until anything changed, `seconds` at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    def delete(self, id_: str) -> bool:
        """Cancel a job or delete its result, with all that is kept of it."""
        gone = self._store.delete(id_)
        with self._lock:
            job = self._jobs.get(id_)
            if job is not None:
                job.cancelled = True
                if not job.running:
                    with suppress(ValueError):
                        self._waiting.remove(job)
                    self._forget(job)
                    spool.remove(job.folder)
        spool.remove(self._settings.data / "originals" / id_)
        return gone

    async def output(self, record: Record, name: str) -> bytes | None:
        """An output of a finished job, made now if it can be; compressed. Raises FullError."""
        data = self._store.output(record.id, name)
        if data is not None or record.state != "done" or name not in LATER:
            return data
        job = self._outputs.get((record.id, name))
        if job is None:
            kept = self._store.output(record.id, "input")
            if kept is None or record.kind != "text":
                return None
            if len(self._outputs) >= _MAX_LATER or self._closing:
                raise FullError(2)
            folder = spool.folder_of(self._spool, f"masked-{record.id}-{name}")
            (folder / MASKED).write_bytes(
                zstandard.ZstdDecompressor().decompress(kept, max_output_size=_MAX_INPUT)
            )
            job = _Job(record, folder, True, self._task(folder, "masked", record, (name,)))
            with self._lock:
                self._outputs[record.id, name] = job
                self._lock.notify()
        await job.finished.wait()
        return self._store.output(record.id, name)

    def counts(self) -> tuple[int, int]:
        """How many jobs wait, and how many run."""
        with self._lock:
            return len(self._waiting), len(self._jobs) - len(self._waiting)

    def replaced(self) -> int:
        """How many workers had to be replaced before their time."""
        return sum(worker.replaced for worker in self._workers)

    # --- in any thread --------------------------------------------------------------------------

    @property
    def _spool(self) -> Path:
        return self._settings.data / "spool"

    def _folder(self, id_: str) -> Path:
        return self._spool / id_

    def _task(self, folder: Path, kind: Kind, record: Record, wanted: Sequence[str]) -> Task:
        of = self._settings
        return Task(
            str(folder), kind, tuple(wanted), record.title, of.redact, of.memory, of.upload,
            of.patterns, tuple(record.urls.split()), of.urls,
        )  # fmt: skip

    def _tell(self, finished: asyncio.Event | None = None) -> None:
        """Wake who waits for news; from any thread."""

        def wake() -> None:
            if finished is not None:
                finished.set()
            self._news.set()
            self._news = asyncio.Event()

        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(wake)

    def _forget(self, job: _Job) -> None:
        with self._lock:
            if job.of_output:
                self._outputs.pop((job.record.id, job.task.wanted[0]), None)
            else:
                self._jobs.pop(job.record.id, None)
        self._tell(job.finished)

    # --- in the thread of a worker --------------------------------------------------------------

    def _work(self, worker: Worker) -> None:
        with suppress(OSError):  # the first job says so, too
            worker.start()
        while (job := self._next()) is not None:
            if job.of_output:
                self._make_output(job, worker)
                self._forget(job)
                continue
            began = time.monotonic()
            try:
                self._do(job, worker)
            except Exception as error:  # of the store: the disk is full, for one
                self._metrics.count("jobs_total", state="failed")
                self._metrics.problem(error)
                with suppress(Exception):
                    self._store.fail(job.record.id, NOT_KEPT)
            with self._lock:
                self._large -= not job.small
                self._lock.notify()
            seconds = time.monotonic() - began
            self._usual = 0.9 * self._usual + 0.1 * seconds
            self._metrics.count("job_seconds_sum", seconds)
            self._forget(job)
        worker.close()

    def _next(self) -> _Job | None:
        """The next thing to do, when there is one; None when the server ends."""
        with self._lock:
            while not self._closing:
                for job in (*self._outputs.values(), *self._waiting):
                    if job.running or not (job.small or self._large < self._most_large):
                        continue
                    if not job.of_output:
                        self._waiting.remove(job)
                    self._large += not job.small
                    job.running = True
                    return job
                self._lock.wait()
            return None

    def _do(self, job: _Job, worker: Worker) -> None:
        id_ = job.record.id
        if not self._store.begin(id_):
            spool.remove(job.folder)
            return

        def on_progress(progress: Progress) -> None:
            job.progress = progress
            self._tell()

        self._tell()
        try:
            result = self._run(worker, job.task, on_progress, lambda: job.cancelled or self._hurry)
        except Stopped:
            if job.cancelled:
                self._metrics.count("jobs_total", state="cancelled")
                spool.remove(job.folder)
            else:
                self._store.release(id_)
            return
        self._keep(job, result)

    def _run(
        self,
        worker: Worker,
        task: Task,
        on_progress: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Done | Failed:
        seconds = self._settings.seconds
        try:
            return worker.run(partial(do, task), seconds, on_progress, stop)
        except TooLongError:
            return Failed(f"took longer than the {seconds:g} s that a job may take")
        except WorkerDiedError:
            return Failed("its worker process died, probably for lack of memory")

    def _keep(self, job: _Job, result: Done | Failed) -> None:
        id_ = job.record.id
        if isinstance(result, Failed):
            self._metrics.count("jobs_total", state="failed")
            self._store.fail(id_, result.error)
        elif self._store.finish(id_, result.summary, result.outputs):
            self._metrics.count("jobs_total", state="done")
        elif not job.cancelled:
            self._metrics.count("jobs_total", state="cancelled")
        if self._settings.originals and not job.cancelled:
            target = self._settings.data / "originals"
            target.mkdir(mode=0o700, exist_ok=True)
            with suppress(OSError):
                job.folder.rename(target / id_)
        spool.remove(job.folder)

    def _make_output(self, job: _Job, worker: Worker) -> None:
        try:
            result = self._run(worker, job.task, lambda _: None, lambda: self._hurry)
            if isinstance(result, Done):
                self._store.add_outputs(job.record.id, result.outputs)
        except (Stopped, Exception) as error:
            self._metrics.problem(error)
        finally:
            spool.remove(job.folder)
