"""The thin patterns in lines that were looked up by their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

Hits = list[tuple[int, int]]  # (pattern number, end in the data of the chunk)
Words = tuple[tuple[int, int, int], ...]  # pattern number, its first and last end in a line


@dataclass(slots=True)
class ThinLines:
    """The thin patterns in the lines of a chunk, where these are known.

    `starts` are the places of its lines, `alike` what all lines of a shape hold, `own` what others
    do, by their numbers.
    """

    shapes: Sequence[bytes]
    starts: Sequence[int]
    alike: Mapping[bytes, Words]
    own: Mapping[int, Words]
    numbers: list[int] = field(init=False)  # of the lines that hold any, in order

    def __post_init__(self) -> None:
        alike = [number for number, same in enumerate(self.shapes) if same in self.alike]
        self.numbers = sorted((*alike, *self.own)) if self.own else alike

    def of(self, number: int) -> Words:
        """What a line holds."""
        return self.own.get(number) or self.alike[self.shapes[number]]

    def first(self) -> Hits:
        """The first match of each pattern, in order."""
        found: dict[int, int] = {}
        seen: set[bytes] = set()
        for number in self.numbers:
            if self.shapes[number] in seen:
                continue
            if number not in self.own:
                seen.add(self.shapes[number])
            for pattern, first, _ in self.of(number):
                found.setdefault(pattern, self.starts[number] + first)
        return sorted(found.items(), key=itemgetter(1))
