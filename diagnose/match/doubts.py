"""Which digits of a line matter to the patterns that are looked for in all lines.

Few of the catalog's expressions tell digits apart, and these match only lines that hold certain
literals. In a shape without them (see `match.digits`) no digit matters; in others those do that
stand in the words which the expressions know.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from diagnose.catalog import cache
from diagnose.catalog.schema import Catalog
from diagnose.catalog.vocabulary import literals
from diagnose.match.digits import ANYWHERE, blurred, digits_in, may_match, shape, told_apart
from diagnose.match.openings import openings
from diagnose.match.prefilter import parts
from diagnose.match.rows import announced, code_form, hyperscan_form, patterns_of

BUILD = 4  # of what is kept: another one when it is made differently
_GRAM = 4  # characters of a literal by which it is found; shorter ones are looked for each time
_LEAST = 3  # characters of a literal that says something
_ANY_DIGIT = frozenset({ANYWHERE})
_DIGIT = re.compile(r"[0-9]")


class Doubt(NamedTuple):
    """An expression that tells digits apart, all literals in the shape of lines.

    Lines that it matches hold one literal of each of `sets`, and their shape has `form`, which is
    there where it counts; it knows the digits in `words`.
    """

    ignore_case: bool
    sets: Sequence[Sequence[str]]
    words: Sequence[str]
    form: str = ""

    def concerns(self, same: str) -> bool:
        """Whether it may match lines of a shape that holds a literal of the first set."""
        held = all(any(one in same for one in literals) for literals in self.sets[1:])
        # Other characters are several bytes, which is what expressions count.
        return held and (
            not same.isascii() or may_match(self.form, same, ignore_case=self.ignore_case)
        )


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
    """Those of a catalog, from the cache if they are there."""
    name = f"doubts-{BUILD}-{catalog.revision}.json"
    with suppress(ValueError, TypeError):  # something else wrote it, or half of it
        if raw := cache.read(name):
            return Doubts(Doubt(*row) for row in json.loads(raw))
    found = list(doubts(catalog))
    cache.keep(name, json.dumps(found).encode())
    return Doubts(found)


def doubts(catalog: Catalog) -> Iterator[Doubt]:
    """Those of patterns and of words."""
    for pattern in patterns_of(catalog.signatures):
        told = told_apart(pattern.expression)
        if told != frozenset():
            form = hyperscan_form(pattern.expression).decode()
            yield _doubt(announced(pattern), form, told, ignore_case=pattern.ignore_case)
    for vocabulary in catalog.vocabularies:
        words = literals(vocabulary)
        if vocabulary.pattern:
            form = code_form(vocabulary).decode()
            told = told_apart(form)
            if told != frozenset():
                yield _doubt(openings(form) or words, form, told)
            continue
        for word in filter(_DIGIT.search, words):
            same = shape(word.encode()).decode()
            yield Doubt(ignore_case=False, sets=[[same]], words=[same.lower()])


def _doubt(
    announcing: Iterable[str],
    form: str,
    told: frozenset[bytes] | None,
    *,
    ignore_case: bool = False,
) -> Doubt:
    told = told or _ANY_DIGIT
    sets = [announcing, *parts(form)]
    shapes = [{shape(one.encode()).decode() for one in literals} for literals in sets]
    if ignore_case:
        shapes = [{one.lower() for one in literals} for literals in shapes]
    good = {frozenset(one) for one in shapes[1:] if min(map(len, one)) >= _LEAST} - {
        frozenset(shapes[0])
    }
    return Doubt(
        ignore_case,
        [sorted(shapes[0]), *sorted(map(sorted, good))],
        sorted(word.decode() for word in told),
        blurred(form) if ANYWHERE in told else "",
    )
