"""Lines of per-step signatures: samples of a source, and the last words of its authors.

What is looked at is told by places in the source and not by chunks, so that the cuts between chunks
change nothing: of every block the first match of each pattern in its searched parts; of the end of
the source, or of the part where such lines end, the last line of each author. Few lines of a log
are of a new shape: of the others it is known which patterns they hold.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from diagnose.ingest.source import Chunk
from diagnose.match.compile import Matcher
from diagnose.match.lines import author_in, author_of, authors_of
from diagnose.match.shapes import Runs, Shapes, shape

Hits = list[tuple[int, int]]  # (pattern number, end in the data of the chunk)
Ends = tuple[tuple[int, int, int], ...]  # pattern number, its first and last end in a line


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


_MOST_AT_ONCE = (
    64 << 10
)  # bytes of lines that are looked up at once: one line may be as long as a log


class StepShapes:
    """The memory of a matcher. Threads may share it."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._shapes: Shapes[bytes, frozenset[int]] = Shapes()

    def present(self, data: bytes) -> frozenset[int] | None:
        """The per-step patterns in whole lines; None where some are of a shape not known yet."""
        if len(data) > _MOST_AT_ONCE:
            return None
        shapes = shape(data).split(b"\n")
        known = self._shapes.known
        try:
            return frozenset().union(*[known[same].values[None] for same in set(shapes)])
        except KeyError:
            self._learn(dict(zip(shapes, data.split(b"\n"), strict=True)))
            return None

    def _learn(self, lines: dict[bytes, bytes]) -> None:
        """Remember what is in these lines, by their shapes."""
        for same, line in lines.items():
            spot = self._shapes.place(same, line, self._matcher.doubts.fixed)
            if spot is not None and not spot.fixed and not spot.values:
                present = frozenset(number for number, _ in self._matcher.scan_steps(line))
                self._shapes.put(spot, line, present)


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
_NEWLINE = 10
# Last words of an author, which show how regularly it spoke; of many authors only the last one.
LAST_WORDS, FEW_AUTHORS = 4, 64
# What is searched in full is searched in pieces, of which is kept what they hold. The end is then
# looked at backwards in such pieces, and only those closely that may hold a last word.
_PIECE = 16 << 10
# After so many more pieces with new shapes than without, those of a source are no longer looked up.
_NEW_SHAPES = 16


def every_match(matcher: Matcher, chunk: Chunk) -> Hits:
    """All matches of per-step signatures in a chunk, a line at a time, which takes its time."""
    hits: Hits = []
    begin = 0
    while begin < len(chunk.data):
        end = chunk.data.find(b"\n", begin) + 1 or len(chunk.data)
        hits += [(number, begin + to) for number, to in matcher.scan_steps(chunk.data[begin:end])]
        begin = end
    return hits


@dataclass(slots=True)
class TailChunk:
    """A chunk that may hold last words; `place` is that of its start.

    `lines`: what is known of its lines. `seen`: of pieces of whole lines that were searched, by
    their ends in the data, where they begin and which patterns are in them.
    """

    place: int
    chunk: Chunk
    lines: StepLines | None = None
    seen: dict[int, tuple[int, frozenset[int]]] = field(default_factory=dict)


@dataclass(slots=True)
class StepSearch:
    """The search of one source. `place` is a number of clean bytes from its start."""

    matcher: Matcher
    block: int = -1
    found: set[int] = field(default_factory=set)  # patterns found in this block
    last_stride: int = -1  # in which a sample matched
    last_glance: int = -1  # where in it the bytes begin that were searched at once
    new_shapes: int = 0  # pieces with lines of a shape not known, less those without
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
        """What is in the data from `low` to `high`, of each piece the first match of a pattern."""
        data = kept.chunk.data
        if kept.lines is not None and low == 0 and high == len(data):
            yield from kept.lines.first()
            return
        while low < high:
            cut = high if high - low <= _PIECE else data.rfind(b"\n", low, low + _PIECE) + 1 or high
            piece = data[low:cut]
            whole = _at_line(data, low) and _at_line(data, cut)
            present = self._known(piece)
            if present is not None and present <= self.found:
                found = [(number, 0) for number in present]  # no first ones, wherever they are
            else:
                found = self.matcher.scan_steps(piece)
                present = frozenset(number for number, _ in found)
            if whole:
                kept.seen[cut] = low, present
            for number, to in found:
                yield number, low + to
            low = cut

    def _known(self, piece: bytes) -> frozenset[int] | None:
        """The patterns in a piece if its lines are of known shapes, as they are in most sources."""
        if self.new_shapes >= _NEW_SHAPES:
            return None
        present = self.matcher.step_shapes.present(piece)
        self.new_shapes += 1 if present is None else -1
        return present

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
                begin, present = kept.seen.get(high) or self._looked(data, low, high)
                begin = max(begin, low)
                hits += words.of(data, begin, high, present)
                high = begin
            if hits:
                yield place, kept.chunk, sorted(hits, key=lambda hit: hit[1])

    def _looked(self, data: bytes, low: int, high: int) -> tuple[int, frozenset[int]]:
        """Where the last piece of whole lines before `high` begins, and which patterns it holds."""
        cut = data.rfind(b"\n", low, max(low, high - _PIECE)) + 1 or low
        present = self._known(data[cut:high])
        if present is None:
            present = frozenset(number for number, _ in self.matcher.scan_steps(data[cut:high]))
        return cut, present


def _at_line(data: bytes, at: int) -> bool:
    """Whether no line is cut at a place in the data."""
    return at in (0, len(data)) or data[at - 1] == _NEWLINE


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
        authors = authors_of(block.split(b"\n"))
        undecided = {
            (author, number)
            for author in authors
            for number in present
            if not self._known(author, number)
        }
        speakers = {author for author, _ in undecided}
        if not speakers or (len(speakers) < len(authors) and not self._speak(speakers, block)):
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
            author, words = author_in(data, start, same), lines.of(number, same)
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

    def _speak(self, authors: Collection[bytes], block: bytes) -> bool:
        """Whether any of these authors says something that matches."""
        lines = [line for line in block.split(b"\n") if author_of(line) in authors]
        return bool(self.matcher.scan_steps(b"\n".join(lines)))

    def _keep(self, author: bytes, number: int) -> None:
        self.kept[author, number] += 1
        if len(self.few) < FEW_AUTHORS:
            self.few.add(author)

    def _known(self, author: bytes, number: int) -> bool:
        return self.kept[author, number] >= (LAST_WORDS if author in self.few else 1)
