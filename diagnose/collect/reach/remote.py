"""What runs on a node: its probes, and their files as a stream to standard output.

`diagnose collect --node-only -o -` and the program that is sent come here with the same arguments.
Only the standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from diagnose.collect import bundle
from diagnose.collect.bundle import NodeOptions
from diagnose.collect.node import collect_within
from diagnose.collect.reach import frames

# The number of a process among those of its launcher on this node.
_LOCAL = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID")
SPY, ABOUT = "bin/py-spy", "bin/about.json"  # as in `program`


def arguments(options: NodeOptions, seconds: float, *, lines: bool = False) -> list[str]:
    """The words that ask a node for this; any shell takes them as they are."""
    words = ["collect", "--node-only", "-o", "-"]
    words += [f"--seconds={options.apart_s:g}", f"--timeout={seconds:g}"]
    words += [f"--probe-size={options.probe_bytes}"]
    words += [f"--job={options.job}"] if options.job else []
    words += [f"--pid={pid}" for pid in options.pids]
    return words + ["--lines"] * lines


def main(given: Sequence[str] | None = None) -> int:
    """The program that is sent; `given` are the words of `arguments`."""
    parser = argparse.ArgumentParser("diagnose", allow_abbrev=False)
    parser.add_argument("command", choices=["collect"])
    parser.add_argument("--node-only", action="store_true")
    parser.add_argument("-o", dest="output", choices=["-"])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--probe-size", type=int, default=NodeOptions().probe_bytes)
    parser.add_argument("--job")
    parser.add_argument("--pid", type=int, action="append", default=[])
    parser.add_argument("--lines", action="store_true")
    asked = parser.parse_args(given)
    options = NodeOptions(
        pids=tuple(asked.pid),
        job=asked.job,
        apart_s=asked.seconds,
        probe_bytes=asked.probe_size,
    )
    return answer(options, asked.timeout, lines=asked.lines)


def answer(options: NodeOptions, seconds: float, *, lines: bool = False) -> int:
    """Probe this node in so many seconds, and write `nodes/` as a packed tar stream.

    With `lines` in the lines of `frames`, and by one process a node. The status is 0 also where
    probes failed: their documents say so.
    """
    if lines and any(os.environ.get(name, "0") != "0" for name in _LOCAL):
        return 0
    try:
        with _own_output() as out, _folder() as folder, _tools():
            _, over = collect_within(folder, options, seconds)
            _send(folder, out, lines=lines)
    except BrokenPipeError:
        return 1
    except OSError as error:
        _say(f"{(error.strerror or str(error)).lower()}: {error.filename or 'output'}")
        return 1
    if over is not None:
        _say(str(over))
    return 0


def _send(folder: Path, out: int, *, lines: bool) -> None:
    """Write the nodes below a folder to an open file. Raises OSError."""
    with ExitStack() as stack:
        stream = stack.enter_context(os.fdopen(os.dup(out), "wb"))
        spool = stack.enter_context(tempfile.TemporaryFile(dir=folder)) if lines else stream
        with bundle.compressed(spool, ".gz") as packed:
            bundle.add_folder(packed, folder / "nodes", "nodes")
        if lines:
            frames.send(out, spool)


@contextmanager
def _own_output() -> Iterator[int]:
    """Standard output for the stream alone.

    No child that is left behind, held by the kernel, keeps our output open: who reads it would
    wait for its end.
    """
    out = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 1)
    ours = True

    def let_go() -> None:
        nonlocal ours
        if ours:  # for good: a child of a child has neither
            ours = False
            os.close(out)
            os.dup2(nothing, 2)

    os.register_at_fork(after_in_child=let_go)
    try:
        yield out
    finally:
        ours = False
        os.dup2(out, 1)
        os.close(out)
        os.close(nothing)


@contextmanager
def _folder(*, executable: bool = False) -> Iterator[Path]:
    """A folder for a while, wherever there is room, or files can be executed. Raises OSError."""
    problem = OSError("no folder for temporary files")
    for place in (tempfile.gettempdir, lambda: "/dev/shm", lambda: "/var/tmp"):
        try:
            if executable and os.statvfs(place()).f_flag & os.ST_NOEXEC:
                continue
            folder = tempfile.mkdtemp(prefix="diagnose-", dir=place())
        except OSError as error:
            problem = error
            continue
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    raise problem


@contextmanager
def _tools() -> Iterator[None]:
    """Inside, PATH leads to the py-spy that was sent, where this machine has none."""
    with ExitStack() as stack:
        if not shutil.which("py-spy") and zipfile.is_zipfile(sys.argv[0]):
            # Without it there are less stacks, which the probes say.
            with suppress(OSError, KeyError, ValueError), zipfile.ZipFile(sys.argv[0]) as program:
                if json.loads(program.read(ABOUT))["machine"] == platform.machine():
                    path = stack.enter_context(_folder(executable=True))
                    (path / "py-spy").write_bytes(program.read(SPY))
                    (path / "py-spy").chmod(0o700)
                    before = os.environ.get("PATH", os.defpath)
                    os.environ["PATH"] = f"{path}{os.pathsep}{before}"
        yield


def _say(line: str) -> None:
    print(f"diagnose: {line}", file=sys.stderr, flush=True)
