"""Lines of per-step signatures: samples of a source, the last words of its authors, and more.

What is looked at is told by places in the source and not by chunks, so that the cuts between chunks
change nothing: of every block the first match of each pattern in its searched parts; of the end of
the source, or of the part where such lines end, the last line of each author.

Whether somebody worked on after an error is seen by what he had done before it, so lines of steps
around serious ones are kept whatever else is left out: of each author the last before, the first
after. The serious lines are known when a source was read to its end; what stands around them is
read again, if the source is small or can be read anywhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from diagnose.catalog.schema import Signature
from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import Chunk, Source
from diagnose.lazy import expression
from diagnose.match.compile import Matcher
from diagnose.match.lines import Reading, author_of, segments
from diagnose.match.shapes import Ends, Runs

if TYPE_CHECKING:
    from diagnose.match.gather import Gathered

Hits = list[tuple[int, int]]  # (pattern number, end in the data of the chunk)


@dataclass(slots=True)
class StepLines:
    """The per-step patterns in the lines of a chunk, where these are known.

    `alike` is what all lines of a shape hold, in the order of the first line of each, `own` what
    others do, by their numbers.
    """

    runs: Runs
    alike: Mapping[bytes, Ends]
    own: Mapping[int, Ends]

    def of(self, number: int, same: bytes) -> Ends:
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


def steps_in(line: bytes, matcher: Matcher) -> Ends:
    """The per-step patterns in a line. By itself: beside others it would depend on these."""
    ends: dict[int, tuple[int, int]] = {}
    for number, to in matcher.scan_steps(line, every=True):
        ends[number] = ends.get(number, (to, to))[0], to
    return tuple((number, first, last) for number, (first, last) in ends.items())


# The start of a source is searched in full, then one window per stride.
FULL = 256 << 10
STRIDE = 256 << 10
WINDOW = 16 << 10
# Of so many bytes the first match of a pattern is kept. So behind the first window of a block the
# others are searched a glance at a time, as far as the first match: most patterns are known then.
BLOCK = 4 << 20
GLANCE = 1 << 10
# How far from the end the last line of each author is looked for: a share of the source.
TAIL_MIN, TAIL_MAX, TAIL_SHARE = 256 << 10, 4 << 20, 256
# Last words of an author, which show how regularly it spoke; of many authors only the last one.
LAST_WORDS, FEW_AUTHORS = 4, 64
# The end is looked at backwards in such pieces, and only those closely that may hold a last word.
_PIECE = 16 << 10


def every_match(matcher: Matcher, chunk: Chunk) -> Hits:
    """All matches of per-step signatures in a chunk, a line at a time, which takes its time."""
    hits: Hits = []
    begin = 0
    while begin < len(chunk.data):
        end = chunk.data.find(b"\n", begin) + 1 or len(chunk.data)
        hits += [(number, begin + to) for number, to in matcher.scan_steps(chunk.data[begin:end])]
        begin = end
    return hits


class TailChunk(NamedTuple):
    """A chunk that may hold last words; `place` is that of its start.

    `lines`: what is known of its lines.
    """

    place: int
    chunk: Chunk
    lines: StepLines | None = None


@dataclass(slots=True)
class StepSearch:
    """The search of one source. `place` is a number of clean bytes from its start."""

    matcher: Matcher
    block: int = -1
    found: set[int] = field(default_factory=set)  # patterns found in this block
    last_stride: int = -1  # in which a sample matched
    last_glance: int = -1  # where in it the bytes begin that were searched at once
    recent: deque[TailChunk] = field(default_factory=deque)
    tail: list[TailChunk] = field(default_factory=list)

    def feed(self, place: int, chunk: Chunk, lines: StepLines | None = None) -> Hits:
        """The matches to keep of the next chunk, which begins at `place`, in order.

        `lines`: what is known of its lines already.
        """
        kept, before = TailChunk(place, chunk, lines), self.last_stride
        size = len(chunk.data)
        hits: Hits = []
        for stride in range(place // STRIDE, (place + size - 1) // STRIDE + 1):
            begin = stride * STRIDE
            if begin // BLOCK != self.block:
                self.block = begin // BLOCK
                self.found.clear()
            searched = STRIDE if begin < FULL else WINDOW
            once = GLANCE if begin >= FULL and begin % BLOCK else searched
            for glance in range(begin, begin + searched, once):
                if begin <= self.last_glance < glance:
                    break
                low = max(glance - place, 0)
                high = min(glance + once - place, begin + searched - place, size)
                for number, to in self._searched(kept, low, high):
                    self.last_stride, self.last_glance = stride, glance
                    if number not in self.found:
                        self.found.add(number)
                        hits.append((number, to))
        self._remember(kept, matched=self.last_stride != before)
        return hits

    def _searched(self, kept: TailChunk, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The first match of each pattern in the data from `low` to `high`."""
        data = kept.chunk.data
        if kept.lines is not None and low == 0 and high == len(data):
            yield from kept.lines.first()
        elif low < high:
            for number, to in self.matcher.scan_steps(data[low:high]):
                yield number, low + to

    def _remember(self, kept: TailChunk, *, matched: bool) -> None:
        """Keep what may hold the last words: from before the last match to a stride behind it."""
        self.recent.append(kept)
        oldest = kept.place - STRIDE - TAIL_MAX
        while self.recent[0].place + len(self.recent[0].chunk.data) <= oldest:
            self.recent.popleft()
        if matched:
            self.tail = list(self.recent)
        elif self.tail and kept.place < tail_end(self.last_stride):
            self.tail.append(kept)

    def last_words(self, size: int) -> Iterator[tuple[int, Chunk, Hits]]:
        """The last lines of every (author, pattern), by chunk; `size` is that of the source."""
        if self.last_stride < 0:
            return
        end = min(size, tail_end(self.last_stride))
        reach = min(TAIL_MAX, max(TAIL_MIN, size // TAIL_SHARE))
        chosen = list(self._last_within(end - reach, end))
        yield from chosen or self._last_within(end - TAIL_MAX, end)

    def _last_within(self, start: int, end: int) -> Iterator[tuple[int, Chunk, Hits]]:
        words = _LastWords(self.matcher)
        for kept in reversed(self.tail):
            place, data = kept.place, kept.chunk.data
            if place >= end or place + len(data) <= start:
                continue
            low = data.rfind(b"\n", 0, max(start - place, 0)) + 1
            newline = data.find(b"\n", end - place) if end - place < len(data) else -1
            high = newline if newline >= 0 else len(data)
            hits: Hits = []
            if kept.lines is not None:
                hits, high = words.known(kept.lines, data, low, high), low
            while low < high:
                begin = data.rfind(b"\n", low, max(low, high - _PIECE)) + 1 or low
                present = {number for number, _ in self.matcher.scan_steps(data[begin:high])}
                hits += words.of(data, begin, high, present)
                high = begin
            if hits:
                yield place, kept.chunk, sorted(hits, key=lambda hit: hit[1])


def tail_end(last_stride: int) -> int:
    """Up to where last words may stand, by the last stride in which a sample matched."""
    return (last_stride + 2) * STRIDE


@dataclass(slots=True)
class _LastWords:
    """What was found of each (author, pattern), from the end of a source backwards."""

    matcher: Matcher
    kept: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    few: set[bytes] = field(default_factory=set)  # authors whose last words are several

    def of(self, data: bytes, low: int, high: int, present: Collection[int]) -> Hits:
        """The hits to keep of whole lines, those between `low` and `high`, the last one first.

        Only patterns that are `present` can be in them.
        """
        if not present:
            return []
        block = data[low:high]
        rows = block.split(b"\n")
        names = [*map(author_of, rows)]
        authors = {*names}
        undecided = {
            (author, number)
            for author in authors
            for number in present
            if not self._known(author, number)
        }
        speakers = {author for author, _ in undecided}
        if not speakers:
            return []
        if len(speakers) < len(authors):
            own = [row for row, name in zip(rows, names, strict=True) if name in speakers]
            if not self.matcher.scan_steps(b"\n".join(own)):
                return []
        wanted = {number for _, number in undecided}
        hits: Hits = []
        begin, author, seen = high, b"", set[int]()
        for number, to in reversed(self.matcher.scan_steps(block, every=True)):
            if number not in wanted:
                continue
            if to < begin:
                begin = block.rfind(b"\n", 0, to) + 1
                author = author_of(block, begin)
                seen.clear()
            # Several ends of one match in a line are one word.
            if number in seen:
                continue
            seen.add(number)
            if not self._known(author, number):
                self._keep(author, number)
                hits.append((number, low + to))
        return hits

    def known(self, lines: StepLines, data: bytes, low: int, high: int) -> Hits:
        """The same of lines of which it is known what they hold."""
        hits: Hits = []
        left = lines.kinds()
        # Without a number in the name of its author, a shape that is alike is of one author.
        alone = {same for same in left & lines.alike.keys() if b"0" not in author_of(same)}
        done: set[tuple[bytes, int]] = set()  # what authors with these tags need not say again
        for number, start, same in lines.runs.backwards(left, high):
            if start < low:
                break
            author, words = self.matcher.shapes.author(data, start, same), lines.of(number, same)
            if (author, id(words)) not in done:
                for pattern, _, to in words:
                    if not self._known(author, pattern):
                        self._keep(author, pattern)
                        hits.append((pattern, start + to))
                if not all(self._known(author, pattern) for pattern, *_ in words):
                    continue
                done.add((author, id(words)))
            if same in alone:
                left.discard(same)
        return hits

    def _keep(self, author: bytes, number: int) -> None:
        self.kept[author, number] += 1
        if len(self.few) < FEW_AUTHORS:
            self.few.add(author)

    def _known(self, author: bytes, number: int) -> bool:
        return self.kept[author, number] >= (LAST_WORDS if author in self.few else 1)


# How far from an anchor lines are looked for.
BEFORE, AFTER = 32 << 10, 64 << 10
# Anchors of one entry of the catalog, and of a source: so many from the start and from the end.
_OF_ENTRY, _OF_SOURCE = (1, 2), (4, 12)
# Lines kept of each pattern before and after an anchor, of an author and of those without a tag.
_BEFORE, _BEFORE_UNTAGGED, _AFTER, _AFTER_UNTAGGED = 1, 24, 4, 48
_SERIOUS = ("cause", "effect")
_SEGMENT = expression(rb"[^\r\n]++")


class _Hit(NamedTuple):
    """A match: the place of its segment, who wrote that, the pattern, the chunk, its end there."""

    place: int
    author: bytes
    pattern: int
    chunk: int
    to: int


def near_serious(
    source: Source,
    found: Gathered,
    lines: Sequence[Reading],
    kept: Sequence[Reading],
    matcher: Matcher,
) -> list[Reading]:
    """The lines to keep around the serious ones of `lines`, but for those that are kept already."""
    serious = _serious(lines, matcher.signatures)
    if not serious:
        return []
    work = max((line.line for line in lines if _is_work(line, matcher.signatures)), default=-1)
    # Below the last step of all the last words of each author say how far it got.
    serious = [line for line in serious if line.line <= work]
    anchors = sorted(line.place for line in serious)
    known = {raw.place for raw in kept}
    spans = _spans(anchors)
    chunks = _chunks(source, found, spans)
    return [raw for raw in around(anchors, spans, chunks, matcher) if raw.place not in known]


def _serious(lines: Iterable[Reading], signatures: Sequence[Signature]) -> list[Reading]:
    """The first and the last lines of each kind that may tell of an error."""
    kinds: dict[object, list[Reading]] = defaultdict(list)
    for line in lines:
        for number, _ in line.matches:
            if signatures[number].role in _SERIOUS or signatures[number].signal == "trouble":
                kinds[number].append(line)
                break
        else:
            if line.word is not None:
                kinds[line.word.id].append(line)
    chosen = {id(line): line for own in kinds.values() for line in _ends(own, _OF_ENTRY)}
    return _ends(sorted(chosen.values(), key=attrgetter("place")), _OF_SOURCE)


def _is_work(line: Reading, signatures: Sequence[Signature]) -> bool:
    return any(signatures[number].role == "progress" for number, _ in line.matches)


def _ends(lines: list[Reading], size: tuple[int, int]) -> list[Reading]:
    first, last = size
    return lines if len(lines) <= first + last else [*lines[:first], *lines[-last:]]


def _chunks(
    source: Source, found: Gathered, spans: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, Chunk]]:
    """The chunks that hold these parts of a source, with their places, each once."""
    chunks = source.chunks
    if found.small or not isinstance(chunks, TextChunks) or not chunks.seekable():
        yield from ((chunk.offset, chunk) for chunk in found.small or found.ends)
        return
    starts = [offset for offset, _ in found.starts]
    done = 0
    for low, high in spans:
        begin = max(done, bisect_right(starts, low) - 1)
        done = max(begin, bisect_left(starts, high))
        if begin < done:
            end = starts[done] if done < len(starts) else None
            start, line = found.starts[begin]
            yield from ((chunk.offset, chunk) for chunk in chunks.part(start, end, line))


def around(
    places: Sequence[int],
    spans: Sequence[tuple[int, int]],
    chunks: Iterable[tuple[int, Chunk]],
    matcher: Matcher,
) -> list[Reading]:
    """The lines to keep around these anchors, which lie in these spans."""
    known = [*chunks]
    hits: list[_Hit] = []
    for number, (place, chunk) in enumerate(known):
        for low, high in spans:
            if low < place + len(chunk.data) and high > place:
                hits += _hits(number, place, chunk, (low, high), matcher)
    chosen: set[_Hit] = set()
    starts = [hit.place for hit in hits]
    for place in places:
        middle = bisect_right(starts, place)
        first = bisect_right(starts, place - BEFORE - 1)
        last = bisect_right(starts, place + AFTER)
        chosen.update(_quota(reversed(hits[first:middle]), _BEFORE, _BEFORE_UNTAGGED))
        chosen.update(_quota(hits[middle:last], _AFTER, _AFTER_UNTAGGED))
    found: list[Reading] = []
    for number, (place, chunk) in enumerate(known):
        own = sorted((hit.pattern, hit.to) for hit in chosen if hit.chunk == number)
        found += segments(chunk, sorted(own, key=itemgetter(1)), place)
    return found


def _spans(places: Sequence[int]) -> list[tuple[int, int]]:
    """What is looked at for these anchors, without overlaps."""
    spans: list[tuple[int, int]] = []
    for place in places:
        low, high = max(0, place - BEFORE), place + AFTER
        if spans and low <= spans[-1][1]:
            low = spans.pop()[0]
        spans.append((low, high))
    return spans


def _hits(
    number: int, place: int, chunk: Chunk, span: tuple[int, int], matcher: Matcher
) -> Iterator[_Hit]:
    """What is in the segments of a chunk that begin inside of a span, one hit of a pattern each."""
    data = chunk.data
    low, high = max(span[0] - place, 0), min(span[1] - place, len(data))
    begin = end = -1
    author, seen = b"", set[int]()
    for pattern, to in sorted(matcher.scan_steps(data[low:high], every=True), key=itemgetter(1)):
        if low + to > end:
            line = data.rfind(b"\n", 0, low + to) + 1
            begin = max(line, data.rfind(b"\r", line, low + to) + 1)
            segment = _SEGMENT.match(data, begin)
            end = segment.end() if segment else begin
            author, seen = author_of(data, line), set()
        if begin < low or pattern in seen:
            continue
        seen.add(pattern)
        yield _Hit(place + begin, author, pattern, number, low + to)


def _quota(hits: Iterable[_Hit], tagged: int, untagged: int) -> Iterator[_Hit]:
    """The first few of each author and pattern."""
    kept: Counter[tuple[bytes, int]] = Counter()
    for hit in hits:
        key = hit.author, hit.pattern
        kept[key] += 1
        if kept[key] <= (tagged if hit.author else untagged):
            yield hit
