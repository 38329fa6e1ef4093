"""Lines searched by what is known of lines like them: a job of many ranks repeats itself.

Of small sources all lines are looked up, of large ones those with a mark. Only lines of a new shape
are searched by the automata; of the others it is known which patterns are found in them, see
`match.shapes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from diagnose.ingest.source import Chunk
from diagnose.match.call_marks import CallMarks, marks_in
from diagnose.match.compile import Matcher, dense
from diagnose.match.digits import shape
from diagnose.match.doubts import Doubts, doubts_of
from diagnose.match.lines import TEXT_LIMIT, Raw, segments
from diagnose.match.shapes import Shapes, Span

SMALL = 1 << 20  # bytes of a chunk: of large ones the automata look at many lines at once
PAYS = 2000  # lines that were searched before: a paste is read once

_NOTHING: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
_Found = tuple[tuple[int, ...], tuple[int, ...]]  # the patterns and the words of a line


class KnownLines:
    """The memory of a matcher. Threads may share it."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._shapes: Shapes[bytes, _Found] = Shapes()
        self._doubts: Doubts | None = None
        self._lines = 0

    def search(self, chunk: Chunk, place: int) -> tuple[Iterator[Raw], CallMarks]:
        """The segments of a chunk that begins at `place` in which something is found.

        Beside them what it holds of NCCL's call lines.
        """
        data = chunk.data
        if len(data) > SMALL:
            return self._search_marked(chunk, place)
        lines = data.split(b"\n")
        if self._pays(lines, data):
            return self._remembered(chunk, place, lines), marks_in(data)
        patterns, words, told = self._matcher.scan(data)
        return chain(segments(chunk, patterns, place), segments(chunk, words, place)), told

    def _search_marked(self, chunk: Chunk, place: int) -> tuple[Iterator[Raw], CallMarks]:
        data = chunk.data
        spans, told = self._matcher.marked(data)
        lines = [data[start:end] for start, end in spans]
        if self._matcher.marks_all and not dense(spans, data) and self._pays(lines, data):
            return self._remembered_marked(chunk, place, lines, spans), told
        patterns, words, _ = self._matcher.scan_lines(data, spans, told)
        return chain(segments(chunk, patterns, place), segments(chunk, words, place)), told

    def _pays(self, lines: list[bytes], data: bytes) -> bool:
        """Whether these lines of `data` are best looked up; those that are cut cannot be."""
        self._lines += len(lines)
        if self._lines < PAYS or not lines or b"\r" in data:
            return False
        return max(map(len, lines)) <= TEXT_LIMIT

    def _remembered_marked(
        self, chunk: Chunk, place: int, lines: list[bytes], spans: list[Span]
    ) -> Iterator[Raw]:
        found = self._found(lines, shape(b"\n".join(lines)).split(b"\n"))
        for number in sorted(found):
            start = spans[number][0]
            for patterns in found[number]:
                if patterns:
                    where = _where(chunk, chunk.newlines(start), start)
                    yield Raw(place + start, *where, lines[number], patterns)

    def _remembered(self, chunk: Chunk, place: int, lines: list[bytes]) -> Iterator[Raw]:
        found = self._found(lines, shape(chunk.data).split(b"\n"))
        at = 0
        for number, line in enumerate(lines):
            for patterns in found.get(number, ()):
                if patterns:
                    yield Raw(place + at, *_where(chunk, number, at), line, patterns)
            at += len(line) + 1

    def _found(self, lines: list[bytes], shapes: list[bytes]) -> dict[int, _Found]:
        """What is found in each line, by its number; nothing for those where nothing is."""
        found: dict[int, _Found] = {}
        unknown: list[int] = []
        for number, known in enumerate(map(self._shapes.known.get, shapes)):
            one = None if known is None else known.get(lines[number])
            if one is None:
                unknown.append(number)
            elif one is not _NOTHING:
                found[number] = one
        if unknown:
            found |= self._searched(lines, unknown)
            for number in unknown:
                line = lines[number]
                spot = self._shapes.place(shapes[number], line, self._fixed)
                if spot is not None:
                    self._shapes.put(spot, line, found.get(number, _NOTHING))
        return found

    def _searched(self, lines: list[bytes], numbers: list[int]) -> dict[int, _Found]:
        """The same of these lines, by the automata."""
        chunk = Chunk(b"\n".join([lines[number] for number in numbers]), 0, 0, numbers)
        scanned = self._matcher.scan(chunk.data)
        patterns, words = (
            {raw.line: raw.patterns for raw in segments(chunk, hits, 0)}
            for hits in (scanned.patterns, scanned.words)
        )
        return {
            number: (patterns.get(number, ()), words.get(number, ()))
            for number in (*patterns, *words)
        }

    def _fixed(self, same: bytes) -> list[Span] | None:
        """Where in lines of this shape digits matter; None if it is not sure."""
        if not same.isascii():
            return None
        if self._doubts is None:
            self._doubts = doubts_of(self._matcher.catalog)
        return self._doubts.fixed(same)


def _where(chunk: Chunk, number: int, at: int) -> tuple[int, int]:
    """Number and offset in its source of a line of a chunk."""
    line, offset = chunk.first_line + number, chunk.offset + at
    if chunk.lines is not None:
        line = chunk.lines[min(number, len(chunk.lines) - 1)]
    if chunk.raw_offsets is not None:
        offset = chunk.raw_offsets[min(number, len(chunk.raw_offsets) - 1)]
    return line, offset
