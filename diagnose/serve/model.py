"""What the parts of a server share: its settings and bounds, refusals, tasks, counters.

What goes to a worker and what comes back are plain values.
"""

from __future__ import annotations

import resource
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diagnose.runtime.workers import tell
from diagnose.text.metrics import Metric, exposition

MIB = 1 << 20

TEXT_LIMIT = 4 * MIB  # bytes of a paste; a longer text is read as a file
FIELD_LIMIT = 4096  # bytes of a small field of a form
TITLE_LIMIT = 120  # characters
MAX_FILES = 5000  # of one upload
MAX_URLS = 20
MAX_UPLOADS = 64  # at a time
MAX_UPLOADS_OF_ONE = 32  # of one address, which may be a proxy
UPLOAD_SURE_SECONDS = 2.0  # from its headers on; then a slow one gives way to a newcomer
UPLOAD_SLOW_RATE = 64 << 10  # bytes per second
MAX_STREAMS = 256  # of progress, at a time
MAX_CONNECTIONS = 512
HEADER_BYTES = 32 << 10  # of a request
HEADER_SECONDS = 15.0  # from the first byte of a connection, or of a further request, to its body
BODY_IDLE_SECONDS = 30.0  # between two pieces of a body
BODY_GRACE_SECONDS = 60.0  # after which a body must have come at BODY_RATE on average
BODY_RATE = 1 << 10  # bytes per second
REPLY_IDLE_SECONDS = 60.0  # that a client may leave an answer unread


PASTE = "paste.txt"  # the file of a paste in its folder
_SPOOL = 4 << 30  # bytes of any file that a job writes, such as the members of a packed tar
MASKED = "input.txt"  # the masked input of a result, put there again for a page of it

# How an output is served: its name, its media type.
TYPES = {
    "page": "text/html",
    "json": "application/json",
    "markdown": "text/markdown",
    "input": "text/plain",
}
Kind = Literal["text", "files", "urls", "masked", "check"]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Labels = tuple[tuple[str, str], ...]
_HELP: Mapping[str, tuple[Literal["counter", "gauge"], str]] = {
    "requests_total": ("counter", "Requests answered, by status class."),
    "jobs_total": ("counter", "Jobs ended, by state."),
    "job_seconds_sum": ("counter", "Seconds that jobs took in a worker, together."),
    "refused_total": ("counter", "Requests refused, by reason."),
    "upload_bytes_total": ("counter", "Bytes received of uploads."),
    "queue_waiting": ("gauge", "Jobs that wait."),
    "queue_running": ("gauge", "Jobs that run."),
    "workers_replaced_total": ("counter", "Workers that died or were ended over a bound."),
    "results": ("gauge", "Diagnoses kept."),
    "results_bytes": ("gauge", "Bytes that their outputs take."),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How one server works.

    `queue`: jobs that may wait; `seconds` and `memory` (bytes): what one job may take; `upload`:
    bytes of one upload. Results older than `keep_days`, and the oldest beyond `keep_bytes`, are
    deleted (0: never). `redact`: secrets and people are masked before anything is kept;
    `originals`: what was uploaded is kept beside the result. `token` (None: none) must come with
    every request. `hosts` are names that requests may call the server by; `urls` are prefixes of
    URLs that it may fetch.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 8321
    workers: int = 2
    queue: int = 100
    seconds: float = 300.0
    memory: int = 1 << 30
    upload: int = 1 << 30
    keep_days: float = 30.0
    keep_bytes: int = 2 << 30
    redact: bool = True
    originals: bool = False
    token: str | None = None
    hosts: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class Refused(Exception):  # noqa: N818  a decision
    """A request is not done: the status, a word for programs and a line for people."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


def busy(seconds: int) -> Refused:
    """The queue is full."""
    return Refused(
        429,
        "queue_full",
        f"The queue is full. Try again in {seconds} s.",
        {"Retry-After": str(seconds)},
    )


@dataclass(frozen=True, slots=True)
class Task:
    """One job for a worker: what lies in `folder`, and which outputs are `wanted`.

    `text`: the paste in PASTE; `files`: all that is there; `urls`: what `urls` give, fetched by the
    worker within `allowed` prefixes and `upload` bytes; `masked`: the masked input in MASKED;
    `check`: nothing but whether the patterns load, which is answered with an empty error.
    """

    folder: str
    kind: Kind
    wanted: tuple[str, ...]
    title: str = ""
    redact: bool = True
    memory: int = 0
    upload: int = 1 << 30
    patterns: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """What a list shows of a diagnosis, and `words`: what a search looks in. All of it masked."""

    verdict: str
    cause: str
    confidence: str
    headline: str
    summary: str
    who: str
    files: int
    words: str


@dataclass(frozen=True, slots=True)
class Done:
    """A finished job; `outputs` are compressed with zstd."""

    summary: Summary
    outputs: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Failed:
    """A job without a diagnosis, and why, in one line for people."""

    error: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What a worker does now: `done` of `total` logs, 0 of 0 where that is not known.

    Of the file at hand `read` of `size` bytes, as stored, have been gone through; 0 of 0 as above.
    """

    stage: str
    done: int = 0
    total: int = 0
    read: int = 0
    size: int = 0


def do(task: Task) -> Done | Failed:
    """What a worker makes of a task; it tells its Progress."""
    from diagnose.serve.work import attempt  # noqa: PLC0415  of the worker alone

    return attempt(task, tell)


def prepare() -> None:
    """Bound the files of a worker."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_SPOOL, _SPOOL))


class Metrics:
    """Counters for /metrics, in the text format of Prometheus (0.0.4); from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: defaultdict[tuple[str, _Labels], float] = defaultdict(float)

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._values[name, tuple(labels.items())] += by

    def problem(self, error: BaseException) -> None:
        """Something went wrong that no request is answered with: a line on standard error."""
        print(f"diagnose serve: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def text(self, gauges: Mapping[str, float]) -> str:
        """All of them, with `gauges` that are only known now."""
        with self._lock:
            values: dict[tuple[str, _Labels], float] = {**self._values}
        values |= {(name, ()): value for name, value in gauges.items()}
        metrics = []
        for name, (kind, about) in _HELP.items():
            mine = sorted((labels, value) for (key, labels), value in values.items() if key == name)
            samples = [(dict(labels), value) for labels, value in mine or [((), 0.0)]]
            metrics.append(Metric(f"diagnose_serve_{name}", kind, about, samples))
        return exposition(metrics)
