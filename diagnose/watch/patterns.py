"""The part of the catalog that a watch looks for, compiled to one automaton of its own.

That is a tenth of the work of all of the catalog, which the diagnosis at the end goes through.
"""

from __future__ import annotations

from collections.abc import Sequence

import hyperscan as hs

from diagnose.catalog import cache
from diagnose.catalog.schema import Catalog, Signature
from diagnose.match.compile import BUILD, Matcher, compile_rows
from diagnose.match.rows import DATABASES, Pattern, pattern_flags, patterns_of, searched
from diagnose.search import Automaton

_WANTED = frozenset({"exit", "exception", "teardown", "finished", "restart", "timeout"})


def wanted(signature: Signature) -> bool:
    """Whether its lines tell a watch anything: of progress, of phases, of an end."""
    return signature.role in ("phase", "progress") or signature.signal in _WANTED


class Patterns:
    """Finds lines of the wanted signatures in blocks of bytes. Numbers are those of `Matcher`."""

    def __init__(self, catalog: Catalog) -> None:
        version = hs.__version__  # type: ignore[attr-defined]
        name = f"watch-{BUILD}-{catalog.revision}-{version}.hs"
        automaton = _load(cache.read(name))
        if automaton is None:
            automaton = compile_rows(_rows(catalog.signatures))
            cache.keep(name, hs.dumpb(automaton.database))
        self._automaton = automaton
        # What confirms a match asks none of its automata.
        self._matcher = Matcher(catalog, [None] * len(DATABASES))

    def scan(self, block: bytes) -> list[tuple[int, int]]:
        """(pattern number, end offset) of all that may match, ordered by offset."""
        return self._automaton.hits(block)

    def signature(self, number: int) -> Signature:
        """The signature of a pattern."""
        return self._matcher.signatures[self._matcher.patterns[number].signature]

    def confirm(self, number: int, line: str, message: str) -> dict[str, str] | None:
        """The captures of a pattern on a clean line, or None if it is no match."""
        return self._matcher.confirm(number, line, message)


def _rows(signatures: Sequence[Signature]) -> list[tuple[bytes, int, int]]:
    numbered: list[tuple[int, Pattern]] = list(enumerate(patterns_of(signatures)))
    return [
        (form.encode(), number, pattern_flags(pattern, first=False))
        for number, pattern in numbered
        if wanted(signatures[pattern.signature])
        for form in searched(pattern, "rest")
    ]


def _load(raw: bytes | None) -> Automaton | None:
    if raw is None:
        return None
    try:
        return Automaton(hs.loadb(raw, hs.HS_MODE_BLOCK))
    except hs.error:  # another CPU or library version wrote it
        return None
