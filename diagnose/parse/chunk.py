"""What parsers are given of a log: a piece of it, and where it stood."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

_SHORT = 16 << 10  # bytes of which bytes.count is done before numpy begins
_BLOCK = 256 << 10  # bytes that numpy looks at at once: what it makes of them stays in the cache
_PAYS = 64 << 20  # longer pieces of so many bytes were counted: loading numpy takes less time now


class Newlines:
    """The newlines before places in a piece of bytes, each counted from the nearest one known."""

    __slots__ = ("_counts", "_data", "_places")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._places = [0]
        self._counts = [0]

    def before(self, place: int) -> int:
        """How many stand before a place."""
        places, counts = self._places, self._counts
        index = bisect_left(places, place)
        known_after = index < len(places)
        if known_after and places[index] == place:
            return counts[index]
        if known_after and places[index] - place < place - places[index - 1]:
            count = counts[index] - between(self._data, place, places[index])
        else:
            count = counts[index - 1] + between(self._data, places[index - 1], place)
        places.insert(index, place)
        counts.insert(index, count)
        return count


class _Counter:
    """Counts newlines in numpy, several times faster than bytes.count, once loading it pays."""

    def __init__(self) -> None:
        self._counted = 0

    def between(self, data: bytes, start: int, end: int) -> int:
        """How many newlines stand between two places."""
        size = end - start
        if size < _SHORT:
            return data.count(b"\n", start, end)
        if self._counted < _PAYS:
            self._counted += size
            return data.count(b"\n", start, end)
        import numpy as np  # noqa: PLC0415  for large logs only

        text = np.frombuffer(data, np.uint8, size, start)
        found = np.empty(min(size, _BLOCK), bool)
        count = 0
        for at in range(0, size, _BLOCK):
            block = text[at : at + _BLOCK]
            is_end = np.equal(block, ord("\n"), out=found[: len(block)])
            count += int(np.count_nonzero(is_end))
        return count


between = _Counter().between


class Lines(Protocol):
    """What knows where the lines of a text are."""

    def at(self, place: int) -> tuple[int, int, int]:
        """Number, start and end of the line that a place is in, or the end of which it is."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a source as clean UTF-8 bytes: escape codes, NULs and paste marks removed.

    `data` ends at a line end, except inside a line longer than the chunk limit and at the end of
    a source without a final newline. `first_line` is the 1-based number of its first line in the
    original source, `offset` the byte offset of its start there (for compressed and UTF-16
    sources: in the decompressed, UTF-8 text). `lines`, when given, maps each line of `data`
    (0-based) to its original line number: normalising pasted text joins hard-wrapped lines.
    `raw_offsets` likewise maps each line to its original byte offset where bytes were removed.
    """

    data: bytes
    offset: int
    first_line: int
    lines: Sequence[int] | None = None
    raw_offsets: Sequence[int] | None = None
    _newlines: list[Newlines] = field(default_factory=list, init=False, repr=False, compare=False)
    _known: list[Lines] = field(default_factory=list, init=False, repr=False, compare=False)

    def lines_are(self, known: Lines) -> None:
        """Take what knows where its lines are: newlines need no counting."""
        self._known.append(known)

    def line_at(self, place: int) -> tuple[int, int, int] | None:
        """Number, start and end of the line at a place, if it was told where lines are."""
        return self._known[0].at(place) if self._known else None

    def number(self, newlines: int) -> int:
        """The number in its source of the line behind so many newlines."""
        if not self.lines:
            return self.first_line + newlines
        return self.lines[min(newlines, len(self.lines) - 1)]

    def offset_at(self, start: int, newlines: int) -> int:
        """The offset in its source of the line that begins there, behind so many newlines."""
        if self.raw_offsets is None:
            return self.offset + start
        return self.raw_offsets[min(newlines, len(self.raw_offsets) - 1)]

    def newlines(self, place: int | None = None) -> int:
        """How many newlines stand before a place in `data`, or in all of it."""
        place = len(self.data) if place is None else place
        if not place:
            return 0
        if self._known:
            return self._known[0].at(place)[0]
        if not self._newlines:
            self._newlines.append(Newlines(self.data))
        return self._newlines[0].before(place)


class Origin(Protocol):
    """Where chunks come from, as far as a parser wants to know."""

    @property
    def name(self) -> str:
        """How people call the source."""

    @property
    def rank(self) -> int | None:
        """The rank that its name tells."""

    @property
    def task(self) -> int | None:
        """The task of a launcher that its name tells."""

    @property
    def notes(self) -> list[str]:
        """Remarks for people, to which a parser may add."""
