"""Finds words of the vocabularies in a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

import regex

from diagnose import search
from diagnose.catalog.entries import Meant
from diagnose.catalog.schema import HARMLESS, Vocabulary, Word, WordIndex
from diagnose.catalog.stored import word_index
from diagnose.lazy import expression
from diagnose.parse.prefix import peel

_TOKEN = expression(r"\w+")
_DIGIT = expression("[0-9]")
_SAME = str.maketrans("123456789", "000000000")
_LONGEST = 2000  # characters of a line that are looked through
_PATIENCE_S = 0.02
_STRENGTH = {"weak": 0, "medium": 1, "strong": 2}
# A line of the program, as in a traceback: the exception itself comes below it.
_CODE = expression(
    r"\s*(?:(?:raise|except|assert|return|#define) |(?:\} else )?if \()"
    r"|.{0,300}?\bframe #\d+: "
)
# Who says so goes on without it.
_PASSED = expression(
    r"(?i)\bignor(?:ed|ing)\b|\bfall(?:ing|s)? ?back|\bfallback|\bskip(?:ped|ping|s)?\b|\bhandled\b"
    r"|\busing (?:the )?(?:internal|default|built-?in)\b|\bno plugin found\b|\brecovered\b"
    r"|\bplugin load returned\b"
    r"|\bharmless\b|\bnot fatal\b|\bnon-fatal\b|\boptional\b"
)
# Who says so tries again, only informs or warns, or tells of what may be: a word is worth less.
_HANDLED = expression(
    r"(?i)\bretry|\bretri|\brecover|\battempt \d|\bwill try|\btrying again|\breconnect|\bif you\b"
    r"|\bmay be\b|\bto avoid\b|\bNCCL INFO\b|(?-i:\b[A-Z][A-Za-z]*Warning: )"
)


class Words:
    """The words of all vocabularies, by a token of each.

    `bare` is the class of an exception of which no more is known.
    """

    def __init__(self, vocabularies: Sequence[Vocabulary], bare: str = "") -> None:
        self._vocabularies = vocabularies
        self._bare = bare

    def find(self, line: str, *, raised: bool = False) -> Meant | None:
        """The word of a line that says most; `raised`: the line ended a traceback."""
        line = line[:_LONGEST]
        if _PASSED.search(line):
            return None
        handled = _HANDLED.search(line) is not None
        known = self._bare if raised else ""  # that the line is of an exception
        found = [
            (size, _meant(vocabulary, word, line, raised=raised, handled=handled))
            for size, vocabulary, word in (*self._spelled(line), *self._codes(line))
        ]
        best = max(
            (one for one in found if one[1].cause not in (HARMLESS, known)),
            key=lambda one: (one[1].names_cause, _STRENGTH[one[1].strength], one[0], one[1].id),
            default=None,
        )
        if best is None or _CODE.match(peel(line).message):
            return None
        return best[1]

    def blind(self, line: str) -> bool:
        """Whether `find` says the same of this line with any other digits."""
        line = line[:_LONGEST]
        same = line.translate(_SAME)
        if any(triggers.search(same) for triggers in self._triggers):
            return False
        return not any(token in self._numbered for token in _TOKEN.findall(same))

    def knows(self, spelling: str, word: Word) -> bool:
        """Whether a line that is just this spelling has this word."""
        return any(found is word for _, _, found in self._spelled(spelling))

    def _spelled(self, line: str) -> Iterator[tuple[int, Vocabulary, Word]]:
        for token in _TOKEN.finditer(line):
            for spelling, at, number, place in self._index.by_token.get(token.group(), ()):
                start = token.start() - at
                if start < 0 or not line.startswith(spelling, start):
                    continue
                end = start + len(spelling)
                before, after = line[start - 1 : start], line[end : end + 1]
                if _joined(before, spelling[0]) or _joined(spelling[-1], after):
                    continue
                vocabulary = self._vocabularies[number]
                yield len(spelling), vocabulary, vocabulary.words[place]

    def _codes(self, line: str) -> Iterator[tuple[int, Vocabulary, Word]]:
        for vocabulary, triggers, by_code in self._coded:
            if triggers.search(line):
                for match in _all(_compiled(vocabulary.pattern), line):
                    word = by_code.get(match["word"])
                    if word is not None:
                        yield len(match.group()), vocabulary, word

    @cached_property
    def _index(self) -> WordIndex:
        return word_index(self._vocabularies)

    @cached_property
    def _numbered(self) -> frozenset[str]:
        """Tokens, with each digit made a 0, that lead to words in which digits matter."""
        from diagnose.match.build import blind  # noqa: PLC0415  where much repeats itself

        return frozenset(
            token.translate(_SAME)
            for token, words in self._index.by_token.items()
            for spelling, _, number, place in words
            if _DIGIT.search(spelling)
            or not all(blind(near.text) for near in self._vocabularies[number].words[place].near)
        )

    @cached_property
    def _triggers(self) -> list[re.Pattern[str]]:
        """The same of codes."""
        return [re.compile(coded[1].pattern.translate(_SAME)) for coded in self._coded]

    @cached_property
    def _coded(self) -> list[tuple[Vocabulary, re.Pattern[str], dict[str, Word]]]:
        return [
            (
                vocabulary,
                re.compile("|".join(map(re.escape, vocabulary.triggers))),
                {code: word for word in vocabulary.words for code in word.spellings},
            )
            for vocabulary in (self._vocabularies[number] for number in self._index.coded)
        ]


def _joined(left: str, right: str) -> bool:
    """Whether two characters belong to one token."""
    return (left.isalnum() or left == "_") and (right.isalnum() or right == "_")


def _meant(vocabulary: Vocabulary, word: Word, line: str, *, raised: bool, handled: bool) -> Meant:
    near = (number for number, near in enumerate(word.near) if _stands(near.text, line))
    return Meant(vocabulary, word, next(near, -1), raised, handled)


def _all(pattern: regex.Pattern[str], line: str) -> list[regex.Match[str]]:
    """The places of a pattern in a line; none in one that is made to hurt."""
    try:
        return search.all_matches(pattern, line, _PATIENCE_S)
    except TimeoutError:
        return []


def _stands(text: str, line: str) -> bool:
    """Whether an expression is found in a line; not in one that is made to hurt."""
    try:
        return search.first_match(_compiled(text), line, _PATIENCE_S) is not None
    except TimeoutError:
        return False


@lru_cache(maxsize=2048)
def _compiled(text: str) -> regex.Pattern[str]:
    return regex.compile(text)
