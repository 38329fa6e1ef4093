"""One bundle from beginning to end: the nodes are reached, and what came is put in its place."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from types import FrameType
from typing import Any

from diagnose import __version__
from diagnose.collect import bundle
from diagnose.collect.model import MANIFEST, Manifest, NodeOptions
from diagnose.collect.node import now
from diagnose.collect.reach.fan import gather
from diagnose.collect.reach.model import Limits, Plan, Reached
from diagnose.collect.reach.within import collect_within
from diagnose.errors import InputError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
        what = (error.strerror or str(error)).lower()
        raise InputError(f"cannot write {target}: {what}") from error
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
        raise InputError(f"cannot write {target}: {(error.strerror or '').lower()}") from error


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
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in handled}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
