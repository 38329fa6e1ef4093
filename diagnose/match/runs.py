"""Lines that follow each other, told by their shape: programs write many of one shape in a row.

A run of them is found by comparing bytes, at a tenth of what looking at each line costs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress

from diagnose.match.digits import shape

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
        run, behind = -1, 0
        size = start = 0
        for number in numbers:
            while number >= behind:
                run += 1
                behind = self.firsts[run + 1]
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
            at = _behind(text, line, at)
        kinds.append(line)
        starts.append(begin)
        firsts.append(number)
        number += (at - begin) // len(line)
    rest = text[at:].splitlines(keepends=True)
    kinds += rest
    starts += accumulate(map(len, rest), initial=at)
    firsts += range(number, number + len(rest) + 1)
    return Runs(kinds, starts, firsts)


def _behind(text: bytes, line: bytes, at: int) -> int:
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
