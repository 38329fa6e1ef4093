"""The compiled catalog: Hyperscan automata over raw bytes, `regex` on what they found.

An automaton of literals, the marks, reads everything; only lines that hold one are searched for
the patterns and the words.
Hyperscan tells where a pattern may end; the line around it is then searched again with `regex`,
which confirms the match and gives the captures. So what Hyperscan is given may be simpler than the
pattern, as long as it finds all that the pattern does. Thin signatures (one line a step) have
automata of their own: they match everywhere, and would slow the search for everything else
fourfold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import hyperscan as hs
import regex

from diagnose import search
from diagnose.catalog import stored
from diagnose.catalog.schema import Catalog
from diagnose.match.calls import CallMarks
from diagnose.match.rows import DATABASES, INIT, name_of, patterns_of
from diagnose.match.shapes import ShapeTable
from diagnose.match.words import Words
from diagnose.search import Automaton, Hits, hits_of

if TYPE_CHECKING:
    from diagnose.match.build import Doubts


# A search that takes longer than this on one line is given up: no line may stall the tool.
MATCH_TIMEOUT_S = 0.02
# Where literals are everywhere (a flood, a paste), a second look at single lines saves nothing.
_DENSE = 0.5


Databases = Mapping[str, Automaton | None]


class Scanned(NamedTuple):
    """What is in a block of bytes: patterns that are not per-step, what may be words, NCCL's calls.

    The first two are ordered by offset: (pattern number, end offset), and (-1 - number of the
    vocabulary, end offset).
    """

    patterns: Hits
    words: Hits
    calls: CallMarks


class Found(NamedTuple):
    """A match of a pattern in what begins at `at` in the line."""

    at: int
    match: regex.Match[str]

    @property
    def start(self) -> int:
        """Where in the line it begins."""
        return self.at + self.match.start()

    def captures(self) -> dict[str, str]:
        """What it captured, by name."""
        return {name: text for name, text in self.match.groupdict().items() if text is not None}


def in_text(found: Mapping[int, Found]) -> list[tuple[int, Found]]:
    """The matches of signatures in the order of the text, which tells what came last in a line.

    Where two begin at one place the catalog's first is first, however the line was found.
    """
    return sorted(found.items(), key=lambda item: (item[1].start, item[0]))


class Matcher:
    """Finds the catalog's patterns in blocks of bytes. Build with `compile_matcher`."""

    def __init__(self, catalog: Catalog, databases: Mapping[str, Automaton | None]) -> None:
        self.signatures = catalog.signatures
        self.patterns = patterns_of(catalog.signatures)
        self.words = Words(catalog.vocabularies, catalog.class_shown_by("exception"))
        self._marks, self._bulk, self._rest, self._words, self._everywhere = (
            databases.get(name) for name in ("marks", "bulk", "rest", "words", "everywhere")
        )
        self._sampled_first, self._sampled_all = (
            databases.get(name) for name in ("sampled-first", "sampled-all")
        )
        self.catalog = catalog

    @cached_property
    def shapes(self) -> ShapeTable:
        """What is known of lines by their shape so far."""
        return ShapeTable(self._fixed)

    def _fixed(self, same: bytes) -> Sequence[Span]:
        """Where digits matter in lines of this shape."""
        return self._doubts.fixed(same)

    @cached_property
    def _doubts(self) -> Doubts:
        """Which digits of a line matter."""
        from diagnose.match.build import doubts_of  # noqa: PLC0415  where much repeats itself

        return doubts_of(self.catalog)

    def scan(self, data: bytes) -> Scanned:
        """What is in `data`."""
        spans, calls = ([], CallMarks()) if self._marks is None else marked_lines(self._marks, data)
        in_lines = _in_all(data) if _dense(spans, data) else _in_lines(data, spans)
        found = [*hits_of(self._everywhere, data), *in_lines(self._rest), *in_lines(self._bulk)]
        codes = len(self.patterns)
        words = [(-1 - number, to) for number, to in in_lines(self._words)]
        words += [(codes - 1 - number, to) for number, to in found if number >= codes]
        hits = [hit for hit in found if hit[0] < codes]
        hits.sort(key=itemgetter(1))
        words.sort(key=itemgetter(1))
        return Scanned(hits, words, calls)

    def scan_steps(self, data: bytes, *, every: bool = False) -> list[tuple[int, int]]:
        """(pattern number, end offset) of per-step patterns: the first of each, or every one."""
        return hits_of(self._sampled_all if every else self._sampled_first, data)

    def confirm(self, pattern: int, line: str, message: str) -> dict[str, str] | None:
        """The captures of pattern number `pattern` on a clean line, or None if it is no match."""
        try:
            found = self.find(pattern, line, message)
        except TimeoutError:
            return None
        return None if found is None else found.captures()

    def find(
        self, pattern: int, line: str, message: str, timeout_s: float = MATCH_TIMEOUT_S
    ) -> Found | None:
        """What a pattern matches in the line, None if nothing. Raises TimeoutError."""
        match, at, excluded = self._searched(pattern, line, message, timeout_s)
        return None if match is None or excluded is not None else Found(at, match)

    def excluded_by(self, pattern: int, line: str, message: str) -> str | None:
        """The expression under `unless` for which alone a pattern does not match the line."""
        try:
            return self._searched(pattern, line, message, MATCH_TIMEOUT_S)[2]
        except TimeoutError:
            return None

    def _searched(
        self, pattern: int, line: str, message: str, timeout_s: float
    ) -> tuple[regex.Match[str] | None, int, str | None]:
        """A match, where in the line what was searched begins, and what is against the match."""
        found = self.patterns[pattern]
        text = message.strip() if found.anchored else line
        match = search.first_match(_compiled(found.expression, found.ignore_case), text, timeout_s)
        if match is None:
            return None, 0, None
        signature = self.signatures[found.signature]
        for expression in signature.unless:
            if search.first_match(_compiled(expression, signature.ignore_case), line, timeout_s):
                return match, 0, expression
        return match, max(line.find(text), 0) if found.anchored else 0, None

    def prepare(self, patterns: Iterable[int]) -> None:
        """Compile what `find` needs: it takes longer than a search may."""
        for number in patterns:
            found = self.patterns[number]
            signature = self.signatures[found.signature]
            _compiled(found.expression, found.ignore_case)
            for expression in signature.unless:
                _compiled(expression, signature.ignore_case)


_compiling = Lock()  # of threads that ask at once, one compiles


def compile_matcher(catalog: Catalog) -> Matcher:
    """The matcher of a catalog; its databases are compiled where nobody did that before.

    One is made for each catalog of a process, and shared by its threads.
    Raises CatalogError for patterns that are too much together.
    """
    with _compiling:
        return _matcher(catalog)


def compiled_before(catalog: Catalog) -> bool:
    """Whether the matcher of a catalog is ready; to compile one takes seconds."""
    with _compiling:
        return _loaded(catalog) is not None


def databases_of(catalog: Catalog, names: Iterable[str] = DATABASES) -> Databases:
    """Databases of a catalog, compiled where they are not kept. Raises CatalogError."""
    found = _kept(catalog, names)
    if found is None:
        from diagnose.match.build import compiled  # noqa: PLC0415  as above

        found = compiled(catalog)
    return found


@lru_cache(maxsize=2)
def _loaded(catalog: Catalog) -> Databases | None:
    return _kept(catalog, DATABASES)


@lru_cache(maxsize=2)
def _matcher(catalog: Catalog) -> Matcher:
    return Matcher(catalog, _loaded(catalog) or databases_of(catalog))


def _kept(catalog: Catalog, names: Iterable[str]) -> Databases | None:
    """Databases that were compiled before, also by the same processor and release."""
    for found in stored.find(name_of(catalog.revision)):
        with suppress(ValueError, hs.error):
            return {name: _automaton(found.section(name).tobytes()) for name in names}
    return None


def _automaton(raw: bytes) -> Automaton | None:
    return Automaton(hs.loadb(raw, hs.HS_MODE_BLOCK)) if raw else None


def _dense(spans: Sequence[Span], data: bytes) -> bool:
    """Whether these lines are most of the data."""
    size: int = sum(map(_END, spans)) - sum(map(_START, spans))
    return size > _DENSE * len(data)


_START, _END = itemgetter(0), itemgetter(1)
_Search = Callable[["Automaton | None"], Iterable[tuple[int, int]]]  # what it finds, and where


def _in_all(data: bytes) -> _Search:
    return lambda automaton: hits_of(automaton, data)


def _in_lines(data: bytes, spans: Sequence[Span]) -> _Search:
    """The search in these lines; what it finds is by its places in `data`."""
    lines = b"\n".join([data[start:end] for start, end in spans])
    at = [0, *accumulate([end - start + 1 for start, end in spans])]

    def search(automaton: Automaton | None) -> Iterator[tuple[int, int]]:
        for number, to in hits_of(automaton, lines) if lines else ():
            line = bisect_right(at, to - 1) - 1
            yield number, spans[line][0] + to - at[line]

    return search


@lru_cache(maxsize=4096)
def _compiled(expression: str, ignore_case: bool) -> regex.Pattern[str]:
    flags = regex.VERSION0 | regex.MULTILINE
    return regex.compile(expression, flags | regex.IGNORECASE if ignore_case else flags)


Span = tuple[int, int]


def marked_lines(marks: Automaton, data: bytes) -> tuple[list[Span], CallMarks]:
    """Start and end of each line with a mark of the catalog, in order; and what tells of calls."""
    lines: list[Span] = []
    calls = CallMarks()
    find, rfind, append = data.find, data.rfind, lines.append
    reached = -1

    def each(number: int, _from: int, to: int, _flags: int, _context: object) -> None:
        nonlocal reached
        if number >= INIT:
            calls.add(number, to)
        elif to > reached:
            reached = find(b"\n", to)
            if reached < 0:
                reached = len(data)
            append((rfind(b"\n", 0, to) + 1, reached))

    marks.search(data, each)
    return lines, calls
