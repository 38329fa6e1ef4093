"""One bundle from beginning to end: the nodes are reached, and what came is put in its place.

How that goes is shown on a terminal: a line for each of a few nodes, a count of many.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from diagnose import __version__
from diagnose.collect import bundle
from diagnose.collect.bundle import MANIFEST, Manifest, NodeOptions
from diagnose.collect.node import collect_within, now
from diagnose.collect.reach.gather import Limits, Reached, gather
from diagnose.collect.reach.ways import Plan
from diagnose.errors import InputError
from diagnose.runtime.command import handling
from diagnose.runtime.files import unwritable
from diagnose.text.ranks import counted


@dataclass(slots=True)
class Collected:
    """What came of it. `nodes` are their documents, `problems` lines for people."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    size: int = 0
    seconds: float = 0.0
    interrupted: bool = False


def collect(
    plan: Plan | None,
    options: NodeOptions,
    limits: Limits,
    target: Path,
    *,
    replace: bool = False,
    done: Callable[[Reached], None] = lambda _: None,
) -> Collected:
    """Write the bundle of the nodes of a plan, or of this node, to `target`.

    It is written also where no node could be reached: its manifest says why. After an interrupt
    it holds what had come. Raises InputError where it cannot be written, or this node has no
    process of the job.
    """
    check(target, replace=replace)
    began, started = time.monotonic(), now()
    try:
        folder = Path(tempfile.mkdtemp(prefix=".diagnose-", dir=target.absolute().parent))
        try:
            with _stopping() as stop:
                found = _collected(folder, plan, options, limits, stop, done)
                via = "here" if plan is None else plan.via
                manifest = Manifest(__version__, started, now(), via, found.nodes, found.problems)
                _write(folder, manifest)
                found.size = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
                _put(folder, target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise unwritable(target, error) from error
    found.seconds = time.monotonic() - began
    found.interrupted |= stop.is_set()
    return found


def _write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest; on a full disk a short one into the room that was kept for it."""
    try:
        bundle.write_manifest(folder, manifest)
    except OSError as error:
        names = [{"host": node.get("host")} for node in manifest.nodes]
        why = f"a short manifest: {(error.strerror or str(error)).lower()}"
        short = changed(manifest, nodes=names, problems=[*manifest.problems[:100], why])
        bundle.write_manifest(folder, short)


def check(target: Path, *, replace: bool) -> None:
    """Raise InputError where a bundle must not, or cannot, be written."""
    try:
        if target.is_dir() and not bundle.is_archive(target):
            if not (target / MANIFEST).is_file():
                raise InputError(f"{target} is a folder, but no bundle: it is not replaced")
        elif target.is_dir():
            raise InputError(f"{target} is a folder")
        if (target.exists() or target.is_symlink()) and not replace:
            raise InputError(f"{target} exists (--force replaces it)")
        if not target.absolute().parent.is_dir():
            raise InputError(f"cannot write {target}: its folder does not exist")
    except OSError as error:
        raise unwritable(target, error) from error


def _collected(
    folder: Path,
    plan: Plan | None,
    options: NodeOptions,
    limits: Limits,
    stop: threading.Event,
    done: Callable[[Reached], None],
) -> Collected:
    """Fill a folder with the nodes."""
    bundle.reserve(folder / MANIFEST)
    if plan is None:
        nodes, over = collect_within(folder, options, limits.seconds)
        found = Collected(nodes)
        if over is None and not any(node.get("processes") for node in nodes):
            raise InputError("; ".join(line for node in nodes for line in node["problems"]))
        if over is not None:
            found.problems.append(f"this node: ended early: {over}")
            found.interrupted = over.by_user
        return found
    found = Collected(problems=list(plan.problems))
    for reached in gather(plan, folder, limits, stop=stop, done=done):
        found.nodes += reached.nodes
        found.problems += reached.problems
    return found


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that is set by what asks a process to end; who asks again does not want to wait."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with handling(end):
        yield stop


def _put(folder: Path, target: Path) -> None:
    """Make a folder the bundle at `target`: whole or not at all. Raises OSError, InputError."""
    if bundle.is_archive(target):
        bundle.pack(folder, target)
        return
    old = None
    if target.exists() or target.is_symlink():
        old = Path(tempfile.mkdtemp(prefix=".diagnose-", dir=target.absolute().parent)) / "old"
        target.rename(old)
    folder.rename(target)
    if old is not None:
        shutil.rmtree(old.parent, ignore_errors=True)


_FEW = 32


class Progress:
    """Called with each node that is done; `clean` makes a text from elsewhere one harmless line."""

    def __init__(self, stream: TextIO, total: int, clean: Callable[[str], str]) -> None:
        self._stream = stream
        self._total = total
        self._clean = clean
        self._done = self._wrong = 0
        self._shown = stream.isatty()

    def __call__(self, reached: Reached) -> None:
        """One call has come to its end."""
        self._done += 1
        self._wrong += bool(reached.problems)
        if not self._shown:
            return
        if self._total <= _FEW:
            self._say(f"{self._clean(outcome(reached))}\n")
        else:
            wrong = f", {self._wrong} with problems" if self._wrong else ""
            self._say(f"\r{self._done}/{counted(self._total, 'node')}{wrong}\x1b[K")

    def end(self) -> None:
        """Leave the line of the count."""
        if self._shown and self._done and self._total > _FEW:
            self._say("\n")

    def _say(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def outcome(reached: Reached) -> str:
    """`node1: 8 ranks, 1.2 MiB, 6.1 s`, or what is wrong."""
    if not reached.nodes:
        return reached.problems[0] if reached.problems else f"{reached.name}: no answer"
    return (
        f"{reached.name}: {counted(sum(map(ranks, reached.nodes)), 'rank')}, "
        f"{size(reached.size)}, {reached.seconds:.1f} s"
    )


def ranks(document: dict[str, object]) -> int:
    """How many ranks the document of a node has."""
    processes = document.get("processes")
    if not isinstance(processes, list):
        return 0
    return sum(isinstance(one, dict) and one.get("role") == "rank" for one in processes)


def size(number: int) -> str:
    """`12.3 MiB`."""
    return f"{number / 2**20:.1f} MiB" if number >= 1 << 20 else f"{number / 2**10:.1f} KiB"
