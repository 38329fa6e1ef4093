"""Files and folders that are for their owner only: a bundle has stacks, logs and command lines."""

from __future__ import annotations

import os
from pathlib import Path


def folder(path: Path) -> None:
    """Make a folder, with those above it that are missing. Raises OSError."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(0o700, exist_ok=True)


def opened(path: Path, more: int) -> int:
    """A file that is open for writing; `more` are flags of open(2). Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags | more, 0o600)


def pour(fd: int, data: bytes) -> None:
    """Write all of it. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
