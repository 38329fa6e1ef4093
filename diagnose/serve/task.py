"""What goes to a worker and what comes back: plain values, as JSON and bytes.

Nothing that comes back is unpickled: a worker reads hostile input.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from multiprocessing.connection import Connection
from typing import Any, Literal

PASTE = "paste.txt"  # the file of a paste in its folder
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


Message = Done | Failed | Progress


def encoded(task: Task) -> bytes:
    """A task as it goes to a worker."""
    return json.dumps(asdict(task)).encode()


def decoded(data: bytes) -> Task:
    """The task that was encoded so."""
    values = json.loads(data)
    for name in ("wanted", "patterns", "urls", "allowed"):
        values[name] = tuple(values[name])
    return Task(**values)


def send(connection: Connection, message: Message) -> None:
    """Send what a worker has to say."""
    if isinstance(message, Done):
        head = {"summary": asdict(message.summary), "outputs": list(message.outputs)}
        connection.send_bytes(json.dumps(head).encode())
        for data in message.outputs.values():
            connection.send_bytes(data)
    else:
        connection.send_bytes(json.dumps(asdict(message)).encode())


def receive(connection: Connection) -> Message:
    """What a worker says. Raises EOFError or OSError if it ended, ValueError if it is no sense."""
    head = json.loads(connection.recv_bytes())
    if not isinstance(head, dict):
        raise ValueError("a worker sent no object")
    if "error" in head:
        return Failed(str(head["error"]))
    if "stage" in head:
        numbers = (int(head[name]) for name in ("done", "total", "read", "size"))
        return Progress(str(head["stage"]), *numbers)
    names = [name for name in head.get("outputs", []) if name in TYPES]
    return Done(_summary(head.get("summary")), {name: connection.recv_bytes() for name in names})


def _summary(values: Any) -> Summary:
    names = {field.name for field in fields(Summary)}
    if not isinstance(values, dict) or set(values) != names:
        raise ValueError("a worker sent no summary")
    texts = {name: str(value) for name, value in values.items() if name != "files"}
    return Summary(**texts, files=int(values["files"]))
