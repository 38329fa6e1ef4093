"""What a catalog is searched with: Hyperscan's databases, and which digits matter to its patterns.

Compiled when the package is built; for another processor, and for the entries of a user, once on
this machine.

The marks, plain literals, are looked for in all bytes; the lines that hold one are searched for
the patterns and the words. What is searched for may be simpler than a pattern, as long as it finds
all that the pattern does: `regex` confirms it. Literals compile in no time, thousands of
expressions take seconds.

What an expression finds in one line it finds at the same places in all lines of that shape, unless
it tells digits apart. Most do so only inside of words (`P2P`, `comm 0x`), so that it is enough that
lines have the same digits there. Few of the catalog's expressions tell digits apart at all, and
these match only lines that hold certain literals: in a shape without them no digit matters.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from re import _constants as code  # type: ignore[attr-defined]  # no other parser of these is public
from typing import Any, NamedTuple

import hyperscan as hs

from diagnose.catalog import stored
from diagnose.catalog.load import default_dir, read_shipped
from diagnose.catalog.schema import Catalog, Signature, Vocabulary, literals
from diagnose.errors import CatalogError
from diagnose.lazy import expression
from diagnose.match.literals import (
    marks_of,
    openings,
    parsed_form,
    parts,
    required,
    simpler,
    unbounded,
)
from diagnose.match.rows import (
    DATABASES,
    LITERAL,
    Pattern,
    Row,
    call_rows,
    hyperscan_form,
    name_of,
    pattern_flags,
    patterns_of,
    shape,
)
from diagnose.search import Automaton, compile_database

_LOOK = expression(r"\(\?<?[!=](?:\\.|[^()\\])*\)")

Databases = dict[str, Automaton | None]


def compiled(catalog: Catalog) -> Databases:
    """All databases of a catalog, which are stored. Raises CatalogError for patterns too large."""
    try:
        found = compile_all(catalog)
    except hs.error as error:
        raise CatalogError(f"the patterns do not compile together: {error}") from error
    stored.keep(name_of(catalog.revision), _sections(catalog, found))
    return found


def build(folder: Path) -> None:
    """Put the shipped catalog and what it is searched with into a folder."""
    catalog = read_shipped(default_dir())
    stored.write(folder, stored.name_of(catalog.revision), stored.sections(catalog))
    stored.write(folder, name_of(catalog.revision), _sections(catalog, compile_all(catalog)))


def compile_all(catalog: Catalog, names: Iterable[str] = DATABASES) -> Databases:
    """Databases of a catalog, compiled anew."""
    found: Databases = {}
    for name in names:
        rows = rows_of(catalog, name)
        found[name] = compile_rows(rows, literal=name in LITERAL) if rows else None
    return found


def compile_rows(rows: Sequence[Row], *, literal: bool = False) -> Automaton:
    """A database of these rows, at least one."""
    forms, numbers, flags = zip(*rows, strict=True)
    return compile_database(forms, numbers, flags, literal=literal)


def _sections(catalog: Catalog, databases: Databases) -> dict[str, bytes]:
    return {"digits": json.dumps([*doubts(catalog)]).encode()} | {
        name: b"" if database is None else hs.dumpb(database.database)
        for name, database in databases.items()
    }


def rows_of(catalog: Catalog, name: str) -> list[Row]:
    """What is in one of DATABASES, see `database_of`.

    The marks announce `bulk` (with the codes of the vocabularies, numbered behind the patterns),
    `rest` and the words. Of the per-step patterns the first or all matches are found.
    """
    if name == "marks":
        return _marks_of(catalog)
    if name == "words":
        return _words_of(catalog)
    patterns = patterns_of(catalog.signatures)
    rows = [
        (form.encode(), number, pattern_flags(pattern, first=name == "sampled-first"))
        for number, pattern in enumerate(patterns)
        if _holds(name, pattern, catalog.signatures[pattern.signature])
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
    """Which database searches for a pattern that is not per-step, by what announces it.

    `bulk` if a long literal does, `rest` if anything does, else `everywhere`.
    """
    if required(hyperscan_form(pattern.expression).decode()):
        return "bulk"
    return "rest" if announced(pattern) else "everywhere"


def _holds(name: str, pattern: Pattern, signature: Signature) -> bool:
    """Whether a database searches for a pattern."""
    if signature.per_step or name.startswith("sampled"):
        return signature.per_step and name.startswith("sampled")
    if name == "bulk":  # the largest one, which need not wait until all short literals are known
        return bool(required(hyperscan_form(pattern.expression).decode()))
    return database_of(pattern) == name


def searched(pattern: Pattern, name: str) -> list[str]:
    """What Hyperscan searches for a pattern in a database: any of these.

    Of per-step patterns it is the pattern itself: the last match of an author hides those before.
    """
    form = hyperscan_form(pattern.expression).decode()
    if name == "bulk":
        return simpler(form)
    return [form if name.startswith("sampled") else unbounded(form)]


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
        if not signatures[pattern.signature].per_step
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
        *call_rows(),
    ]


_COUNTS = expression(r"(?<!\\)\{\d*,?\d*\}")
# What may tell digits apart: digits, what depends on what was captured, what `re` does not know.
_SPECIAL = expression(r"[0-9]|\(\?P=|\(\?\(|\[:|\\[aceg-mopquxyzCE-RT-VXY]")
_DIGITS = frozenset(map(ord, "0123456789"))
_INSIDE: dict[Any, Any] = {
    code.SUBPATTERN: lambda argument: [argument[-1]],
    code.BRANCH: lambda argument: argument[1],
    code.MAX_REPEAT: lambda argument: [argument[2]],
    code.MIN_REPEAT: lambda argument: [argument[2]],
    code.POSSESSIVE_REPEAT: lambda argument: [argument[2]],
    code.ATOMIC_GROUP: lambda argument: [argument],
    code.ASSERT: lambda argument: [argument[1]],
    code.ASSERT_NOT: lambda argument: [argument[1]],
}
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT)
_LOOKS = (code.ASSERT, code.ASSERT_NOT)
_ASCII = 128
_HOLDS_DIGITS = (code.CATEGORY_DIGIT, code.CATEGORY_WORD, code.CATEGORY_NOT_SPACE)
_NO_DIGITS = (code.CATEGORY_NOT_DIGIT, code.CATEGORY_NOT_WORD, code.CATEGORY_SPACE)


def _nothing(_: Any) -> tuple[()]:
    return ()


@lru_cache(maxsize=8192)
def words_around_digits(expression: str) -> frozenset[bytes] | None:
    """Words, in the shape of lines and small letters, around the digits that an expression knows.

    Where none of them stands in the shape of a line, it finds the same in all lines of that shape;
    elsewhere in those that have the same digits there. None where that is not sure.
    """
    if not _SPECIAL.search(_COUNTS.sub("", expression)):
        return frozenset()  # nine of ten: categories and ranges hold all digits or none
    try:
        return frozenset(_digit_words(parsed_form(expression)))
    except re.error:  # what `regex` knows more than `re`, and what depends on what was captured
        return None


def blind(expression: str) -> bool:
    """Whether an expression tells no digit from another."""
    return words_around_digits(expression) == frozenset()


def digits_in(same: bytes, words: Iterable[bytes]) -> list[tuple[int, int]]:
    """Where words of `words_around_digits` stand in the shape of a line."""
    found = set()
    low = same.lower()
    for word in words:
        at = low.find(word)
        while at >= 0:
            found.add((at, at + len(word)))
            at = low.find(word, at + 1)
    return sorted(found)


def _digit_words(items: Iterable[tuple[Any, Any]], before: str = "") -> Iterator[bytes]:
    """The words of a sequence; `before` are the characters that stand before it."""
    run, telling = before, False
    for operation, argument in items:
        digit = _tells(operation, argument)
        if digit or (operation is code.LITERAL and argument < _ASCII):
            run += "0" if digit else chr(argument).lower()
            telling = telling or digit
            continue
        if telling:
            yield run.encode()
        repeated = operation in _REPEATS and argument[1] > 1
        for part in _INSIDE.get(operation, _nothing)(argument):
            yield from _digit_words(part, "" if repeated or operation in _LOOKS else run)
        run, telling = "", False
    if telling:
        yield run.encode()


def _tells(operation: Any, argument: Any) -> bool:
    """Whether an item is one character and knows some digits from others. May raise re.error."""
    if operation in (code.LITERAL, code.NOT_LITERAL):
        return argument in _DIGITS
    if operation is code.IN:
        return 0 < len(_digits_of(argument)) < len(_DIGITS)
    if operation not in (code.ANY, code.AT) and operation not in _INSIDE:
        raise re.error("a back reference")
    return False


def _digits_of(members: Iterable[tuple[Any, Any]]) -> set[int]:
    """The digits that a class names."""
    named: set[int] = set()
    for operation, argument in members:
        if operation is code.LITERAL:
            named |= _DIGITS & {argument}
        elif operation is code.RANGE:
            named |= {digit for digit in _DIGITS if argument[0] <= digit <= argument[1]}
        elif operation is code.CATEGORY and argument in _HOLDS_DIGITS:
            named |= _DIGITS
        elif operation is code.CATEGORY and argument not in _NO_DIGITS:
            raise re.error("an unknown category")
    return named


_GRAM = 4  # characters of a literal by which it is found; shorter ones are looked for each time
_LEAST = 3  # characters of a literal that says something
_ANY_DIGIT = frozenset({b"0"})  # of `words_around_digits`: a digit with no word around it
_ANY = re.compile(r"[0-9]")


class Doubt(NamedTuple):
    """An expression that tells digits apart, all literals in the shape of lines.

    Lines that it matches hold one literal of each of `sets`; it knows the digits in `words`.
    """

    ignore_case: bool
    sets: Sequence[Sequence[str]]
    words: Sequence[str]

    def concerns(self, same: str) -> bool:
        """Whether it may match lines of a shape that holds a literal of the first set."""
        return all(any(one in same for one in literals) for literals in self.sets[1:])


class Doubts:
    """All of a catalog."""

    def __init__(self, doubts: Iterable[Doubt]) -> None:
        self._by_gram: dict[str, list[tuple[str, Doubt]]] = defaultdict(list)
        for doubt in doubts:
            for literal in doubt.sets[0]:
                gram = literal[:_GRAM].lower() if len(literal) >= _GRAM else ""
                self._by_gram[gram].append((literal, doubt))

    def fixed(self, same: bytes) -> list[tuple[int, int]]:
        """Where digits matter in lines of this shape."""
        text = same.decode(errors="replace")
        low = text.lower()
        words: set[str] = set()
        grams = {low[at : at + _GRAM] for at in range(len(low) - _GRAM + 1)}
        for gram in ("", *(grams & self._by_gram.keys())):
            for literal, doubt in self._by_gram.get(gram, ()):
                searched = low if doubt.ignore_case else text
                if literal in searched and doubt.concerns(searched):
                    words.update(doubt.words)
        return digits_in(same, [word.encode() for word in words])


def doubts_of(catalog: Catalog) -> Doubts:
    """Those of a catalog, as they were compiled if they are stored."""
    for found in stored.find(name_of(catalog.revision)):
        with suppress(ValueError, TypeError):
            return Doubts(Doubt(*row) for row in json.loads(found.section("digits").tobytes()))
    return Doubts(doubts(catalog))


def doubts(catalog: Catalog) -> Iterator[Doubt]:
    """Those of patterns and of words."""
    for pattern in patterns_of(catalog.signatures):
        known = words_around_digits(pattern.expression)
        if known != frozenset():
            form = hyperscan_form(pattern.expression).decode()
            yield _doubt(announced(pattern), form, known, ignore_case=pattern.ignore_case)
        # What cancels a match counts on lines that the pattern may match.
        for excluded in catalog.signatures[pattern.signature].unless:
            known = words_around_digits(excluded)
            if known != frozenset():
                form = hyperscan_form(excluded).decode()
                yield _doubt(announced(pattern), form, known, ignore_case=pattern.ignore_case)
    for vocabulary in catalog.vocabularies:
        words = literals(vocabulary)
        if vocabulary.pattern:
            form = code_form(vocabulary).decode()
            known = words_around_digits(form)
            if known != frozenset():
                yield _doubt(openings(form) or words, form, known)
            continue
        for word in filter(_ANY.search, words):
            same = shape(word.encode()).decode()
            yield Doubt(ignore_case=False, sets=[[same]], words=[same.lower()])


def _doubt(
    announcing: Iterable[str],
    form: str,
    known: frozenset[bytes] | None,
    *,
    ignore_case: bool = False,
) -> Doubt:
    known = known or _ANY_DIGIT
    sets = [announcing or ("",), *parts(form)]
    shapes = [{shape(one.encode()).decode() for one in literals} for literals in sets]
    if ignore_case:
        shapes = [{one.lower() for one in literals} for literals in shapes]
    good = {frozenset(one) for one in shapes[1:] if min(map(len, one)) >= _LEAST} - {
        frozenset(shapes[0])
    }
    return Doubt(
        ignore_case,
        [sorted(shapes[0]), *sorted(map(sorted, good))],
        sorted(word.decode() for word in known),
    )
