"""How reaching the nodes goes, on a terminal: a line for each of a few nodes, a count of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from diagnose.collect.reach.model import Reached
from diagnose.text.ranks import counted

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
