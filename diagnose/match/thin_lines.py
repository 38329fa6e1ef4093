"""The thin patterns in lines that were looked up by their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        """What a line holds that holds any."""
        return self.own.get(number) or self.alike[self.shapes[number]]

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
