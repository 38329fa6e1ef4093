"""The two engines that search: Hyperscan's automata over bytes, `regex` in one line.

Any number of threads may search one automaton at once. A search with `regex` is given up when it
takes too long: no line may stall the tool, whatever else its process is doing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from time import thread_time
from typing import TypeVar

import hyperscan as hs
import regex

from diagnose.runtime.command import cores

Hits = list[tuple[int, int]]  # (number of an expression, end offset)
Each = Callable[[int, int, int, int, object], None]  # number, start, end offset, flags, context


class Automaton:
    """A compiled database and the working memory of its searches.

    Hyperscan writes into a scratch while it searches, with Python's lock let go: two searches in
    one scratch corrupt it. Each search takes one of its own and leaves it to the next one, so there
    are as many as there ever were searches at once. (`list.pop` and `append` are atomic.)
    """

    __slots__ = ("_free", "database")

    def __init__(self, database: hs.Database) -> None:
        self.database = database
        # the one that compiling made; after loading, also the test of whether this CPU can use it
        self._free = [database.scratch or hs.Scratch(database)]

    def hits(self, data: bytes) -> Hits:
        """(number, end offset) of everything in `data` that it finds, ordered by offset."""
        found: Hits = []
        append = found.append
        self.search(data, lambda number, _from, to, _flags, _context: append((number, to)))
        return found

    def search(self, data: bytes, each: Each) -> None:
        """Call `each` for everything in `data` that it finds, ordered by offset.

        Raises MemoryError where a process may have no more of it.
        """
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = self._another()
        try:
            self.database.scan(data, match_event_handler=each, scratch=scratch)
        except hs.NoMemoryError as error:
            raise MemoryError(str(error)) from error
        self._free.append(scratch)

    def _another(self) -> hs.Scratch:
        try:
            return hs.Scratch(self.database)
        except hs.NoMemoryError as error:
            raise MemoryError(str(error)) from error


def compile_database(
    expressions: Sequence[bytes], ids: Sequence[int], flags: Sequence[int], *, literal: bool = False
) -> Automaton:
    """A block-mode Hyperscan database; raises hyperscan.error for what is not linear-time."""
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    database.compile(
        expressions=list(expressions), ids=list(ids), elements=len(ids), flags=list(flags),
        literal=literal,
    )  # fmt: skip
    return Automaton(database)


def hits_of(automaton: Automaton | None, data: bytes) -> Hits:
    """(number, end offset) of everything in `data` that a database finds, ordered by offset."""
    return automaton.hits(data) if automaton is not None else []


T = TypeVar("T")
# A text so short can hardly be made to hurt; a pause of the machine must not change what it says.
HARMLESS = 600
_OWN = 0.5  # of the limit: who took so much of it is given no more


def first_match(pattern: regex.Pattern[str], text: str, limit_s: float) -> regex.Match[str] | None:
    """The first match, within so many seconds of this thread's CPU time. Raises TimeoutError."""
    if len(text) <= HARMLESS:
        # Nearly all searches are of this kind, and the clock costs as much as they do.
        with suppress(TimeoutError):
            return pattern.search(text, timeout=limit_s, concurrent=False)
    return _within(limit_s, lambda s: pattern.search(text, timeout=s, concurrent=False))


def all_matches(pattern: regex.Pattern[str], text: str, limit_s: float) -> list[regex.Match[str]]:
    """All matches, each within so many seconds of this thread's CPU time. Raises TimeoutError."""
    return _within(limit_s, lambda s: [*pattern.finditer(text, timeout=s, concurrent=False)])


def _within(limit_s: float, attempt: Callable[[float], T]) -> T:
    """What an attempt gives that may take so many seconds.

    `regex` counts the CPU time of all threads of the process: beside others at work a harmless line
    would seem to hurt, and the verdict depend on them. So an attempt that this thread had too small
    a part of is repeated with more time. (It is not `concurrent`: to let go of Python's lock for
    microseconds makes each first_match wait for its turn.)
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


@lru_cache(maxsize=16)
def _compiled(words: tuple[bytes, ...]) -> Automaton:
    """Finds each of the words once."""
    count = len(words)
    return compile_database(
        words, range(count), [int(hs.HS_FLAG_SINGLEMATCH)] * count, literal=True
    )


def held(data: bytes, words: tuple[bytes, ...]) -> frozenset[bytes]:
    """Those of `words`, which hold no NUL, that are in `data`."""
    return frozenset(words[number] for number, _ in _compiled(words).hits(data))


@lru_cache(maxsize=16)
def _finder(once: tuple[bytes, ...], each: tuple[bytes, ...]) -> Automaton:
    flags = [int(hs.HS_FLAG_SINGLEMATCH)] * len(once) + [0] * len(each)
    return compile_database(once + each, range(len(flags)), flags)


def places(
    data: bytes, once: tuple[bytes, ...], each: tuple[bytes, ...] = ()
) -> dict[bytes, list[int]]:
    """The expressions that match in `data`, with where their matches end.

    Of those `once` only where the first one does. Together they cost little more than one alone,
    but mixed ones take long to compile: best are words, and classes of characters before words.
    """
    expressions = once + each
    found: dict[bytes, list[int]] = {}
    for number, end in _finder(once, each).hits(data):
        found.setdefault(expressions[number], []).append(end)
    return found
