"""The compiled catalog: Hyperscan automata over raw bytes, `regex` on what they found.

An automaton of literals reads everything; only lines that hold one are searched for the patterns.
Hyperscan tells where a pattern may end; the line around it is then searched again with `regex`,
which confirms the match and gives the captures. So what Hyperscan is given may be simpler than the
pattern, as long as it finds all that the pattern does. Thin signatures (one line a step) have
automata of their own: they match everywhere, and would slow the search for everything else
fourfold.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter

import hyperscan as hs
import regex

from diagnose.catalog import cache
from diagnose.catalog.schema import Catalog, Signature
from diagnose.catalog.vocabulary import literals
from diagnose.errors import CatalogError
from diagnose.match.phrases import simpler, unbounded
from diagnose.match.prefilter import fewest, lines_with, required
from diagnose.match.words import Words

# A search that takes longer than this on one line is given up: no line may stall the tool.
MATCH_TIMEOUT_S = 0.02
DATABASES = ("bulk", "rest", "thin-first", "thin-all", "words")
BUILD = 6  # of what is kept of them: another one when the same catalog is compiled differently
# Where literals are everywhere (a flood, a paste), a second look at single lines saves nothing.
_DENSE = 0.5

_NEVER = "no pattern at all"  # Hyperscan compiles no empty set
_GROUP_NAME = re.compile(r"\(\?P<\w+>")
Row = tuple[bytes, int, int]  # what Hyperscan searches, its number, its flags
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
        self._bulk, self._rest, self._thin_first, self._thin_all, self._words = databases
        self._mark = len(catalog.vocabularies)

    def scan(self, data: bytes) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What is in `data`: patterns that are not thin, and what may be words.

        Both are ordered by offset: (pattern number, end offset), and (-1 - number of the
        vocabulary, end offset).
        """
        found = hits_of(self._words, data)
        words = [(-1 - number, to) for number, to in found if number < self._mark]
        spans = lines_with(data, (to for number, to in found if number >= self._mark))
        hits = hits_of(self._rest, data)
        if sum(end - start for start, end in spans) > _DENSE * len(data):
            hits += hits_of(self._bulk, data)
        else:
            hits += self._in_lines(data, spans)
        return sorted(hits, key=itemgetter(1)), words

    def _in_lines(self, data: bytes, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The hits in these lines of all that literals announce."""
        if not spans:
            return
        lines = b"\n".join(data[start:end] for start, end in spans)
        at = [0, *accumulate(end - start + 1 for start, end in spans)]
        for number, to in hits_of(self._bulk, lines):
            line = bisect_right(at, to - 1) - 1
            yield number, spans[line][0] + to - at[line]

    def scan_thin(self, data: bytes, *, every: bool = False) -> list[tuple[int, int]]:
        """(pattern number, end offset) of thin patterns: the first of each, or every one."""
        return hits_of(self._thin_all if every else self._thin_first, data)

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
    version = hs.__version__  # type: ignore[attr-defined]
    kept = {name: f"{name}-{BUILD}-{catalog.revision}-{version}.hs" for name in DATABASES}
    read = ((name, _load(cache.read(file))) for name, file in kept.items())
    found = {name: database for name, database in read if database is not None}
    missing = [name for name in DATABASES if name not in found]
    try:
        found |= _built(catalog, missing)
    except hs.error as error:
        raise CatalogError(f"the patterns do not compile together: {error}") from error
    for name in missing:
        cache.keep(kept[name], hs.dumpb(found[name]))
    return Matcher(catalog, [found[name] for name in DATABASES])


def _built(catalog: Catalog, names: Sequence[str]) -> dict[str, hs.Database]:
    """Databases compiled anew, the largest beside the others: Hyperscan lets go of the lock."""
    if not names:
        return {}
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  once for a catalog

    with ThreadPoolExecutor(2) as threads:
        built = threads.map(lambda name: build_database(catalog, name), names)
        return dict(zip(names, built, strict=True))


def matcher_of(catalog: Catalog) -> Matcher:
    """The matcher of a catalog, compiled anew."""
    return Matcher(catalog, list(_built(catalog, DATABASES).values()))


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
    expressions: Sequence[bytes], ids: Sequence[int], flags: Sequence[int], *, literal: bool = False
) -> hs.Database:
    """A block-mode Hyperscan database; raises hyperscan.error for what is not linear-time."""
    database = hs.Database(mode=hs.HS_MODE_BLOCK)
    database.compile(
        expressions=list(expressions), ids=list(ids), elements=len(ids), flags=list(flags),
        literal=literal,
    )  # fmt: skip
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
    """One of DATABASES."""
    return compile_rows(rows_of(catalog, name), literal=name == "words")


def compile_rows(rows: Sequence[Row], *, literal: bool = False) -> hs.Database:
    """A database of these rows."""
    rows = rows or [(_NEVER.encode(), 0, 0)]
    return compile_database(
        [form for form, _, _ in rows], [number for _, number, _ in rows],
        [flags for _, _, flags in rows], literal=literal,
    )  # fmt: skip


def rows_of(catalog: Catalog, name: str) -> list[Row]:
    """What is in one of DATABASES.

    Of what is not thin all that literals announce, and the rest; the thin with their first or all
    matches; and the literals: words and what announces patterns.
    """
    if name == "words":
        return _literals_of(catalog)
    thin = name not in ("bulk", "rest")
    return [
        (form.encode(), number, pattern_flags(pattern, first=name == "thin-first"))
        for number, pattern in enumerate(patterns_of(catalog.signatures))
        if catalog.signatures[pattern.signature].thin == thin
        if thin or bool(announced(pattern)) == (name == "bulk")
        for form in searched(pattern, name)
    ]


def searched(pattern: Pattern, name: str) -> list[str]:
    """What Hyperscan searches for a pattern in one of DATABASES: any of these.

    Of thin patterns it is the pattern itself: the last match of an author hides those before it.
    """
    form = hyperscan_form(pattern.expression).decode()
    if name == "bulk":
        return simpler(form)
    return [unbounded(form) if name == "rest" else form]


@lru_cache(maxsize=8192)  # several of the databases ask
def announced(pattern: Pattern) -> frozenset[str]:
    """Literals one of which is in each line that a pattern matches; none if they are too common."""
    return required(hyperscan_form(pattern.expression).decode()) or frozenset()


def _literals_of(catalog: Catalog) -> list[Row]:
    """Plain literals, which cost a fraction of what expressions do; a closer look follows.

    Their number is that of the vocabulary, or one behind them all where a pattern may match.
    (Each its own: thousands with the same one take Hyperscan seconds to compile.)
    """
    mark, signatures = len(catalog.vocabularies), catalog.signatures
    words = {
        literal: number
        for number, vocabulary in enumerate(catalog.vocabularies)
        for literal in literals(vocabulary)
    }
    rows = [(literal.encode(), number, 0) for literal, number in words.items()]
    telling = {
        (literal, pattern.ignore_case)
        for pattern in patterns_of(signatures)
        if not signatures[pattern.signature].thin
        for literal in announced(pattern)
    }
    caseless = int(hs.HS_FLAG_CASELESS)
    rows += [
        (literal.encode(), mark + number, caseless * ignored)
        for number, (literal, ignored) in enumerate(sorted(fewest(telling)))
    ]
    return rows or [(_NEVER.encode(), mark, 0)]


def _load(raw: bytes | None) -> hs.Database | None:
    if raw is None:
        return None
    try:
        database = hs.loadb(raw, hs.HS_MODE_BLOCK)
        database.scratch = hs.Scratch(database)
    except hs.error:  # another CPU or library version wrote it
        return None
    return database


def hits_of(database: hs.Database, data: bytes) -> list[tuple[int, int]]:
    """(number, end offset) of everything in `data` that a database finds, ordered by offset."""
    found: list[tuple[int, int]] = []
    append = found.append
    database.scan(data, match_event_handler=lambda i, _from, to, _flags, _ctx: append((i, to)))
    return found


@lru_cache(maxsize=4096)
def _compiled(expression: str, ignore_case: bool) -> regex.Pattern[str]:
    flags = regex.VERSION0 | regex.MULTILINE
    return regex.compile(expression, flags | regex.IGNORECASE if ignore_case else flags)
