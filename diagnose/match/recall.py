"""What lines say, remembered by their shape: ranks print the same lines with other numbers.

The first line of a shape is searched with each of its patterns. Where these tell no digits apart,
other lines of the shape say the same, and what they capture stands at the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from diagnose.catalog.entries import Meant
from diagnose.match.compile import Found, Matcher, in_text
from diagnose.match.digits import ANYWHERE, blurred, digits_in, may_match, shape, told_apart
from diagnose.match.lines import Line, Raw
from diagnose.match.patience import HARMLESS
from diagnose.match.rows import hyperscan_form
from diagnose.match.shapes import Shapes, Span
from diagnose.parse.again import Way, peel_again, tells_time, way_of

PAYS = 200  # lines that were searched before: of a paste nothing is remembered

_Places = tuple[tuple[str, int, int], ...]  # name, start and end of each capture
_Key = tuple[bytes, tuple[int, ...]]  # a shape and the patterns that are looked for


@dataclass(frozen=True, slots=True)
class Said:
    """What lines of one shape, with the same digits where these matter, say.

    `matches` are those of each such line, but that captures with numbers, which stand at `places`,
    are its own. Without a `way` they say nothing, whatever their numbers. `kept` is for whoever
    works something out for all of them.
    """

    way: Way | None = None
    matches: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    places: tuple[tuple[int, _Places], ...] = ()  # by their index in `matches`
    word: Meant | None = None
    kept: list[Any] = field(default_factory=list, compare=False)

    def line(self, raw: Raw) -> Line | None:
        """A line like this; None where the numbers of a time are none. There is a way."""
        assert self.way is not None
        text = raw.data.decode(errors="replace")
        prefix = peel_again(text, self.way)
        if prefix is None:
            return None
        matches = self.matches
        if self.places:
            matches = matches.copy()
            for index, places in self.places:
                captures = {}
                for name, start, end in places:
                    captures[name] = text[start:end]
                matches[index] = (matches[index][0], captures)
        return Line(raw.line, raw.offset, text, prefix, matches, self.word, self)

    def same(self, match: int) -> bool:
        """Whether all such lines capture the same."""
        return all(index != match for index, _ in self.places)


_NOTHING = Said()


class Recall:
    """The memory of a matcher. Threads may share it."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._shapes: Shapes[_Key, Said] = Shapes()
        self._searched = 0

    def said(self, raw: Raw) -> Said | None:
        """What a line says in which these patterns were found; None if that is not known."""
        return self._shapes.get((shape(raw.data), raw.patterns), raw.data)

    def learn(
        self, raw: Raw, text: str, message: str, found: Mapping[int, Found], word: Meant | None
    ) -> None:
        """Remember what a line says, for others of its shape."""
        self._searched += 1
        if self._searched < PAYS:
            return
        key = shape(raw.data), raw.patterns
        place = self._shapes.place(key, raw.data, self._fixed)
        if place is None:
            return
        said = self._common(raw, text, message, found, word)
        if said is None:
            self._shapes.never(key)
        else:
            self._shapes.put(place, raw.data, said)

    def _fixed(self, key: _Key) -> list[Span] | None:
        """Where in lines of a shape digits matter to the patterns; None if it is not sure."""
        same, patterns = key
        if len(same) > HARMLESS:
            return None
        words: set[bytes] = set()
        text = same.decode(errors="replace")
        for number in patterns:
            for told in _told_apart(number, text, self._matcher) if number >= 0 else ():
                if told is None:
                    return None
                words |= told
        return digits_in(same, words)

    def _common(
        self, raw: Raw, text: str, message: str, found: Mapping[int, Found], word: Meant | None
    ) -> Said | None:
        """What all such lines say; None if each is to be looked at."""
        matcher = self._matcher
        if word_matters(found, raw.patterns, matcher) and not matcher.words.blind(text):
            return None
        if not found and word is None and not message:
            return _NOTHING
        way = way_of(text)
        if way is None or (message and not _in_place(text, message, way.message)):
            return None
        if not found and word is None:
            # Where the numbers are no time, the expressions look at more than the message.
            return Said(way) if tells_time(way) else _NOTHING
        ordered = in_text(found)
        matches = [(number, match.captures()) for number, match in ordered]
        places = tuple(
            (index, tuple(_captured(match)))
            for index, (_, match) in enumerate(ordered)
            if any(map(_numbered, matches[index][1].values()))
        )
        return Said(way, matches, places, word)


def word_matters(found: Iterable[int], patterns: Iterable[int], matcher: Matcher) -> bool:
    """Whether a word may say more of a line than the signatures that were found."""
    known = [matcher.signatures[number] for number in found]
    return all(signature.generic for signature in known) and bool(known or min(patterns) < 0)


def _told_apart(number: int, same: str, matcher: Matcher) -> Iterator[frozenset[bytes] | None]:
    """The digits that the expressions of a pattern tell from others in lines of a shape."""
    pattern = matcher.patterns[number]
    for expression in (pattern.expression, *matcher.signatures[pattern.signature].unless):
        words = told_apart(expression)
        if words and ANYWHERE in words:
            form = blurred(hyperscan_form(expression).decode())
            if not may_match(form, same, ignore_case=pattern.ignore_case):
                continue
        yield words


def _numbered(text: str) -> bool:
    return any(map(str.isdigit, text))


def _in_place(text: str, message: str, begin: int) -> bool:
    """Whether the message stands nowhere else in the line before its place, whatever its digits."""
    bare = message.strip()
    at = begin + len(message) - len(message.lstrip())
    same = shape(text.encode()), shape(bare.encode())
    return text.find(bare) == at and same[0].find(same[1]) == at


def _captured(found: Found) -> Iterable[tuple[str, int, int]]:
    """The captures of a match, by their places in the line."""
    for name in found.match.re.groupindex:
        start, end = found.match.span(name)
        if start >= 0:
            yield name, found.at + start, found.at + end
