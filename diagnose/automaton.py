"""A Hyperscan database that any number of threads may search at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import hyperscan as hs

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
