"""What goes to a worker and what comes back: plain values."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Literal

from diagnose.runtime.workers import tell

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
