"""Lines searched by what is known of lines like them: a job of many ranks repeats itself.

Of small sources all lines are looked up, of large ones those with a mark. Only lines of a new shape
are searched by the automata; of the others it is known which patterns are found in them, see
`match.shapes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from diagnose.ingest.source import Chunk
from diagnose.match.call_marks import CallMarks, marks_in, with_init
from diagnose.match.compile import Matcher, dense
from diagnose.match.lines import TEXT_LIMIT, Raw, segments
from diagnose.match.runs import Runs, runs
from diagnose.match.shapes import Shapes
from diagnose.match.thin_lines import ThinLines, Words

SMALL = 1 << 20  # bytes of a chunk: of large ones the automata look at many lines at once
PAYS = 2000  # lines that were searched before: a paste is read once
_FEW = 1 / 4  # of the lines: of so many unknown ones the thin patterns are looked for one by one


class _Found(NamedTuple):
    """What is in a line: patterns, words, thin patterns."""

    patterns: tuple[int, ...] = ()
    words: tuple[int, ...] = ()
    thin: Words = ()


_NOTHING = _Found()


class Told(NamedTuple):
    """What a chunk holds: segments in which something is found, NCCL's call lines.

    And, where that is known of all lines, the thin patterns.
    """

    raws: Iterator[Raw]
    calls: CallMarks
    thin: ThinLines | None = None


class KnownLines:
    """The memory of a matcher. Threads may share it."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._shapes: Shapes[bytes, _Found] = Shapes()
        self._lines = 0

    def search(self, chunk: Chunk, place: int) -> Told:
        """What a chunk that begins at `place` holds."""
        data = chunk.data
        if len(data) > SMALL:
            return self._search_marked(chunk, place)
        told = self._lines_in(data)
        if told is None:
            patterns, words, calls = self._matcher.scan(data)
            raws = chain(segments(chunk, patterns, place), segments(chunk, words, place))
            return Told(raws, calls)
        chunk.lines_are(told)
        kinds = dict.fromkeys(told.kinds)
        found, alike = self._found(data, told, kinds)
        thin = None
        if alike is not None:
            own = {number: one.thin for number, one in found.items() if one.thin}
            thin = ThinLines(told, alike, own)
        lines = ((n, at, end, found[n]) for n, at, end in told.spans(sorted(found)))
        begun = told.lines_of(with_init(kinds))
        inits = [(start, same) for same, _, starts in begun for start in starts]
        return Told(_raws(chunk, place, lines), marks_in(kinds, inits), thin)

    def _search_marked(self, chunk: Chunk, place: int) -> Told:
        data = chunk.data
        spans, told = self._matcher.marked(data)
        marked = b""
        if self._matcher.marks_all and b"\r" not in data and not dense(spans, data):
            marked = b"\n".join([data[start:end] for start, end in spans])
        lines = self._lines_in(marked)
        if lines is None:
            patterns, words, _ = self._matcher.scan_lines(data, spans, told)
            raws = chain(segments(chunk, patterns, place), segments(chunk, words, place))
            return Told(raws, told)
        found, _ = self._found(marked, lines, dict.fromkeys(lines.kinds))
        known = ((chunk.newlines(spans[n][0]), *spans[n], found[n]) for n in sorted(found))
        return Told(_raws(chunk, place, known), told)

    def _lines_in(self, data: bytes) -> Runs | None:
        """The lines of a text where they are best looked up; those that are cut cannot be."""
        if not data or b"\r" in data:
            return None
        if self._lines < PAYS:
            self._lines += data.count(b"\n") + 1
        told = runs(data) if self._lines >= PAYS else None
        return told if told and max(map(len, told.kinds)) <= TEXT_LIMIT + 1 else None

    def _found(
        self, data: bytes, told: Runs, kinds: Iterable[bytes]
    ) -> tuple[dict[int, _Found], dict[bytes, Words] | None]:
        """What is in lines, by their numbers, but for thin patterns that all of a shape have.

        Those are by shape, in the order of `kinds`, which are the shapes that there are; None where
        not all of them are known.
        """
        alike: dict[bytes, _Found] = {}
        thin: dict[bytes, Words] = {}
        apart: set[bytes] = set()  # shapes whose lines are not alike, or not known to be
        for same in kinds:
            known = self._shapes.known.get(same)
            one = None if known is None or known.fixed else known.values.get(None)
            if one is None:
                apart.add(same)
            elif one.patterns or one.words:
                alike[same] = one
            elif one.thin:
                thin[same] = one.thin
        found: dict[int, _Found] = {}
        for same, numbers, _ in told.lines_of(alike):
            found |= dict.fromkeys(numbers, alike[same])
        unknown: dict[int, bytes] = {}
        for same, numbers, starts in told.lines_of(apart):
            known = self._shapes.known.get(same)
            for number, start in zip(numbers, starts, strict=True):
                line = data[start : start + len(same) - 1]
                said = None if known is None else known.get(line)
                if said is None:
                    unknown[number] = line
                elif said is not _NOTHING:
                    found[number] = said
        few = len(unknown) <= _FEW * len(told)
        if unknown:
            found |= self._learned(unknown, told, few=few)
        return found, thin if few else None

    def _learned(self, lines: Mapping[int, bytes], told: Runs, *, few: bool) -> dict[int, _Found]:
        """What is in these lines, which are remembered; thin patterns where they are `few`."""
        found = self._searched(lines)
        for number, line in lines.items():
            spot = self._shapes.place(told.kind(number), line, self._matcher.doubts.fixed)
            if not few and spot is None:
                continue
            said = found.get(number, _NOTHING)
            if thin := self._thin(line):
                said = found[number] = said._replace(thin=thin)
            if spot is not None:
                self._shapes.put(spot, line, said)
        return found

    def _searched(self, lines: Mapping[int, bytes]) -> dict[int, _Found]:
        """The same but for thin patterns, by the automata."""
        chunk = Chunk(b"\n".join(lines.values()), 0, 0, list(lines))
        scanned = self._matcher.scan(chunk.data)
        patterns, words = (
            {raw.line: raw.patterns for raw in segments(chunk, hits, 0)}
            for hits in (scanned.patterns, scanned.words)
        )
        return {
            number: _Found(patterns.get(number, ()), words.get(number, ()))
            for number in (*patterns, *words)
        }

    def _thin(self, line: bytes) -> Words:
        """The thin patterns in a line. By itself: beside others it would depend on these."""
        ends: dict[int, tuple[int, int]] = {}
        for number, to in self._matcher.scan_thin(line, every=True):
            ends[number] = ends.get(number, (to, to))[0], to
        return tuple((number, first, last) for number, (first, last) in ends.items())


def _raws(chunk: Chunk, place: int, lines: Iterable[tuple[int, int, int, _Found]]) -> Iterator[Raw]:
    """The segments of the lines in which there is more than thin patterns.

    Of each line its number in the chunk, its start and end, and what is in it.
    """
    for number, at, end, (patterns, words, _) in lines:
        if patterns or words:
            line, offset = _where(chunk, number, at)
            data = chunk.data[at:end]
            if patterns:
                yield Raw(place + at, line, offset, data, patterns)
            if words:
                yield Raw(place + at, line, offset, data, words)


def _where(chunk: Chunk, number: int, at: int) -> tuple[int, int]:
    """Number and offset in its source of a line of a chunk."""
    line, offset = chunk.first_line + number, chunk.offset + at
    if chunk.lines is not None:
        line = chunk.lines[min(number, len(chunk.lines) - 1)]
    if chunk.raw_offsets is not None:
        offset = chunk.raw_offsets[min(number, len(chunk.raw_offsets) - 1)]
    return line, offset
