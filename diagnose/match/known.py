"""Lines searched by what is known of lines like them: a job of many ranks repeats itself.

Of small sources all lines are looked up, of large ones those with a mark. Only lines of a new shape
are searched by the automata; of the others it is known which patterns are found in them, see
`match.shapes`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import accumulate, chain, compress
from typing import NamedTuple

from diagnose.ingest.source import Chunk
from diagnose.match.call_marks import CallMarks, marks_in, with_init
from diagnose.match.compile import Matcher, dense
from diagnose.match.digits import shape
from diagnose.match.lines import TEXT_LIMIT, Raw, segments
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
        shapes = [] if b"\r" in data else shape(data).split(b"\n")
        kinds = dict.fromkeys(shapes)
        if not self._pays(len(shapes), kinds):
            patterns, words, told = self._matcher.scan(data)
            raws = chain(segments(chunk, patterns, place), segments(chunk, words, place))
            return Told(raws, told)
        starts = _starts(shapes)
        chunk.lines_begin(starts)
        begun = with_init(kinds)
        numbers, found, alike = self._found(data, shapes, kinds, starts, begun)
        thin = None
        if alike is not None:
            own = {number: one.thin for number, one in found.items() if one.thin}
            thin = ThinLines(shapes, starts, alike, own)
        lines = ((n, starts[n], starts[n + 1] - 1, found[n]) for n in sorted(found))
        inits = [(starts[n], shapes[n]) for n in numbers if shapes[n] in begun] if begun else []
        return Told(_raws(chunk, place, lines), marks_in(kinds, inits), thin)

    def _search_marked(self, chunk: Chunk, place: int) -> Told:
        data = chunk.data
        spans, told = self._matcher.marked(data)
        marked = b""
        if self._matcher.marks_all and b"\r" not in data and not dense(spans, data):
            marked = b"\n".join([data[start:end] for start, end in spans])
        shapes = shape(marked).split(b"\n") if marked else []
        kinds = dict.fromkeys(shapes)
        if not self._pays(len(shapes), kinds):
            patterns, words, _ = self._matcher.scan_lines(data, spans, told)
            raws = chain(segments(chunk, patterns, place), segments(chunk, words, place))
            return Told(raws, told)
        _, found, _ = self._found(marked, shapes, kinds, _starts(shapes))
        lines = ((chunk.newlines(spans[n][0]), *spans[n], found[n]) for n in sorted(found))
        return Told(_raws(chunk, place, lines), told)

    def _pays(self, lines: int, kinds: Collection[bytes]) -> bool:
        """Whether lines of these kinds are best looked up; those that are cut cannot be."""
        self._lines += lines
        return self._lines >= PAYS and bool(kinds) and max(map(len, kinds)) <= TEXT_LIMIT

    def _found(
        self,
        data: bytes,
        shapes: Sequence[bytes],
        kinds: Iterable[bytes],
        starts: Sequence[int],
        asked: Set[bytes] = frozenset(),
    ) -> tuple[list[int], dict[int, _Found], dict[bytes, Words] | None]:
        """What is in lines, by their numbers, but for thin patterns that all of a shape have.

        Those are by shape, in the order of `kinds`, which are the shapes that there are; None where
        not all of them are known. Before both the numbers of all lines that were looked at one by
        one, those of the `asked` shapes among them.
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
        looked_at = alike.keys() | apart | asked
        numbers = [*compress(range(len(shapes)), map(looked_at.__contains__, shapes))]
        found: dict[int, _Found] = {}
        unknown: list[int] = []
        for number in numbers:
            same = shapes[number]
            said = alike.get(same)
            if said is None and (known := self._shapes.known.get(same)) is not None:
                said = known.get(data[starts[number] : starts[number] + len(same)])
            if said is None:
                unknown.append(number)
            elif said is not _NOTHING:
                found[number] = said
        few = len(unknown) <= _FEW * len(shapes)
        if unknown:
            lines = {number: data[starts[number] : starts[number + 1] - 1] for number in unknown}
            found |= self._learned(lines, shapes, few=few)
        return numbers, found, thin if few else None

    def _learned(
        self, lines: Mapping[int, bytes], shapes: Sequence[bytes], *, few: bool
    ) -> dict[int, _Found]:
        """What is in these lines, which are remembered; thin patterns where they are `few`."""
        found = self._searched(lines)
        for number, line in lines.items():
            spot = self._shapes.place(shapes[number], line, self._matcher.doubts.fixed)
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


def _starts(lines: Sequence[bytes]) -> list[int]:
    """Where each of these lines begins if they follow each other, and one beyond the last end."""
    before = accumulate(map(len, lines), initial=0)  # bytes, but for the line ends
    return [size + number for number, size in enumerate(before)]


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
