"""One node's probes in so much time: what there is when it is over is kept.

Only the standard library: it runs on the nodes, too.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from diagnose import __version__
from diagnose.collect import bundle
from diagnose.collect.model import Node, NodeOptions
from diagnose.collect.node import collect_node, now

_MAX_DOCUMENT = 16 << 20
_MAX_DEPTH = 20
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Over(BaseException):
    """It is to end now; the message says why. `by_user` where a signal asked for that."""

    def __init__(self, why: str, *, by_user: bool) -> None:
        super().__init__(why)
        self.by_user = by_user


def collect_within(
    folder: Path, options: NodeOptions, seconds: float
) -> tuple[list[dict[str, Any]], Over | None]:
    """The documents of the nodes below `folder`, and why it ended early if it did.

    Raises OSError where nothing can be written.
    """
    started = now()
    try:
        with _ending(seconds):
            return [collect_node(folder, options).to_dict()], None
    except Over as over:
        return [_rescued(path, started, str(over)) for path in documents(folder)], over


def documents(folder: Path) -> list[Path]:
    """Every `nodes/HOST/node.json` below a folder."""
    return sorted(folder.glob("nodes/*/node.json"))


def read_document(path: Path) -> dict[str, Any] | None:
    """What a `node.json` says; None where it says nothing (yet). Raises OSError."""
    with suppress(ValueError, RecursionError), path.open("rb") as stream:
        found = json.loads(stream.read(_MAX_DOCUMENT))
        if isinstance(found, dict) and _is_shallow(found):
            return found
    return None


def _is_shallow(document: object) -> bool:
    """Whether a document is no deeper than those of ours: who copies or writes one goes down it."""
    level = [document]
    for _ in range(_MAX_DEPTH):
        inner: list[object] = []
        for one in level:
            inner += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        level = inner
    return not level


def _rescued(path: Path, started: str, why: str) -> dict[str, Any]:
    """The document of a node whose probes did not come to an end."""
    found = read_document(path) or Node(path.parent.name, __version__, started).to_dict()
    if not found["ended"]:
        found["problems"].append(f"ended early: {why}")
        found["ended"] = now()
        bundle.overwrite(path, found)
    return found


@contextmanager
def _ending(seconds: float) -> Iterator[None]:
    """Raise Over in the main thread after so many seconds, or by what asks a process to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGALRM:
            raise Over(f"no end in {seconds:g} s", by_user=False)
        raise Over("interrupted", by_user=True)

    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in (*handled, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
