"""Starts what the tests on a real cluster need, and ends it with them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "diagnose", "collect"]
SLEEPING = "import time; time.sleep(600)"


def needs(*tools: str) -> None:
    """Skip a test where it cannot run."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    missing = [tool for tool in tools if not where(tool)]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")


def where(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def until(done: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < ends, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Paths of sockets may have a hundred characters; those of tmp_path have more."""
    folder = Path(tempfile.mkdtemp(prefix="dg-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process and all that it starts, in the background, until the block ends."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(5)
                break
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        process.wait(5)


@contextmanager
def ranks(job: str, count: int, tmp_path: Path) -> Iterator[list[int]]:
    """Processes that say they are ranks of a job, and sleep."""
    pids = []
    processes = []
    for rank in range(count):
        environment = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
            "TORCHELASTIC_RUN_ID": job,
        }  # fmt: skip
        process = subprocess.Popen([sys.executable, "-c", SLEEPING], env=environment)
        processes.append(process)
        pids.append(process.pid)
    try:
        until(lambda: all(Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"600)\0")
                          for pid in pids), "ranks run")  # fmt: skip
        yield pids
    finally:
        for process in processes:
            process.kill()
            process.wait()


def ask(environment: dict[str, str], *command: str) -> str:
    """What a command of Slurm answers."""
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    return done.stdout
