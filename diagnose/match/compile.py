"""The compiled catalog: one Hyperscan automaton over raw bytes, `regex` on what it found.

Hyperscan tells where a pattern ends; the line around it is then searched again with `regex`,
which confirms the match and gives the captures. Thin signatures (one line a step) have automata
of their own: they match everywhere, and would slow the search for everything else fourfold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import hyperscan as hs
import regex

from diagnose.catalog import cache
from diagnose.catalog.schema import Catalog, Signature
from diagnose.catalog.vocabulary import Vocabulary, literals
from diagnose.errors import CatalogError
from diagnose.match.words import Words

# A search that takes longer than this on one line is given up: no line may stall the tool.
MATCH_TIMEOUT_S = 0.02
DATABASES = ("bulk", "thin-first", "thin-all", "words")

_SPECIAL = re.compile(rb"[^\w\s]")
_GROUP_NAME = re.compile(r"\(\?P<\w+>")
_GREEDY_TAIL = re.compile(
    r"(?<!\\)(?P<open>\(\?:)?(?P<atom>\.|\\[SwdD]|\[\^?(?:\\.|[^]\\])+\])(?P<times>[*+])(?(open)\))\Z"
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One regular expression of a signature; `anchored` ones search the peeled message."""

    signature: int
    expression: str
    anchored: bool
    ignore_case: bool


class Matcher:
    """Finds the catalog's patterns in blocks of bytes. Build with `compile_matcher`."""

    def __init__(self, catalog: Catalog, databases: Sequence[hs.Database]) -> None:
        self.signatures = catalog.signatures
        self.patterns = patterns_of(catalog.signatures)
        self.words = Words(catalog.vocabularies)
        self._bulk, self._thin_first, self._thin_all, self._words = databases

    def scan(self, data: bytes) -> list[tuple[int, int]]:
        """All (pattern number, end offset) in `data` but of thin patterns, ordered by offset."""
        return _collect(self._bulk, data)

    def scan_thin(self, data: bytes, *, every: bool = False) -> list[tuple[int, int]]:
        """(pattern number, end offset) of thin patterns: the first of each, or every one."""
        return _collect(self._thin_all if every else self._thin_first, data)

    def scan_words(self, data: bytes) -> list[tuple[int, int]]:
        """(-1 - number of the vocabulary, end offset) of what may be a word of it."""
        return [(-1 - number, to) for number, to in _collect(self._words, data)]

    def confirm(self, pattern: int, line: str, message: str) -> dict[str, str] | None:
        """The captures of pattern number `pattern` on a clean line, or None if it is no match."""
        found = self.locate(pattern, line, message)
        return None if found is None else found[1]

    def locate(
        self, pattern: int, line: str, message: str, timeout_s: float = MATCH_TIMEOUT_S
    ) -> tuple[int, dict[str, str]] | None:
        """Where in the line a pattern matches, and its captures; None if it is no match."""
        found = self.patterns[pattern]
        signature = self.signatures[found.signature]
        text = message.strip() if found.anchored else line
        try:
            match = _compiled(found.expression, found.ignore_case).search(text, timeout=timeout_s)
            if match is None:
                return None
            for expression in signature.unless:
                if _compiled(expression, signature.ignore_case).search(line, timeout=timeout_s):
                    return None
        except TimeoutError:
            return None
        captures = {name: value for name, value in match.groupdict().items() if value is not None}
        before = max(line.find(text), 0) if found.anchored else 0
        return before + match.start(), captures


@lru_cache(maxsize=2)
def compile_matcher(catalog: Catalog) -> Matcher:
    """The matcher of a catalog, from the cache when this revision was compiled before.

    One is made for each catalog of a process.
    Raises CatalogError for patterns that are too much together.
    """
    databases = []
    for name in DATABASES:
        kept = f"{name}-{catalog.revision}-{hs.__version__}.hs"  # type: ignore[attr-defined]
        database = _load(cache.read(kept))
        if database is None:
            try:
                database = build_database(catalog, name)
            except hs.error as error:
                raise CatalogError(f"the patterns do not compile together: {error}") from error
            cache.keep(kept, hs.dumpb(database))
        databases.append(database)
    return Matcher(catalog, databases)


def matcher_of(catalog: Catalog) -> Matcher:
    """The matcher of a catalog, compiled anew."""
    return Matcher(catalog, [build_database(catalog, name) for name in DATABASES])


def patterns_of(signatures: Sequence[Signature]) -> list[Pattern]:
    """Every expression of the catalog, in a fixed order; its index is its number."""
    return [
        Pattern(index, expression, expression.startswith("^"), signature.ignore_case)
        for index, signature in enumerate(signatures)
        for expression in signature.match
    ]


def hyperscan_form(expression: str) -> bytes:
    """What Hyperscan searches: no group names, and no outer anchors.

    `^` means the start of the message behind the prefixes, which only the confirmation knows;
    `$` means the end of a line, which a carriage return may also end.
    """
    bare = _GROUP_NAME.sub("(?:", expression.removeprefix("^"))
    if bare.endswith("$") and not bare.endswith("\\$"):
        bare = bare[:-1]
    # A greedy tail would report every further byte of the line as another match.
    tail = _GREEDY_TAIL.search(bare)
    if tail is not None:
        kept = tail["atom"] if tail["times"] == "+" else ""
        bare = bare[: tail.start()] + kept
    return bare.encode()


def compile_database(
    expressions: Sequence[bytes], ids: Sequence[int], flags: Sequence[int]
) -> hs.Database:
    """A block-mode Hyperscan database; raises hyperscan.error for what is not linear-time."""
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    database.compile(
        expressions=list(expressions), ids=list(ids), elements=len(ids), flags=list(flags)
    )
    return database


def pattern_flags(pattern: Pattern, *, first: bool) -> int:
    """Hyperscan flags of one pattern; `first` reports its first match in a block only."""
    flags = int(hs.HS_FLAG_MULTILINE)
    if pattern.ignore_case:
        flags |= hs.HS_FLAG_CASELESS
    if first:
        flags |= hs.HS_FLAG_SINGLEMATCH
    return flags


def build_database(catalog: Catalog, name: str) -> hs.Database:
    """One of DATABASES: all that is not thin, the thin with their first or all matches, words."""
    if name == "words":
        return _words_database(catalog.vocabularies)
    signatures = catalog.signatures
    chosen = [
        (number, pattern)
        for number, pattern in enumerate(patterns_of(signatures))
        if signatures[pattern.signature].thin == (name != "bulk")
    ]
    return compile_database(
        [hyperscan_form(pattern.expression) for _, pattern in chosen] or [b"\\x00never\\x00"],
        [number for number, _ in chosen] or [0],
        [pattern_flags(pattern, first=name == "thin-first") for _, pattern in chosen] or [0],
    )


def _words_database(vocabularies: Sequence[Vocabulary]) -> hs.Database:
    """Plain literals, which cost a fraction of what expressions do; `Words` looks closer."""
    of_vocabulary = {
        literal: number
        for number, vocabulary in enumerate(vocabularies)
        for literal in literals(vocabulary)
    }
    escaped = [_SPECIAL.sub(rb"\\\g<0>", literal.encode()) for literal in of_vocabulary]
    numbers = list(of_vocabulary.values())
    return compile_database(
        escaped or [b"\\x00never\\x00"], numbers or [0], [0] * max(1, len(numbers))
    )


def _load(raw: bytes | None) -> hs.Database | None:
    if raw is None:
        return None
    try:
        database = hs.loadb(raw, hs.HS_MODE_BLOCK)
        database.scratch = hs.Scratch(database)
    except hs.error:  # another CPU or library version wrote it
        return None
    return database


def _collect(database: hs.Database, data: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    append = found.append
    database.scan(data, match_event_handler=lambda i, _from, to, _flags, _ctx: append((i, to)))
    return found


@lru_cache(maxsize=4096)
def _compiled(expression: str, ignore_case: bool) -> regex.Pattern[str]:
    flags = regex.VERSION0 | regex.MULTILINE
    return regex.compile(expression, flags | regex.IGNORECASE if ignore_case else flags)
