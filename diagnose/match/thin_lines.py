"""The thin patterns in lines that were looked up by their shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter

from diagnose.match.runs import Runs

Hits = list[tuple[int, int]]  # (pattern number, end in the data of the chunk)
Words = tuple[tuple[int, int, int], ...]  # pattern number, its first and last end in a line


@dataclass(slots=True)
class ThinLines:
    """The thin patterns in the lines of a chunk, where these are known.

    `alike` is what all lines of a shape hold, in the order of the first line of each, `own` what
    others do, by their numbers.
    """

    runs: Runs
    alike: Mapping[bytes, Words]
    own: Mapping[int, Words]

    def of(self, number: int, same: bytes) -> Words:
        """What a line of this shape holds."""
        return self.own.get(number) or self.alike.get(same, ())

    def kinds(self) -> set[bytes]:
        """The shapes of lines that may hold any."""
        return {*self.alike, *map(self.runs.kind, self.own)}

    def first(self) -> Hits:
        """The first match of each pattern, in order."""
        found: dict[int, int] = {}
        for same, words in self.alike.items():
            for pattern, first, _ in words:
                if pattern not in found:
                    found[pattern] = self.runs.starts[self.runs.kinds.index(same)] + first
        for number, words in self.own.items():
            for pattern, first, _ in words:
                to = self.runs.span(number)[0] + first
                found[pattern] = min(to, found.get(pattern, to))
        return sorted(found.items(), key=itemgetter(1))
