"""Lines of one shape: what is left of a line where every digit is as good as another.

Ranks print the same lines with other numbers, and programs write many of one shape in a row. `runs`
finds these by comparing bytes, at a tenth of what looking at each line costs; `ShapeTable` is the
one memory of what lines of a shape have in common: what is found in them, and what they say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from itertools import accumulate, compress
from operator import itemgetter
from typing import Any

from diagnose.catalog.entries import Meant
from diagnose.match.lines import Reading, author_at, author_places
from diagnose.match.rows import shape
from diagnose.parse.pace import StepForm, Times, form_of, may_tell, times_in
from diagnose.parse.prefix import Prefix, peel
from diagnose.parse.repeated import Way, peel_repeated, way_of

Span = tuple[int, int]
Ends = tuple[tuple[int, int, int], ...]  # pattern number, its first and last end in a line

MOST = 16 << 20  # bytes; a table that is full begins anew
_ENTRY = 400  # bytes of what is known of a line, roughly
_FIXED = 8  # places of a shape in which its lines may differ


_Places = tuple[tuple[str, int, int], ...]  # name, start and end of each capture


@dataclass(slots=True)
class ShapeMeaning:
    """What lines of a form say that were found to hold the same patterns.

    `matches` are those of each such line, but that captures with numbers, which are at `places`,
    are its own. Without a `way` they say nothing, whatever their numbers. `statements` is what the
    timeline makes of them, once.
    """

    way: Way | None = None
    matches: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    places: tuple[tuple[int, _Places], ...] = ()  # by their index in `matches`
    word: Meant | None = None
    statements: list[Any] | None = None

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
        """Whether all such lines capture the same by a match, which is told by its index."""
        return all(index != match for index, _ in self.places)


@dataclass(slots=True)
class Form:
    """What lines of a shape have in common that have the same digits where these matter.

    `found` are the patterns and the words that the automata find in them, `steps` the per-step
    patterns; None where nobody looked. `meanings` is what they say, by
    the patterns that are looked for; None where each line is to be looked at.
    """

    found: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    steps: Ends | None = None
    meanings: dict[tuple[int, ...], ShapeMeaning | None] = field(default_factory=dict)


class Asked(IntFlag):
    """Who asked for lines of a shape before."""

    SEARCH = 1
    MEANING = 2
    MESSAGE = 4
    TIMES = 8


@dataclass(slots=True)
class Entry:
    """What is known of the lines of one shape.

    `fixed` is where digits matter, None where nobody looked, or where there are too many such
    places: then nothing is known. `forms` are by the bytes in those places. What does not depend on
    digits: `author` is where lines name theirs, `works` whether they speak of work, `way` how their
    prefixes are peeled, `pace` where they have times of steps; `asked`: what is asked for once is
    not worth a closer look.
    """

    fixed: Sequence[Span] | None = None
    forms: dict[object, Form] = field(default_factory=dict)
    asked: int = 0
    unsure: bool = False
    key: Callable[[bytes], object] | None = None
    author: Sequence[Span] | None = None
    works: bool | None = None
    way: Way | None = None
    pace: StepForm | None = None

    def first(self, asked: Asked) -> bool:
        """Whether nobody asked this of such a line before, which is noted."""
        before, self.asked = self.asked, self.asked | asked
        return before == self.asked & ~asked

    def form(self, line: bytes) -> Form | None:
        """What is known of a line of this shape."""
        return self.forms.get(self.key(line) if self.key else None)

    @property
    def alike(self) -> Form | None:
        """What is known of all lines of this shape."""
        return None if self.key else self.forms.get(None)


class ShapeTable:
    """What is known of lines by their shape, without the line end. Threads may share it.

    `fixed` gives the places in which digits of lines of a shape matter to the catalog. `searched`
    and `confirmed` count the lines that the automata and the expressions looked at.
    """

    def __init__(self, fixed: Callable[[bytes], Sequence[Span]]) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.searched = self.confirmed = 0
        self._fixed = fixed
        self._size = 0

    def entry(self, same: bytes) -> Entry:
        """What is known of a shape."""
        found = self.entries.get(same)
        if found is None:
            self._grow(len(same))
            found = self.entries[same] = Entry()
        return found

    def form(self, line: bytes) -> Form | None:
        """What is known of a line; None without anything."""
        found = self.entries.get(shape(line))
        return None if found is None else found.form(line)

    def learned(self, same: bytes, line: bytes, asked: Asked) -> Form | None:
        """Where to note what is found out about a line; None if nothing is to be known of it.

        What never comes again is not worth a closer look: nothing is known of the first line of a
        shape, nor where digits matter in too many places.
        """
        entry = self.entry(same)
        if entry.first(asked) or entry.unsure:
            return None
        if entry.fixed is None:
            fixed = self._fixed(same)
            entry.unsure = len(fixed) > _FIXED
            if entry.unsure:
                return None
            if fixed:
                entry.key = itemgetter(*(slice(*span) for span in fixed))
            entry.fixed = fixed  # last, as another thread may look at once
        key = entry.key(line) if entry.key else None
        form = entry.forms.get(key)
        if form is None:
            self._grow(0)
            form = entry.forms[key] = Form()
        return form

    def author(self, line: bytes, begin: int, same: bytes) -> bytes:
        """`author_of` a line of this shape that begins there: one digit is as good as another."""
        return author_at(line, begin, self.author_places(same))

    def author_places(self, same: bytes) -> Sequence[Span]:
        """Where lines of a shape name their author; nowhere if they do not."""
        entry = self.entry(same)
        if entry.author is None:
            entry.author = author_places(same, 0)
        return entry.author

    def message(self, text: str) -> str:
        """The message of a line, all of it where its prefixes are all there is, without blanks."""
        entry = self.entry(shape(text.encode(errors="surrogateescape")))
        return (self.peel(text, entry)[1] or text).strip()

    def peel(self, text: str, entry: Entry) -> tuple[Prefix, str]:
        """What the prefixes of a line of a shape tell, and its message."""
        if entry.way is not None and (prefix := peel_repeated(text, entry.way)) is not None:
            return prefix, text[entry.way.message :]
        if not entry.first(Asked.MESSAGE):
            entry.way = way_of(text)
        prefix = peel(text)
        return prefix, prefix.message

    def times(self, line: bytes) -> tuple[Prefix, str, Times] | None:
        """What a line says of the times of a step, with its prefixes and its message."""
        same = shape(line)
        entry = self.entries.get(same)
        if entry is None or entry.pace is None:
            if not may_tell(line):
                return None
            entry = self.entry(same)
        text = line.decode(errors="replace")
        way, form = entry.way, entry.pace
        if way is not None and form is not None:
            repeated = peel_repeated(text, way)
            if repeated is not None:
                message = text[way.message :]
                times = form.times(message)
                return None if times is None else (repeated, message, times)
        prefix, message = self.peel(text, entry)
        # Where the numbers are is known in messages that begin at one place.
        if not entry.first(Asked.TIMES) and way is not None and text[way.message :] == message:
            entry.pace = form_of(message)
        times = times_in(message)
        return None if times is None else (prefix, message, times)

    def _grow(self, size: int) -> None:
        self._size += size + _ENTRY
        if self._size > MOST:
            self.entries.clear()
            self._size = 0


# After so many runs lines are taken one by one where runs have fewer lines than this.
_TRIED, _PAYS = 100, 4


@dataclass(frozen=True, slots=True)
class Runs:
    """The lines of a text by their runs; neighbours may be of one shape.

    `kinds` has the shape of the lines of each run, `starts` where it begins and
    `firsts` the number of its first line. The last two end with what comes behind the last run,
    which has a line end in any case.
    """

    kinds: Sequence[bytes]
    starts: Sequence[int]
    firsts: Sequence[int]

    def __len__(self) -> int:
        """How many lines there are."""
        return self.firsts[-1]

    def kind(self, number: int) -> bytes:
        """The shape of a line."""
        return self.kinds[bisect_right(self.firsts, number) - 1]

    def span(self, number: int) -> tuple[int, int]:
        """Start and end of a line."""
        run = bisect_right(self.firsts, number) - 1
        size = len(self.kinds[run]) + 1
        start = self.starts[run] + (number - self.firsts[run]) * size
        return start, start + size - 1

    def spans(self, numbers: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """Number, start and end of lines, which are in order."""
        run, end = -1, 0
        size = start = 0
        for number in numbers:
            while number >= end:
                run += 1
                end = self.firsts[run + 1]
                size = len(self.kinds[run]) + 1
                start = self.starts[run] - self.firsts[run] * size
            yield number, start + number * size, start + number * size + size - 1

    def at(self, place: int) -> tuple[int, int, int]:
        """Number, start and end of the line that a place is in, or the end of which it is."""
        run = bisect_right(self.starts, place) - 1
        begin, size = self.starts[run], len(self.kinds[run]) + 1
        before = (place - begin) // size
        start = begin + before * size
        return self.firsts[run] + before, start, start + size - 1

    def lines_of(self, kinds: Collection[bytes]) -> Iterator[tuple[bytes, range, range]]:
        """The runs of some shapes: each shape with the numbers of its lines and their starts."""
        if not kinds:
            return
        for run in compress(range(len(self.kinds)), map(kinds.__contains__, self.kinds)):
            same = self.kinds[run]
            starts = range(self.starts[run], self.starts[run + 1], len(same) + 1)
            yield same, range(self.firsts[run], self.firsts[run + 1]), starts

    def backwards(self, kinds: Container[bytes], high: int) -> Iterator[tuple[int, int, bytes]]:
        """Number, start and shape of the lines of some shapes that begin before `high`.

        The last one first; what is removed from the kinds meanwhile is passed over from there on.
        """
        before = range(bisect_left(self.starts, high, hi=len(self.kinds)) - 1, -1, -1)
        wanted = map(kinds.__contains__, map(self.kinds.__getitem__, before))
        for run in compress(before, wanted):
            same, begin = self.kinds[run], self.starts[run]
            size = len(same) + 1
            end = min(self.starts[run + 1], high + (begin - high) % size)
            for start in range(end - size, begin - 1, -size):
                yield self.firsts[run] + (start - begin) // size, start, same
                if same not in kinds:
                    break


def runs(data: bytes) -> Runs:
    """The lines of a text without carriage returns; a line end at its end begins an empty one."""
    text = shape(data) + b"\n"
    kinds: list[bytes] = []
    starts: list[int] = []
    firsts: list[int] = []
    at = number = 0
    while at < len(text) and (len(kinds) < _TRIED or number >= _PAYS * len(kinds)):
        begin, at = at, text.find(b"\n", at) + 1
        line = text[begin:at]
        if text.startswith(line, at):
            at = _end_of_run(text, line, at)
        kinds.append(line[:-1])
        starts.append(begin)
        firsts.append(number)
        number += (at - begin) // len(line)
    rest = text[at:].split(b"\n")[:-1]
    kinds += rest
    starts += accumulate([len(line) + 1 for line in rest], initial=at)
    firsts += range(number, number + len(rest) + 1)
    return Runs(kinds, starts, firsts)


def _end_of_run(text: bytes, line: bytes, at: int) -> int:
    """Where a line that begins at a place, again and again, does so no more."""
    block = line
    while text.startswith(block, at):
        at += len(block)
        block += block
    while len(block) > len(line):
        block = block[: len(block) // 2]
        if text.startswith(block, at):
            at += len(block)
    return at
