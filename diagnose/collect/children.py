"""Runs functions in child processes that may take so long and no longer.

A read of a mount that does not answer, or of the memory of a process that is stuck, never returns
and cannot be given up from within. A child can be: if even SIGKILL does not end it, it is left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from diagnose.collect import proc
from diagnose.runtime.process import die_with_parent, run

_MAX_OUTPUT = 16 << 20


def found(program: str) -> str:
    """Where a program is: beside our own Python, in PATH or where administrators keep theirs.

    Raises Unavailable.
    """
    own = Path(sys.executable).parent
    path = os.pathsep.join([str(own), os.environ.get("PATH", ""), "/usr/sbin:/sbin:/usr/bin"])
    place = shutil.which(program, path=path)
    if place is None:
        raise Unavailable(f"there is no {program} here")
    return place


def output(
    words: Sequence[str], seconds: float, watch: Callable[[], str | None] = lambda: None
) -> tuple[str, str]:
    """What a program prints, and what it says on standard error.

    `watch` is asked all the time, and ends the program by returning why. The output is kept in
    memory: a full disk must not end a probe. Raises TimedOut, OSError where it fails.
    """
    name, out = Path(words[0]).name, _Head()
    environment = {**os.environ, "LC_ALL": "C", "RUST_BACKTRACE": "0"}
    ending = run(
        words, out, seconds=seconds, stop=watch, environment=environment, tied=True, grace_s=0
    )
    if ending.status is None:
        raise TimedOut(f"{name}: {ending.why}")
    printed, failed = (data.decode("utf-8", "replace") for data in (out.getvalue(), ending.errors))
    if ending.status and not printed:
        raise OSError(f"{name}: {failed.strip() or f'exit status {ending.status}'}")
    return printed, failed


class _Head(BytesIO):
    """Keeps the beginning of what is written."""

    def write(self, data: Any, /) -> int:
        """Keep it, where there is room."""
        return super().write(data[: max(0, _MAX_OUTPUT - self.tell())])


_MAX_ANSWER = 64 << 20
_END = b"\n"  # a child whose thread the kernel holds never closes its side


class Unavailable(Exception):  # noqa: N818  it is no error: the machine has no such thing
    """What is asked for does not exist here; the message says what."""


class TimedOut(Exception):  # noqa: N818
    """A child did not come to an end in its time."""


@dataclass(slots=True)
class Answer:
    """What a child came to: `value`, or `error` with its class's name."""

    name: str
    seconds: float
    value: Any = None
    error: str = ""
    kind: str = ""

    def result(self) -> Any:
        """The value. Raises what the child raised."""
        if not self.kind:
            return self.value
        raise {"Unavailable": Unavailable, "TimedOut": TimedOut}.get(self.kind, OSError)(self.error)


@dataclass(slots=True)
class _Child:
    name: str
    pid: int
    fd: int
    ends: float
    began: float
    data: bytearray = field(default_factory=bytearray)


def bounded(function: Callable[[], Any], seconds: float) -> Any:
    """What a function returns (as JSON can say it), from a child with so much time.

    Raises TimedOut, Unavailable, and OSError for all else that the function raises.
    """
    return next(each([("", function)], seconds)).result()


def each(
    tasks: Iterable[tuple[str, Callable[[], Any]]], seconds: float, at_once: int = 1
) -> Iterator[Answer]:
    """Every function in a child of its own, so many at a time; answers as they come."""
    coming = iter(tasks)
    running: list[_Child] = []
    try:
        while True:
            while len(running) < at_once and (task := next(coming, None)):
                running.append(_start(*task, seconds))
            if not running:
                return
            left = min(child.ends for child in running) - time.monotonic()
            ready = set(wait([child.fd for child in running], max(0.0, left)))
            for child in [*running]:
                answer = _look(child, child.fd in ready)
                if answer is not None:
                    running.remove(child)
                    yield answer
    finally:
        for child in running:
            _end(child)


def _start(name: str, function: Callable[[], Any], seconds: float) -> _Child:
    mine, its = os.pipe()
    sys.stdout.flush()
    with warnings.catch_warnings():
        # Threads of a test runner do not matter to a child that only reads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _work(function, its)
    os.close(its)
    os.set_blocking(mine, False)
    now = time.monotonic()
    return _Child(name, pid, mine, now + seconds, now)


def _work(function: Callable[[], Any], fd: int) -> None:
    """The child: its own session, so that it is ended with all that it started."""
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent()
        try:
            answer: dict[str, Any] = {"value": function()}
        except OSError as error:
            answer = {"kind": "OSError", "error": message(error)}
        except Exception as error:
            answer = {"kind": type(error).__name__, "error": str(error)[:500] or repr(error)[:500]}
        rest = memoryview(json.dumps(answer).encode() + _END)
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os._exit(0)


def message(error: OSError) -> str:
    """`no space left on device: /tmp/x`."""
    what = error.strerror.lower() if error.strerror else str(error)
    return f"{what}: {error.filename}" if error.filename else what


def _look(child: _Child, readable: bool) -> Answer | None:
    """The answer of a child, once it is complete; None while it works."""
    over = False
    while readable and len(child.data) <= _MAX_ANSWER:
        try:
            part = os.read(child.fd, 1 << 16)
        except BlockingIOError:
            break
        child.data += part
        over = not part or part.endswith(_END)
        if over:
            break
    now = time.monotonic()
    if not over and now < child.ends and len(child.data) <= _MAX_ANSWER:
        return None
    _end(child)
    answer = Answer(child.name, now - child.began)
    if not over:
        answer.kind, answer.error = "TimedOut", f"no answer in {child.ends - child.began:.0f} s"
        return answer
    try:
        found = json.loads(child.data)
        answer.value, answer.kind = found.get("value"), found.get("kind", "")
        answer.error = found.get("error", "")
    except ValueError:
        answer.kind, answer.error = "OSError", "the probe ended without an answer"
    return answer


def _end(child: _Child) -> None:
    """Kill a child and what it started; one that the kernel holds is not waited for."""
    os.close(child.fd)
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(child.pid, signal.SIGKILL)
    for waits in range(200):  # a second, on a busy machine
        with suppress(ChildProcessError):
            if os.waitpid(child.pid, os.WNOHANG) == (0, 0) and (waits < 20 or not _held(child.pid)):
                time.sleep(0.005)
                continue
        return


def _held(pid: int) -> bool:
    """Whether the kernel holds a process (state D), so that no signal reaches it."""
    with suppress(OSError):
        return proc.keyed(f"{proc.PROC}/{pid}/status").get("State", "").startswith("D")
    return False
