"""Runs a program of the machine, and takes so much of its output and no more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from diagnose.collect.children import TimedOut, Unavailable, end_with_parent

_EVERY_S = 0.01
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
    words: Sequence[str], seconds: float, watch: Callable[[], str | None] | None = None
) -> tuple[str, str]:
    """What a program prints, and what it says on standard error.

    `watch` is asked all the time, and ends the program by returning why. The output is kept in
    memory: a full disk must not end a probe. Raises TimedOut, OSError where it fails.
    """
    begun = time.monotonic()
    out, err = os.memfd_create("output"), os.memfd_create("errors")
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=_environment(),
            preexec_fn=end_with_parent,  # noqa: PLW1509  or it would go on with nobody watching
        )
        try:
            while child.poll() is None:
                why = watch() if watch is not None else None
                if why is not None:
                    raise TimedOut(why)
                if time.monotonic() - begun > seconds:
                    raise TimedOut(f"{Path(words[0]).name} gave no answer in {seconds:.0f} s")
                time.sleep(_EVERY_S)
        finally:
            if child.poll() is None:
                child.kill()
                with suppress(subprocess.TimeoutExpired):  # the kernel may hold it
                    child.wait(_EVERY_S * 50)
        printed, failed = _all(out), _all(err)
        if child.returncode and not printed:
            reason = failed.strip() or f"exit status {child.returncode}"
            raise OSError(f"{Path(words[0]).name}: {reason}")
        return printed, failed
    finally:
        os.close(out)
        os.close(err)


def _all(fd: int) -> str:
    return os.pread(fd, _MAX_OUTPUT, 0).decode("utf-8", "replace")


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "RUST_BACKTRACE": "0"}
