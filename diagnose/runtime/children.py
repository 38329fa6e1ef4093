"""Child processes within bounds: a program and what it answers, functions and what they return.

So long, so much, and no longer than wanted. A read of a mount that does not answer, or of the
memory of a process that is stuck, never returns and cannot be given up from within; a child can be:
if even SIGKILL does not end it, it is left. The standard library alone: a compute node has nothing
else.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any, Protocol

_PR_SET_PDEATHSIG = 1  # prctl(2)
_BLOCK = 1 << 16
_ERRORS = 1 << 16  # of its messages the last so many bytes
_LOOK_S = 0.2  # how often it is asked whether it is still wanted
_DRAIN_S = 1.0  # for what still is in the pipes of a program that ended
GRACE_S = 2.0  # for a program that was asked to end
_MAX_OUTPUT = 16 << 20  # bytes kept of a text
_MAX_ANSWER = 64 << 20  # of a function
_END = b"\n"  # a child whose thread the kernel holds never closes its side


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
        _end_program(process, grace_s)
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


def _end_program(process: subprocess.Popen[bytes], grace_s: float) -> None:
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
            _end_child(child)


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
    _end_child(child)
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


def _end_child(child: _Child) -> None:
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
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].startswith(b"D")
    return False
