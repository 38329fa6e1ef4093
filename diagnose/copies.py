"""Work shared with copies of this process: they begin at once, with all that is loaded here.

A copy takes the next piece of work when it is done with the last one, and so does this process, so
all of them end at about the same time. Only results go from one process to another.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from diagnose.errors import InputError
from diagnose.process import die_with_parent

KILLED = "a worker process was killed, probably for lack of memory; try fewer workers"

T = TypeVar("T")
_NUMBER = 4  # bytes of a ticket
_TICKETS = (4 << 10) // _NUMBER  # that a pipe holds even where its user has many (pipe(7))
_LENGTH = 8  # bytes in front of a result
_ROOM = 1 << 20  # bytes of results that wait for being taken: what any user may have (pipe(7))


def possible() -> bool:
    """Whether this process can be copied: a thread may hold a lock that nobody would release."""
    return sys.platform == "linux" and threading.active_count() == 1


def share(
    calls: Sequence[Callable[[], T]], copies: int, meanwhile: Callable[[], object]
) -> Iterator[tuple[int, T]]:
    """What each of these calls gives, by its number, as it comes.

    They are made by this process and so many `copies` of it, in their order; `meanwhile` is called
    here once the copies work. Raises what a call raises, and InputError where a copy was killed.
    """
    count = len(calls)
    step = -(-count // _TICKETS) or 1
    tickets, desk = os.pipe()
    os.write(desk, b"".join(n.to_bytes(_NUMBER, "little") for n in range(0, count, step)))
    os.close(desk)
    taken = (n for first in _tickets(tickets) for n in range(first, min(first + step, count)))
    helpers: list[_Copy] = []
    try:
        for _ in range(copies):
            with suppress(OSError):  # no more processes are allowed: those that are there do it all
                helpers.append(_copy(calls, taken))
        meanwhile()
        for number in taken:
            yield number, calls[number]()
            for helper in helpers:
                while select.select([helper.results], [], [], 0)[0] and not helper.ended:
                    yield from helper.next()
        for helper in helpers:
            while not helper.ended:
                yield from helper.next()
    finally:
        os.close(tickets)
        for helper in helpers:
            helper.end()


def _tickets(tickets: int) -> Iterator[int]:
    while ticket := os.read(tickets, _NUMBER):
        yield int.from_bytes(ticket, "little")


@dataclass(slots=True)
class _Copy:
    """A copy of this process; `results` is where its results come from."""

    pid: int
    results: int
    ended: bool = False

    def next(self) -> Iterator[tuple[int, Any]]:
        """Wait for the next result; none where it was the last one."""
        length = int.from_bytes(self._read(_LENGTH), "little")
        number, result, error = pickle.loads(self._read(length))
        if error is not None:
            raise error
        self.ended = number is None
        if not self.ended:
            yield number, result

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            parts.append(os.read(self.results, length))
            if not parts[-1]:
                raise InputError(KILLED)
            length -= len(parts[-1])
        return b"".join(parts)

    def end(self) -> None:
        """End it, whatever it does."""
        os.close(self.results)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _copy(calls: Sequence[Callable[[], T]], numbers: Iterator[int]) -> _Copy:
    """Start a copy that makes the calls of the numbers that nobody else takes."""
    results, sink = os.pipe()
    with suppress(OSError):  # so that a copy can go on before its result is taken
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, _ROOM)
    # Never sees Ctrl-C, which a terminal sends to it too: this process ends it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pid = os.fork()
        if pid == 0:
            _work(calls, numbers, sink)
    except OSError:
        os.close(results)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(sink)
    return _Copy(pid, results)


def _work(calls: Sequence[Callable[[], T]], numbers: Iterator[int], sink: int) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent()
        try:
            for number in numbers:
                _send(sink, (number, calls[number](), None))
            _send(sink, (None, None, None))
        except Exception as error:
            _send(sink, (None, None, error))
    finally:
        os._exit(0)


def _send(sink: int, result: object) -> None:
    data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    rest = memoryview(len(data).to_bytes(_LENGTH, "little") + data)
    while rest:
        rest = rest[os.write(sink, rest) :]
