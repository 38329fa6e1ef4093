"""Searches that are given up: no line may stall the tool, whatever else its process is doing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import thread_time
from typing import TypeVar

import regex

from diagnose.process import cores

T = TypeVar("T")
# A text so short can hardly be made to hurt; a pause of the machine must not change what it says.
HARMLESS = 600
_OWN = 0.5  # of the limit: who took so much of it is given no more


def search(pattern: regex.Pattern[str], text: str, limit_s: float) -> regex.Match[str] | None:
    """The first match, within so many seconds of this thread's CPU time. Raises TimeoutError."""
    if len(text) <= HARMLESS:
        # Nearly all searches are of this kind, and the clock costs as much as they do.
        with suppress(TimeoutError):
            return pattern.search(text, timeout=limit_s, concurrent=False)
    return _within(limit_s, lambda s: pattern.search(text, timeout=s, concurrent=False))


def find_all(pattern: regex.Pattern[str], text: str, limit_s: float) -> list[regex.Match[str]]:
    """All matches, each within so many seconds of this thread's CPU time. Raises TimeoutError."""
    return _within(limit_s, lambda s: [*pattern.finditer(text, timeout=s, concurrent=False)])


def _within(limit_s: float, attempt: Callable[[float], T]) -> T:
    """What an attempt gives that may take so many seconds.

    `regex` counts the CPU time of all threads of the process: beside others at work a harmless line
    would seem to hurt, and the verdict depend on them. So an attempt that this thread had too small
    a part of is repeated with more time. (It is not `concurrent`: to let go of Python's lock for
    microseconds makes each search wait for its turn.)
    """
    factor = 1
    while True:
        begun = thread_time()
        try:
            return attempt(factor * limit_s)
        except TimeoutError:
            if thread_time() - begun >= _OWN * limit_s or factor > 2 * cores():
                raise
        factor *= 2
