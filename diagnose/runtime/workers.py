"""Processes that work for this one, and end with it however it ends.

`share` spreads calls over copies of this process, `Worker` and `Pool` do one call at a time in
processes apart from it. A worker reads hostile input: what it sends back is data, read by an
unpickler that makes values of plain classes and calls no function.
"""

from __future__ import annotations

import fcntl
import gc
import io
import multiprocessing
import os
import pickle
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from diagnose.errors import InputError
from diagnose.runtime.children import die_with_parent
from diagnose.runtime.command import one_thread, reuse_memory

T = TypeVar("T")
KILLED = "a worker process was killed, probably for lack of memory; try fewer workers"
JOBS = 1000  # of one worker, then another takes its place
_MOST = 1 << 32  # bytes of an answer
_TICK = 0.1  # seconds between two looks at whether a call is still wanted
_END_SECONDS = 5.0
_BLOCK = 1 << 20  # bytes that are read, or that Python asks for, at a time
_NUMBER = 4  # bytes of a ticket
_TICKETS = (4 << 10) // _NUMBER  # that a pipe holds even where its user has many (pipe(7))
_ROOM = 1 << 20  # bytes of results that wait for being taken: what any user may have (pipe(7))

# What an answer may be made of, besides plain values and data classes of this package.
_PLAIN = {
    "builtins": {"bytearray", "bytes", "complex", "frozenset", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "datetime": {"date", "datetime", "timedelta", "timezone"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath"},
    "diagnose.ingest.read": {"no_chunks"},
    "diagnose.job.parallel": {"_unpacked"},
}

_Kind = Literal["news", "result", "error"]


class WorkerDiedError(BrokenExecutor):
    """The process that did a call ended, killed or out of memory."""


class TooLongError(Exception):
    """A call took longer than it may; its process was ended."""


class Stopped(Exception):  # noqa: N818  no error: somebody wanted it
    """A call was ended because nobody wants its result."""


class _Answers(pickle.Unpickler):
    """Reads what a worker sends."""

    def find_class(self, module: str, name: str) -> Any:
        """A class of plain data. Raises UnpicklingError for everything else."""
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        if module == "builtins" or module.partition(".")[0] == "diagnose":
            found = super().find_class(module, name)
            plain = (tuple, Enum, Exception) if module != "builtins" else Exception
            if isinstance(found, type) and (issubclass(found, plain) or is_dataclass(found)):
                return found
        raise pickle.UnpicklingError(f"a worker sent {module}.{name}")


def loads(data: bytes) -> Any:
    """What a worker sent as `dumps` writes it. Raises UnpicklingError where it is no plain data."""
    return _Answers(io.BytesIO(data)).load()


def dumps(kind: _Kind, value: object) -> bytes:
    """An answer as it goes from a worker to its parent."""
    if isinstance(value, Exception) and type(value).__module__.partition(".")[0] != "diagnose":
        if type(value).__module__ != "builtins":
            value = RuntimeError(f"{type(value).__name__}: {value}")
        value = value.with_traceback(None)
    return pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)


def possible() -> bool:
    """Whether this process can be copied: a thread may hold a lock that nobody would release."""
    return sys.platform == "linux" and threading.active_count() == 1


def share(
    calls: Sequence[Callable[[], T]], copies: int, meanwhile: Callable[[], object]
) -> Iterator[tuple[int, T]]:
    """What each of these calls gives, by its number, as it comes.

    They are made by this process and so many `copies` of it, in their order: whoever is done takes
    the next, so that all end at about the same time. `meanwhile` is called here once the copies
    work. Raises what a call raises, and InputError where a copy was killed.
    """
    step = -(-len(calls) // _TICKETS) or 1
    tickets, desk = os.pipe()
    firsts = range(0, len(calls), step)
    os.write(desk, b"".join(number.to_bytes(_NUMBER, "little") for number in firsts))
    os.close(desk)
    taken = (n for first in _taken(tickets) for n in range(first, min(first + step, len(calls))))
    helpers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(copies):
            with suppress(OSError):  # no more processes are allowed: those that are there do it all
                helpers.update([_copy(calls, taken)])
        meanwhile()
        working = list(helpers)
        for number in taken:
            yield number, calls[number]()
            while working and (ready := wait(working, 0)):
                yield from _received(ready, working)
        while working:
            yield from _received(wait(working), working)
    finally:
        os.close(tickets)
        for results, helper in helpers.items():
            results.close()
            helper.kill()
            helper.join()


def _taken(tickets: int) -> Iterator[int]:
    while ticket := os.read(tickets, _NUMBER):
        yield int.from_bytes(ticket, "little")


def _copy(
    calls: Sequence[Callable[[], T]], numbers: Iterator[int]
) -> tuple[Connection, BaseProcess]:
    """Start a copy that makes the calls of the numbers that nobody else takes."""
    context = multiprocessing.get_context("fork")
    results, sink = context.Pipe(duplex=False)
    with suppress(OSError):  # so that a copy can go on before its result is taken
        fcntl.fcntl(sink.fileno(), fcntl.F_SETPIPE_SZ, _ROOM)
    try:
        helper = context.Process(target=_make, args=(calls, numbers, sink), daemon=True)
        with _deaf():
            helper.start()
    except OSError:
        results.close()
        raise
    finally:
        sink.close()
    return results, helper


def _make(calls: Sequence[Callable[[], T]], numbers: Iterator[int], sink: Connection) -> None:
    """What a copy runs."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()
    try:
        for number in numbers:
            sink.send_bytes(dumps("result", (number, calls[number]())))
    except Exception as error:
        sink.send_bytes(dumps("error", error))
    else:
        sink.send_bytes(dumps("result", None))
    os._exit(0)


def _received(ready: Sequence[Any], working: list[Connection]) -> Iterator[tuple[int, Any]]:
    """A result of each copy that has one; one that has no more is taken from `working`."""
    for results in ready:
        try:
            kind, value = loads(results.recv_bytes(_MOST))
        except (EOFError, OSError) as error:
            raise InputError(KILLED) from error
        if kind == "error":
            raise value
        if value is None:
            working.remove(results)
        else:
            yield value


class Worker:
    """A process that makes calls one by one, and is replaced when it must be. For one thread only.

    `preload` names modules that are imported once for all workers of this process, `prepare` is
    called first in each of them.
    """

    def __init__(
        self, preload: Sequence[str] = (), prepare: Callable[[], None] | None = None
    ) -> None:
        self._preload = list(preload)
        self._prepare = prepare
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._jobs = 0
        self.replaced = 0  # so often before its time

    def run(
        self,
        call: Callable[[], T],
        seconds: float = float("inf"),
        on_news: Callable[[Any], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> T:
        """What a call gives, which may take so many `seconds`; `on_news` gets what it tells.

        Raises what it raises; WorkerDiedError; TooLongError; Stopped as soon as `stop` says so.
        """
        try:
            connection = self.start()
            deadline = time.monotonic() + seconds
            connection.send_bytes(pickle.dumps(call))
            relief = Relief((self._process and self._process.pid) or 0)
            due = time.monotonic() + _TICK

            def look() -> None:
                nonlocal due
                now = time.monotonic()
                if now < due:
                    return
                due = now + _TICK
                relief.look()
                if stop():
                    raise Stopped
                if now > deadline:
                    raise TooLongError(f"exceeded the limit of {seconds:g} s")

            while True:
                kind, value = loads(_message(connection, look))
                if kind != "news":
                    break
                on_news(value)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            self.kill()
            raise WorkerDiedError(KILLED) from error
        except BaseException:
            self.kill()
            raise
        self._jobs += 1
        if self._jobs >= JOBS:
            self.close()
        if kind == "error":
            raise value
        result: T = value
        return result

    def start(self) -> Connection:
        """Start the process where there is none, so that the first call does not wait for it."""
        if self._process is not None and self._process.is_alive() and self._connection is not None:
            return self._connection
        if self._process is not None:
            self.kill()
            self.replaced += 1
        set_environment()
        context = multiprocessing.get_context("forkserver")
        if self._preload:
            context.set_forkserver_preload(self._preload)
        ours, theirs = context.Pipe()
        started = context.Process(target=_work, args=(theirs, self._prepare), daemon=True)
        resource_tracker.ensure_running()  # which forgets what is blocked
        with _deaf():
            forkserver.ensure_running()
            started.start()
        theirs.close()
        self._process, self._connection, self._jobs = started, ours, 0
        return ours

    def close(self) -> None:
        """End the process between two calls."""
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


def _message(connection: Connection, look: Callable[[], None]) -> bytes:
    """The next message of a worker; `look` is called all the time, and may raise.

    Also between two parts of a message: a worker may stop, or be stopped, while it sends one.
    Raises EOFError, OSError.
    """

    def take(size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            if connection.poll(_TICK):
                part = os.read(connection.fileno(), min(size - len(data), _BLOCK))
                if not part:
                    raise EOFError
                data += part
            look()
        return bytes(data)

    # As `Connection.send_bytes` writes it: a size of four bytes or, behind -1, of eight.
    (size,) = struct.unpack("!i", take(4))
    if size < 0:
        (size,) = struct.unpack("!Q", take(8))
    if size > _MOST:
        raise OSError("a worker sent too much")
    return take(size)


class Pool(Executor):
    """So many workers, each of which takes the next call; see `Worker` for what a future raises.

    A call whose worker dies takes no other with it.
    """

    def __init__(
        self, workers: int, seconds: float = float("inf"), preload: Sequence[str] = ()
    ) -> None:
        self._seconds = seconds
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=(Worker(preload),), daemon=True)
            for _ in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See Executor."""
        future: Future[T] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See Executor; without `wait` what is under way is ended, too."""
        if cancel_futures or not wait:
            self._stopped.set()
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, worker: Worker) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if self._stopped.is_set():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = worker.run(call, self._seconds, stop=self._stopped.is_set)
            except (Stopped, Exception) as error:
                future.set_exception(error)
            else:
                future.set_result(result)
        worker.close()


_parent: Connection | None = None  # of a worker


def tell(news: object) -> None:
    """Tell the parent of this worker something of the call under way."""
    if _parent is not None:
        _parent.send_bytes(dumps("news", news))


def _work(connection: Connection, prepare: Callable[[], None] | None) -> None:
    """What a worker runs."""
    global _parent  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Each worker keeps what they are copies of alive, which would never end with the parent.
    with suppress(AttributeError, OSError, TypeError):
        os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    end_with_parent()
    reuse_memory()
    gc.enable()
    freeze()
    if prepare is not None:
        prepare()
    _parent = connection
    while True:
        try:
            call = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            answer = dumps("result", call())
        except Exception as error:
            answer = dumps("error", error)
        del call
        connection.send_bytes(answer)


def freeze() -> None:
    """Let what is loaded stay: to look for garbage there would write to what copies share."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def set_environment() -> None:
    """Say what processes that begin later are to know."""
    one_thread()  # each worker is to use one core
    # Arrow is to reserve no memory ahead.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Where this process was killed, Python tidies up after it, with a warning nobody needs.
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")


@contextmanager
def _deaf() -> Iterator[None]:
    """What starts inside never sees Ctrl-C, which a terminal sends to it too: we end it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Let this process end where its parent was killed, and not wait forever for work."""
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


_EXTRA = 4 << 20  # bytes more for a process at its bound
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
            with suppress(OSError, ValueError):  # it ended; there is no more to give
                resource.prlimit(self._pid, resource.RLIMIT_DATA, (soft + _EXTRA, hard))


def _bound_reached(pid: int) -> tuple[int, int] | None:
    """The bounds of a process's data where it has no room left below the first; None else."""
    held = _held(pid)
    if held is None:
        return None
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
