"""What is remembered of lines by their shape: a job of many ranks repeats itself.

`KnownLines` is for what is found in them: of small sources all lines are looked up, of large ones
those with a mark, and only lines of a new shape are searched by the automata. `Recall` is for what
they say: the first line of a shape is searched with each of its patterns; where these tell no
digits apart, other lines of the shape say the same, and what they capture stands at the same
places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from diagnose.catalog.entries import Meant
from diagnose.ingest.source import Chunk
from diagnose.match.calls import CallMarks, marks_in, with_init
from diagnose.match.compile import Found, Matcher, dense, in_text
from diagnose.match.digits import ANYWHERE, blurred, digits_in, may_match, words_around_digits
from diagnose.match.lines import TEXT_LIMIT, Reading, segments
from diagnose.match.rows import hyperscan_form
from diagnose.match.shapes import Runs, Shapes, Span, runs, shape
from diagnose.match.steps import Ends, StepLines
from diagnose.parse.repeated import Way, peel_repeated, tells_time, way_of
from diagnose.search import HARMLESS

SMALL = 1 << 20  # bytes of a chunk: of large ones the automata look at many lines at once
SEARCHES_PAY = 2000  # lines that were searched before: a paste is read once
_FEW = (
    1 / 4
)  # of the lines: of so many unknown ones the per-step patterns are looked for one by one


class _Found(NamedTuple):
    """What is in a line: patterns, words, per-step patterns."""

    patterns: tuple[int, ...] = ()
    words: tuple[int, ...] = ()
    steps: Ends = ()


_NOTHING_FOUND = _Found()


class Searched(NamedTuple):
    """What a chunk holds: segments in which something is found, NCCL's call lines.

    And, where that is known of all lines, the per-step patterns.
    """

    raws: Iterator[Reading]
    calls: CallMarks
    steps: StepLines | None = None


class KnownLines:
    """The memory of a matcher. Threads may share it."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._shapes: Shapes[bytes, _Found] = Shapes()
        self._lines = 0

    def search(self, chunk: Chunk, place: int) -> Searched:
        """What a chunk that begins at `place` holds."""
        data = chunk.data
        if len(data) > SMALL:
            return self._search_marked(chunk, place)
        rows = self._lines_in(data)
        if rows is None:
            patterns, words, calls = self._matcher.scan(data)
            raws = chain(segments(chunk, patterns, place), segments(chunk, words, place))
            return Searched(raws, calls)
        chunk.lines_are(rows)
        kinds = dict.fromkeys(rows.kinds)
        found, alike = self._found(data, rows, kinds)
        steps = None
        if alike is not None:
            own = {number: one.steps for number, one in found.items() if one.steps}
            steps = StepLines(rows, alike, own)
        lines = ((n, at, end, found[n]) for n, at, end in rows.spans(sorted(found)))
        begun = rows.lines_of(with_init(kinds))
        inits = [(start, same) for same, _, starts in begun for start in starts]
        return Searched(_raws(chunk, place, lines), marks_in(kinds, inits), steps)

    def _search_marked(self, chunk: Chunk, place: int) -> Searched:
        data = chunk.data
        spans, calls = self._matcher.marked(data)
        marked = b""
        if self._matcher.marks_all and b"\r" not in data and not dense(spans, data):
            marked = b"\n".join([data[start:end] for start, end in spans])
        lines = self._lines_in(marked)
        if lines is None:
            patterns, words, _ = self._matcher.scan_lines(data, spans, calls)
            raws = chain(segments(chunk, patterns, place), segments(chunk, words, place))
            return Searched(raws, calls)
        found, _ = self._found(marked, lines, dict.fromkeys(lines.kinds))
        known = ((chunk.newlines(spans[n][0]), *spans[n], found[n]) for n in sorted(found))
        return Searched(_raws(chunk, place, known), calls)

    def _lines_in(self, data: bytes) -> Runs | None:
        """The lines of a text where they are best looked up; those that are cut cannot be."""
        if not data or b"\r" in data:
            return None
        if self._lines < SEARCHES_PAY:
            self._lines += data.count(b"\n") + 1
        rows = runs(data) if self._lines >= SEARCHES_PAY else None
        return rows if rows and max(map(len, rows.kinds)) <= TEXT_LIMIT + 1 else None

    def _found(
        self, data: bytes, rows: Runs, kinds: Iterable[bytes]
    ) -> tuple[dict[int, _Found], dict[bytes, Ends] | None]:
        """What is in lines, by their numbers, but for per-step patterns that all of a shape have.

        Those are by shape, in the order of `kinds`, which are the shapes that there are; None where
        not all of them are known.
        """
        alike: dict[bytes, _Found] = {}
        steps: dict[bytes, Ends] = {}
        apart: set[bytes] = set()  # shapes whose lines are not alike, or not known to be
        for same in kinds:
            known = self._shapes.known.get(same)
            one = None if known is None or known.fixed else known.values.get(None)
            if one is None:
                apart.add(same)
            elif one.patterns or one.words:
                alike[same] = one
            elif one.steps:
                steps[same] = one.steps
        found: dict[int, _Found] = {}
        for same, numbers, _ in rows.lines_of(alike):
            found |= dict.fromkeys(numbers, alike[same])
        unknown: dict[int, bytes] = {}
        for same, numbers, starts in rows.lines_of(apart):
            known = self._shapes.known.get(same)
            for number, start in zip(numbers, starts, strict=True):
                line = data[start : start + len(same) - 1]
                meaning = None if known is None else known.get(line)
                if meaning is None:
                    unknown[number] = line
                elif meaning is not _NOTHING_FOUND:
                    found[number] = meaning
        few = len(unknown) <= _FEW * len(rows)
        if unknown:
            found |= self._learned(unknown, rows, few=few)
        return found, steps if few else None

    def _learned(self, lines: Mapping[int, bytes], rows: Runs, *, few: bool) -> dict[int, _Found]:
        """What is in these lines, which are remembered; per-step patterns where they are `few`."""
        found = self._searched(lines)
        for number, line in lines.items():
            spot = self._shapes.place(rows.kind(number), line, self._matcher.doubts.fixed)
            if not few and spot is None:
                continue
            meaning = found.get(number, _NOTHING_FOUND)
            if steps := self._steps(line):
                meaning = found[number] = meaning._replace(steps=steps)
            if spot is not None:
                self._shapes.put(spot, line, meaning)
        return found

    def _searched(self, lines: Mapping[int, bytes]) -> dict[int, _Found]:
        """The same but for per-step patterns, by the automata."""
        chunk = Chunk(b"\n".join(lines.values()), 0, 0, list(lines))
        scanned = self._matcher.scan(chunk.data)
        patterns, words = (
            {raw.line: raw.patterns for raw in segments(chunk, hits, 0)}
            for hits in (scanned.patterns, scanned.words)
        )
        return {
            number: _Found(patterns.get(number, ()), words.get(number, ()))
            for number in (*patterns, *words)
        }

    def _steps(self, line: bytes) -> Ends:
        """The per-step patterns in a line. By itself: beside others it would depend on these."""
        ends: dict[int, tuple[int, int]] = {}
        for number, to in self._matcher.scan_steps(line, every=True):
            ends[number] = ends.get(number, (to, to))[0], to
        return tuple((number, first, last) for number, (first, last) in ends.items())


def _raws(
    chunk: Chunk, place: int, lines: Iterable[tuple[int, int, int, _Found]]
) -> Iterator[Reading]:
    """The segments of the lines in which there is more than per-step patterns.

    Of each line its number in the chunk, its start and end, and what is in it.
    """
    for number, at, end, (patterns, words, _) in lines:
        if patterns or words:
            line, offset = _where(chunk, number, at)
            data = chunk.data[at:end]
            if patterns:
                yield Reading(place + at, line, offset, data, patterns)
            if words:
                yield Reading(place + at, line, offset, data, words)


def _where(chunk: Chunk, number: int, at: int) -> tuple[int, int]:
    """Number and offset in its source of a line of a chunk."""
    line, offset = chunk.first_line + number, chunk.offset + at
    if chunk.lines is not None:
        line = chunk.lines[min(number, len(chunk.lines) - 1)]
    if chunk.raw_offsets is not None:
        offset = chunk.raw_offsets[min(number, len(chunk.raw_offsets) - 1)]
    return line, offset


READINGS_PAY = 200  # lines that were searched before: of a paste nothing is remembered

_Places = tuple[tuple[str, int, int], ...]  # name, start and end of each capture
_Key = tuple[bytes, tuple[int, ...]]  # a shape and the patterns that are looked for


@dataclass(frozen=True, slots=True)
class ShapeMeaning:
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

    def fill(self, line: Reading) -> bool:
        """Whether a line says this, which is noted in it: not where the numbers of a time are none.

        There is a way.
        """
        assert self.way is not None
        text = line.data.decode(errors="replace")
        prefix = peel_repeated(text, self.way)
        if prefix is None:
            return False
        matches = self.matches
        if self.places:
            matches = matches.copy()
            for index, places in self.places:
                captures = {}
                for name, start, end in places:
                    captures[name] = text[start:end]
                matches[index] = (matches[index][0], captures)
        line.text, line.data, line.prefix = text, b"", prefix
        line.matches, line.word, line.alike = matches, self.word, self
        return True

    def same(self, match: int) -> bool:
        """Whether all such lines capture the same."""
        return all(index != match for index, _ in self.places)


_NOTHING_MEANT = ShapeMeaning()


class Recall:
    """The memory of a matcher. Threads may share it."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._shapes: Shapes[_Key, ShapeMeaning] = Shapes()
        self._searched = 0

    def meaning(self, raw: Reading) -> ShapeMeaning | None:
        """What a line says in which these patterns were found; None if that is not known."""
        return self._shapes.get((shape(raw.data), raw.patterns), raw.data)

    def learn(
        self, raw: Reading, text: str, message: str, found: Mapping[int, Found], word: Meant | None
    ) -> None:
        """Remember what a line says, for others of its shape."""
        self._searched += 1
        if self._searched < READINGS_PAY:
            return
        key = shape(raw.data), raw.patterns
        place = self._shapes.place(key, raw.data, self._fixed)
        if place is None:
            return
        meaning = self._common(raw, text, message, found, word)
        if meaning is None:
            self._shapes.never(key)
        else:
            self._shapes.put(place, raw.data, meaning)

    def _fixed(self, key: _Key) -> list[Span] | None:
        """Where in lines of a shape digits matter to the patterns; None if it is not sure."""
        same, patterns = key
        if len(same) > HARMLESS:
            return None
        words: set[bytes] = set()
        text = same.decode(errors="replace")
        for number in patterns:
            for digits in _digits_known(number, text, self._matcher) if number >= 0 else ():
                if digits is None:
                    return None
                words |= digits
        return digits_in(same, words)

    def _common(
        self, raw: Reading, text: str, message: str, found: Mapping[int, Found], word: Meant | None
    ) -> ShapeMeaning | None:
        """What all such lines say; None if each is to be looked at."""
        matcher = self._matcher
        if word_matters(found, raw.patterns, matcher) and not matcher.words.blind(text):
            return None
        if not found and word is None and not message:
            return _NOTHING_MEANT
        way = way_of(text)
        if way is None or (message and not _in_place(text, message, way.message)):
            return None
        if not found and word is None:
            # Where the numbers are no time, the expressions look at more than the message.
            return ShapeMeaning(way) if tells_time(way) else _NOTHING_MEANT
        ordered = in_text(found)
        matches = [(number, match.captures()) for number, match in ordered]
        places = tuple(
            (index, tuple(_captured(match)))
            for index, (_, match) in enumerate(ordered)
            if any(map(_has_digits, matches[index][1].values()))
        )
        return ShapeMeaning(way, matches, places, word)


def word_matters(found: Iterable[int], patterns: Iterable[int], matcher: Matcher) -> bool:
    """Whether a word may say more of a line than the signatures that were found."""
    known = [matcher.signatures[number] for number in found]
    return all(signature.generic for signature in known) and bool(known or min(patterns) < 0)


def _digits_known(number: int, same: str, matcher: Matcher) -> Iterator[frozenset[bytes] | None]:
    """The digits that the expressions of a pattern tell from others in lines of a shape."""
    pattern = matcher.patterns[number]
    for expression in (pattern.expression, *matcher.signatures[pattern.signature].unless):
        words = words_around_digits(expression)
        if words and ANYWHERE in words:
            form = blurred(hyperscan_form(expression).decode())
            if not may_match(form, same, ignore_case=pattern.ignore_case):
                continue
        yield words


def _has_digits(text: str) -> bool:
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
