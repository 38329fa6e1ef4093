"""What a server was told on its command line, and the bounds on what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
