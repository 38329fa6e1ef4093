"""The thin patterns in lines that were looked up by their shape."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from operator import itemgetter

Hits = list[tuple[int, int]]  # (pattern number, end in the data of the chunk)
Words = tuple[tuple[int, int, int], ...]  # pattern number, its first and last end in a line


@dataclass(slots=True)
class ThinLines:
    """The thin patterns in the lines of a chunk, where these are known.

    `starts` are the places of its lines, `alike` what all lines of a shape hold, in the order of
    the first line of each, `own` what others do, by their numbers.
    """

    shapes: Sequence[bytes]
    starts: Sequence[int]
    alike: Mapping[bytes, Words]
    own: Mapping[int, Words]

    def of(self, number: int) -> Words:
        """What a line holds."""
        return self.own.get(number) or self.alike.get(self.shapes[number], ())

    def kinds(self) -> set[bytes]:
        """The shapes of lines that may hold any."""
        return {*self.alike, *map(self.shapes.__getitem__, self.own)}

    def backwards(self, end: int, kinds: Container[bytes]) -> Iterator[int]:
        """The numbers of the lines of these kinds before a line, the last one first.

        What is removed from the kinds meanwhile is passed over from there on.
        """
        lines = islice(reversed(self.shapes), len(self.shapes) - end, None)
        return compress(range(end - 1, -1, -1), map(kinds.__contains__, lines))

    def first(self) -> Hits:
        """The first match of each pattern, in order."""
        found: dict[int, int] = {}
        for same, words in self.alike.items():
            for pattern, first, _ in words:
                if pattern not in found:
                    found[pattern] = self.starts[self.shapes.index(same)] + first
        for number, words in self.own.items():
            for pattern, first, _ in words:
                to = self.starts[number] + first
                found[pattern] = min(to, found.get(pattern, to))
        return sorted(found.items(), key=itemgetter(1))
