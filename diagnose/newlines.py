"""How many newlines stand before a place: counted between the places that are asked for."""

from __future__ import annotations

from bisect import bisect_left

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
        behind = index < len(places)
        if behind and places[index] == place:
            return counts[index]
        if behind and places[index] - place < place - places[index - 1]:
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
