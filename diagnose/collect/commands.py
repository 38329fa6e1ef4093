"""Runs a program of the machine, and takes so much of its output and no more."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from diagnose.collect.children import TimedOut, Unavailable
from diagnose.runtime.process import run

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
