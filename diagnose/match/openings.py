"""Literals that announce an expression without a long word of its own.

From every place that each match passes, the texts are spelled out that may follow there: classes of
few characters, alternatives and repeats included. `(?:skip|skips) [ab]` has `skip a`, `skips b` and
so on. The set that says most is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from re import _constants as code  # type: ignore[attr-defined]  # no other parser of these is public
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from diagnose.match.prefilter import in_bulk

_GOOD = 6  # bytes, of which two may be blanks, that few other lines have
_AS_BAD = 16  # texts more that slow the search as much as one byte less
_LEAST = 2.5  # worth of a set that is better than none
_LENGTHS = (8, 6, 5, 4)  # characters to which texts are spelled out
_MOST = 160  # texts of one set
_WIDE = 64  # characters of a class that is spelled out
_CLASSES = {
    code.CATEGORY_DIGIT: "0123456789",
    code.CATEGORY_SPACE: " \t\n\r\f\v",
    code.CATEGORY_WORD: "".join(char for char in map(chr, range(128)) if re.match(r"\w", char)),
}
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT)

_Items = Sequence[tuple[Any, Any]]
_Texts = frozenset[str]


def openings(expression: str) -> _Texts:
    """Texts one of which each match has; the empty set where there are none that say anything."""
    try:
        parsed = parser.parse(expression)
    except re.error:  # `regex` and Hyperscan know more
        return frozenset()
    items = [*parsed]
    if caseless := parsed.state.flags & re.IGNORECASE:  # as if all of it stood in a group
        items = [(code.SUBPATTERN, (None, caseless, 0, items))]
    best = _best(_sets(items, []))
    return best if _worth(best) >= _LEAST else frozenset()


def _best(sets: Iterable[_Texts]) -> _Texts:
    """The one that says most; the first that is good enough, as each costs time to spell out."""
    best, most = frozenset[str](), -1.0
    for texts in sets:
        worth = _worth(texts)
        if worth > most:
            best, most = texts, worth
        if most >= _GOOD:
            break
    return best


@lru_cache(maxsize=256)  # each set is asked about again at once
def _worth(texts: _Texts) -> float:
    """Bytes of the shortest text, mostly; 0 for what is in most lines.

    Many texts are worse than few, short ones than long ones, and small letters are in all words.
    """
    if not texts or in_bulk(texts):
        return 0
    least = min(map(_told, texts))
    rare = sum(not text.replace(" ", "").islower() for text in texts) / len(texts)
    mean = sum(map(len, texts)) / len(texts)
    return min(_GOOD, least) - (len(texts) - mean) / _AS_BAD + rare / 2


def _told(text: str) -> int:
    """Bytes of a text that say something: of blanks two at most do."""
    size = len(text.encode())
    blanks = size - len("".join(text.split())) if text.isascii() else sum(map(str.isspace, text))
    return size - max(0, blanks - 2)


def _sets(items: _Items, after: _Items) -> Iterator[_Texts]:
    """The texts that follow from each place in `items` on, which `after` follows."""
    for at, (operation, argument) in enumerate(items):
        behind = [*items[at + 1 :], *after]
        yield _spelled([*items[at:], *after])
        if operation is code.SUBPATTERN and not argument[1] & re.IGNORECASE:
            yield from _sets([*argument[-1]], behind)
        elif operation is code.BRANCH:
            ways = [_best(_sets([*one], behind)) for one in argument[1]]
            if all(ways):
                yield frozenset().union(*ways)
        elif operation in _REPEATS and argument[0] >= 1:
            yield from _sets([*argument[2]], [(operation, (0, *argument[1:])), *behind])
            yield from _sets([*argument[2]], behind)  # the last time


def _spelled(items: _Items) -> _Texts:
    """The texts with which a sequence may begin, as long as there are not too many."""
    found: _Texts = frozenset()
    for length in _LENGTHS:
        spelling = _Spelling(length)
        texts = spelling.done | spelling.on({""}, items)
        found = max(found, _shortest(texts), key=_worth)
        if _worth(found) >= _GOOD:
            break
    return found


def _shortest(texts: set[str]) -> _Texts:
    """The texts that begin with no other one."""
    found: list[str] = []
    for text in sorted(texts):  # in this order those that begin with one stand behind it
        if not found or not text.startswith(found[-1]):
            found.append(text)
    return frozenset(found)


class _Spelling:
    """Spells out what a sequence matches, up to a length; `done` are texts that end there."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.done: set[str] = set()

    def on(self, texts: set[str], items: _Items, *, cased: bool = True) -> set[str]:
        """The texts with what comes next, but for those that nobody knows how to go on."""
        for operation, argument in items:
            if operation in (code.AT, code.ASSERT, code.ASSERT_NOT):
                continue  # no character of its own
            if not texts:
                break
            if operation is code.SUBPATTERN:
                still = cased and not argument[1] & re.IGNORECASE
                texts = self.on(texts, argument[-1], cased=still)
            elif operation is code.BRANCH:
                ways = [self.on(set(texts), one, cased=cased) for one in argument[1]]
                texts = set().union(*ways)
            elif operation in _REPEATS:
                texts = self._repeated(texts, argument, cased)
            else:
                chars = _characters(operation, argument, cased=cased)
                texts = self._longer(texts, chars)
        return texts

    def _repeated(self, texts: set[str], argument: Any, cased: bool) -> set[str]:
        least, most, inner = argument
        for _ in range(min(least, self._length)):
            texts = self.on(texts, inner, cased=cased)
        whole, last = set(texts), texts
        for _ in range(min(most - least, self._length)):
            last = self.on(last, inner, cased=cased) - whole
            if not last:
                break
            whole |= last
        return whole

    def _longer(self, texts: set[str], chars: str) -> set[str]:
        if not chars or len(texts) * len(chars) > _MOST:
            self.done |= texts
            return set()
        longer = {text + char for text in texts for char in chars}
        ended = {text for text in longer if len(text) >= self._length}
        self.done |= ended
        return longer - ended


def _characters(operation: Any, argument: Any, *, cased: bool) -> str:
    """Those that one item stands for; none if they are too many."""
    if operation is code.LITERAL:
        char = chr(argument)
        return char if cased else "".join({char.lower(), char.upper()})
    found: set[str] = set()
    for kind, value in argument if operation is code.IN else ():
        if kind is code.LITERAL:
            found.add(chr(value))
        elif kind is code.RANGE and value[1] - value[0] < _WIDE:
            found.update(map(chr, range(value[0], value[1] + 1)))
        elif kind is code.CATEGORY and value in _CLASSES:
            found.update(_CLASSES[value])
        else:
            return ""
    if not cased:
        found |= {char.swapcase() for char in found}
    return "".join(found) if len(found) <= _WIDE else ""
