"""The part of the catalog that a watch looks for, in a database of its own.

That is a tenth of the work of all of the catalog, which the diagnosis at the end goes through.
"""

from __future__ import annotations

from diagnose.catalog.schema import Catalog, Signature
from diagnose.match.compile import Matcher, databases_of
from diagnose.match.rows import WATCHED
from diagnose.search import hits_of


class Patterns:
    """Finds lines of the watched signatures in blocks of bytes. Numbers are those of `Matcher`."""

    def __init__(self, catalog: Catalog) -> None:
        self._automaton = databases_of(catalog, [WATCHED])[WATCHED]
        self._matcher = Matcher(catalog, {})  # what confirms a match asks none of its databases

    def scan(self, block: bytes) -> list[tuple[int, int]]:
        """(pattern number, end offset) of all that may match, ordered by offset."""
        return hits_of(self._automaton, block)

    def signature(self, number: int) -> Signature:
        """The signature of a pattern."""
        return self._matcher.signatures[self._matcher.patterns[number].signature]

    def confirm(self, number: int, line: str, message: str) -> dict[str, str] | None:
        """The captures of a pattern on a clean line, or None if it is no match."""
        return self._matcher.confirm(number, line, message)
