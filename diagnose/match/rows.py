"""What Hyperscan is given of a catalog: the rows of each of its databases.

The marks, plain literals, are looked for in all bytes; the lines that hold one are searched for
the patterns and the words. What is searched for may be simpler than a pattern, as long as it finds
all that the pattern does: `regex` confirms it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import hyperscan as hs

from diagnose.catalog.schema import Catalog, Signature
from diagnose.catalog.stored import sizes
from diagnose.catalog.vocabulary import Vocabulary, literals
from diagnose.lazy import Lazy, expression
from diagnose.match import call_marks
from diagnose.match.marks import marks_of
from diagnose.match.openings import openings
from diagnose.match.phrases import simpler, unbounded
from diagnose.match.prefilter import required

DATABASES = ("marks", "bulk", "rest", "words", "everywhere", "thin-first", "thin-all")
LITERAL = ("marks", "words")

_GROUP_NAME = expression(r"\(\?P<\w+>")
_LOOK = expression(r"\(\?<?[!=](?:\\.|[^()\\])*\)")
Row = tuple[bytes, int, int]  # what Hyperscan searches, its number, its flags
_GREEDY_TAIL = expression(
    r"(?<!\\)(?P<open>\(\?:)?(?P<atom>\.|\\[SwdD]|\[\^?(?:\\.|[^]\\])+\])(?P<times>[*+])(?(open)\))\Z"
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One regular expression of a signature; `anchored` ones search the peeled message."""

    signature: int
    expression: str
    anchored: bool
    ignore_case: bool


def rows_of(catalog: Catalog, name: str) -> list[Row]:
    """What is in one of DATABASES; see `database_of`.

    The marks announce `bulk` (with the codes of the vocabularies, numbered behind the patterns),
    `rest` and the words. Of the thin patterns the first or all matches are found.
    """
    if name == "marks":
        return _marks_of(catalog)
    if name == "words":
        return _words_of(catalog)
    patterns = patterns_of(catalog.signatures)
    rows = [
        (form.encode(), number, pattern_flags(pattern, first=name == "thin-first"))
        for number, pattern in enumerate(patterns)
        if _holds(name, pattern, thin=catalog.signatures[pattern.signature].thin)
        for form in searched(pattern, name)
    ]
    if name == "bulk":
        flags = int(hs.HS_FLAG_MULTILINE)
        rows += [
            (code_form(vocabulary), len(patterns) + number, flags)
            for number, vocabulary in enumerate(catalog.vocabularies)
            if vocabulary.pattern
        ]
    return rows


def database_of(pattern: Pattern) -> str:
    """Which database searches for a pattern that is not thin, by what announces it.

    `bulk` if a long literal does, `rest` if anything does, else `everywhere`.
    """
    if required(hyperscan_form(pattern.expression).decode()):
        return "bulk"
    return "rest" if announced(pattern) else "everywhere"


def _holds(name: str, pattern: Pattern, *, thin: bool) -> bool:
    """Whether one of DATABASES searches for a pattern."""
    if thin or name.startswith("thin"):
        return thin and name.startswith("thin")
    if name == "bulk":  # the largest one, which need not wait until all short literals are known
        return bool(required(hyperscan_form(pattern.expression).decode()))
    return database_of(pattern) == name


def searched(pattern: Pattern, name: str) -> list[str]:
    """What Hyperscan searches for a pattern in one of DATABASES: any of these.

    Of thin patterns it is the pattern itself: the last match of an author hides those before it.
    """
    form = hyperscan_form(pattern.expression).decode()
    if name == "bulk":
        return simpler(form)
    return [form if name.startswith("thin") else unbounded(form)]


def code_form(vocabulary: Vocabulary) -> bytes:
    """What Hyperscan searches for the codes of a vocabulary: it knows no look around."""
    return hyperscan_form(_LOOK.sub("", vocabulary.pattern))


@lru_cache(maxsize=8192)  # several of the databases ask
def announced(pattern: Pattern) -> frozenset[str]:
    """Literals one of which is in each line that a pattern matches; none if they are too common."""
    form = hyperscan_form(pattern.expression).decode()
    return required(form) or openings(form)


def _words_of(catalog: Catalog) -> list[Row]:
    """The words that are no codes."""
    words = {
        literal: number
        for number, vocabulary in enumerate(catalog.vocabularies)
        if not vocabulary.pattern
        for literal in literals(vocabulary)
    }
    return [(literal.encode(), number, 0) for literal, number in words.items()]


def _marks_of(catalog: Catalog) -> list[Row]:
    """Plain literals, which cost a fraction of what expressions do; a closer look follows.

    (Each has its own number: thousands with the same one take Hyperscan seconds to compile.)
    """
    signatures = catalog.signatures
    telling = {
        (literal, pattern.ignore_case)
        for pattern in patterns_of(signatures)
        if not signatures[pattern.signature].thin
        for literal in announced(pattern)
    }
    for vocabulary in catalog.vocabularies:
        form = code_form(vocabulary).decode()
        codes = openings(form) if form else frozenset()
        telling.update((literal, False) for literal in codes or literals(vocabulary))
    caseless = int(hs.HS_FLAG_CASELESS)
    return [
        *(
            (literal.encode(), number, caseless * ignored)
            for number, (literal, ignored) in enumerate(sorted(marks_of(telling)))
        ),
        *call_marks.rows(),
    ]


class _Patterns(Lazy[Pattern]):
    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._signatures = signatures
        self._starts = [0, *accumulate(sizes(signatures))]
        super().__init__(self._starts[-1])

    def make(self, index: int) -> Pattern:
        """The expression of a number."""
        number = bisect_right(self._starts, index) - 1
        signature = self._signatures[number]
        expression = signature.match[index - self._starts[number]]
        return Pattern(number, expression, expression.startswith("^"), signature.ignore_case)


def patterns_of(signatures: Sequence[Signature]) -> Sequence[Pattern]:
    """Every expression of the catalog, in a fixed order; its index is its number."""
    return _Patterns(signatures)


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


def pattern_flags(pattern: Pattern, *, first: bool) -> int:
    """Hyperscan flags of one pattern; `first` reports its first match in a block only."""
    flags = int(hs.HS_FLAG_MULTILINE)
    if pattern.ignore_case:
        flags |= hs.HS_FLAG_CASELESS
    if first:
        flags |= hs.HS_FLAG_SINGLEMATCH
    return flags
