"""Lines of one shape: what is left of a line where every digit is as good as another.

Ranks print the same lines with other numbers, and programs write many of one shape in a row. `runs`
finds these by comparing bytes, at a tenth of what looking at each line costs; `Shapes` is a memory
of lines by their shape.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress
from operator import itemgetter
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Span = tuple[int, int]

_SAME = bytes.maketrans(b"123456789", b"000000000")
MOST = 8 << 20  # bytes; a memory that is full begins anew
_ENTRY = 400  # bytes of what is known of a line, roughly
_FIXED = 8  # places of a shape in which its lines may differ


def shape(data: bytes) -> bytes:
    """The shape of a line, or of several: as long, with each digit made a 0."""
    return data.translate(_SAME)


@dataclass(slots=True)
class Known(Generic[Value]):
    """What is known of the lines of a shape, by their bytes in the places where digits matter."""

    fixed: Sequence[Span]
    values: dict[object, Value] = field(default_factory=dict)
    _key: Callable[[bytes], object] = field(init=False)  # the bytes in those places

    def __post_init__(self) -> None:
        self._key = itemgetter(*(slice(*span) for span in self.fixed)) if self.fixed else _nothing

    def get(self, data: bytes) -> Value | None:
        """What is known of a line of this shape."""
        return self.values.get(self._key(data))

    def put(self, data: bytes, value: Value) -> None:
        """Remember what is known of a line."""
        self.values[self._key(data)] = value


def _nothing(_: bytes) -> None:
    """Where no digit matters, all lines are one."""


class Shapes(Generic[Key, Value]):
    """What is known of lines by a key that holds their shape. Threads may share it."""

    def __init__(self) -> None:
        self.known: dict[Key, Known[Value]] = {}
        self._once: Known[Value] = Known(())
        self._never: Known[Value] = Known(())
        self._size = 0

    def get(self, key: Key, data: bytes) -> Value | None:
        """What is known of a line; None without anything."""
        known = self.known.get(key)
        return None if known is None else known.get(data)

    def place(
        self, key: Key, data: bytes, fixed: Callable[[Key], Sequence[Span] | None]
    ) -> Known[Value] | None:
        """Where to `put` what is to be known of a line; None if nothing is.

        What never comes again is not worth a closer look: nothing is known of the first line of a
        shape, nor where `fixed` is not sure of the places where digits matter.
        """
        known = self.known.get(key)
        if known is None:
            self.known[key] = self._once
            self._grow(len(data))
            return None
        if known is self._once:
            spans = fixed(key)
            unsure = spans is None or len(spans) > _FIXED
            known = self.known[key] = self._never if unsure else Known(spans or ())
        return None if known is self._never else known

    def put(self, place: Known[Value], data: bytes, value: Value) -> None:
        """Remember what is known of a line."""
        place.put(data, value)
        self._grow(0)

    def never(self, key: Key) -> None:
        """There is nothing that all lines of this shape have in common."""
        self.known[key] = self._never

    def _grow(self, size: int) -> None:
        self._size += size + _ENTRY
        if self._size > MOST:
            self.known.clear()
            self._size = 0


# After so many runs lines are taken one by one where runs have fewer lines than this.
_TRIED, _PAYS = 100, 4


@dataclass(frozen=True, slots=True)
class Runs:
    """The lines of a text by their runs; neighbours may be of one shape.

    `kinds` has the shape of the lines of each run, with the line end, `starts` where it begins and
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
        size = len(self.kinds[run])
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
                size = len(self.kinds[run])
                start = self.starts[run] - self.firsts[run] * size
            yield number, start + number * size, start + number * size + size - 1

    def at(self, place: int) -> tuple[int, int, int]:
        """Number, start and end of the line that a place is in, or the end of which it is."""
        run = bisect_right(self.starts, place) - 1
        begin, size = self.starts[run], len(self.kinds[run])
        before = (place - begin) // size
        start = begin + before * size
        return self.firsts[run] + before, start, start + size - 1

    def lines_of(self, kinds: Collection[bytes]) -> Iterator[tuple[bytes, range, range]]:
        """The runs of some shapes: each shape with the numbers of its lines and their starts."""
        if not kinds:
            return
        for run in compress(range(len(self.kinds)), map(kinds.__contains__, self.kinds)):
            same = self.kinds[run]
            starts = range(self.starts[run], self.starts[run + 1], len(same))
            yield same, range(self.firsts[run], self.firsts[run + 1]), starts

    def backwards(self, kinds: Container[bytes], high: int) -> Iterator[tuple[int, int, bytes]]:
        """Number, start and shape of the lines of some shapes that begin before `high`.

        The last one first; what is removed from the kinds meanwhile is passed over from there on.
        """
        before = range(bisect_left(self.starts, high, hi=len(self.kinds)) - 1, -1, -1)
        wanted = map(kinds.__contains__, map(self.kinds.__getitem__, before))
        for run in compress(before, wanted):
            same, begin = self.kinds[run], self.starts[run]
            size = len(same)
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
        kinds.append(line)
        starts.append(begin)
        firsts.append(number)
        number += (at - begin) // len(line)
    rest = text[at:].splitlines(keepends=True)
    kinds += rest
    starts += accumulate(map(len, rest), initial=at)
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
