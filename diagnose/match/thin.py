"""Lines of thin signatures (one a step): samples of a source, and the last words of its authors.

What is looked at is told by places in the source and not by chunks, so that the cuts between chunks
change nothing: of every block the first match of each pattern in its searched parts; of the end of
the source, or of the part where such lines end, the last line of each author.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from diagnose.ingest.source import Chunk
from diagnose.match.compile import Matcher

# The start of a source is searched in full, then one window per stride.
FULL = 256 << 10
STRIDE = 256 << 10
WINDOW = 16 << 10
# Of so many bytes the first match of a pattern is kept.
BLOCK = 4 << 20
# How far from the end the last line of each author is looked for: a share of the source.
TAIL_MIN, TAIL_MAX, TAIL_SHARE = 128 << 10, 4 << 20, 256
# Last words of an author without a tag, among whom there may be several.
LAST_WORDS = 4
# The end is searched backwards in blocks, and only those in full that may hold a last word.
_SEARCHED = 16 << 10

# What sets the authors of interleaved lines apart, without parsing them: launcher and rank tags.
# A time of day looks like NCCL's host:pid:tid, but would make every second an author.
_AUTHOR = re.compile(
    rb"(?:\[\d+,\d+\]<\w+>:|\[[A-Za-z_]*\d+\]:?(?:<\w+>:)?| *\d+: |\([\w ]*pid=[^)]*\)"
    rb"|(?!\d\d?:)[\w.-]+:\d+:\d+ |[\w-]+: (?=\[)){0,16}"
)

Hits = list[tuple[int, int]]  # (pattern number, end in the data of the chunk)


@dataclass(slots=True)
class Thin:
    """The search of one source. `place` is a number of clean bytes from its start."""

    matcher: Matcher
    block: int = -1
    found: set[int] = field(default_factory=set)  # patterns found in this block
    last_stride: int = -1  # in which a sample matched
    recent: deque[tuple[int, Chunk]] = field(default_factory=deque)
    tail: list[tuple[int, Chunk]] = field(default_factory=list)

    def feed(self, place: int, chunk: Chunk) -> Hits:
        """The matches to keep of the next chunk, which begins at `place`, in order."""
        data, before = chunk.data, self.last_stride
        hits: Hits = []
        for stride in range(place // STRIDE, (place + len(data) - 1) // STRIDE + 1):
            begin = stride * STRIDE
            if begin // BLOCK != self.block:
                self.block = begin // BLOCK
                self.found.clear()
            searched = STRIDE if begin < FULL else WINDOW
            low, high = max(begin - place, 0), min(begin + searched - place, len(data))
            if low >= high:
                continue
            for number, to in self.matcher.scan_thin(data[low:high]):
                self.last_stride = stride
                if number not in self.found:
                    self.found.add(number)
                    hits.append((number, low + to))
        self._remember(place, chunk, matched=self.last_stride != before)
        return hits

    def _remember(self, place: int, chunk: Chunk, *, matched: bool) -> None:
        """Keep what may hold the last words: from before the last match to a stride behind it."""
        self.recent.append((place, chunk))
        oldest = place - STRIDE - TAIL_MAX
        while self.recent[0][0] + len(self.recent[0][1].data) <= oldest:
            self.recent.popleft()
        if matched:
            self.tail = list(self.recent)
        elif self.tail and place < tail_end(self.last_stride):
            self.tail.append((place, chunk))

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
        for place, chunk in reversed(self.tail):
            data = chunk.data
            if place >= end or place + len(data) <= start:
                continue
            low = data.rfind(b"\n", 0, max(start - place, 0)) + 1
            newline = data.find(b"\n", end - place) if end - place < len(data) else -1
            high = newline if newline >= 0 else len(data)
            hits: Hits = []
            while low < high:
                cut = data.rfind(b"\n", low, max(low, high - _SEARCHED)) + 1 or low
                hits += words.of(data, cut, high)
                high = cut
            if hits:
                yield place, chunk, sorted(hits, key=lambda hit: hit[1])


def tail_end(last_stride: int) -> int:
    """Up to where last words may stand, by the last stride in which a sample matched."""
    return (last_stride + 2) * STRIDE


def author_of(line: bytes, begin: int = 0) -> bytes:
    """The tags in front of a line; empty where it has none."""
    tags = _AUTHOR.match(line, begin)
    return tags.group() if tags else b""


@dataclass(slots=True)
class _LastWords:
    """What was found of each (author, pattern), from the end of a source backwards."""

    matcher: Matcher
    kept: Counter[tuple[bytes, int]] = field(default_factory=Counter)

    def of(self, data: bytes, low: int, high: int) -> Hits:
        """The hits to keep of whole lines, those between `low` and `high`, the last one first."""
        block = data[low:high]
        present = {number for number, _ in self.matcher.scan_thin(block)}
        if not self.matcher.scan_thin(self._undecided(block, present)):
            return []
        hits: Hits = []
        begin, author, seen = high, b"", set[int]()
        for number, to in reversed(self.matcher.scan_thin(block, every=True)):
            if to < begin:
                begin = block.rfind(b"\n", 0, to) + 1
                author = author_of(block, begin)
                seen.clear()
            # Several ends of one match in a line are one word.
            if number in seen:
                continue
            seen.add(number)
            if not self._known(author, number):
                self.kept[author, number] += 1
                hits.append((number, low + to))
        return hits

    def _undecided(self, block: bytes, present: set[int]) -> bytes:
        """The lines whose authors may have said something for the last time here."""
        lines: dict[bytes, list[bytes]] = defaultdict(list)
        for line in block.split(b"\n"):
            lines[author_of(line)].append(line)
        return b"\n".join(
            line
            for author, said in lines.items()
            if not all(self._known(author, number) for number in present)
            for line in said
        )

    def _known(self, author: bytes, number: int) -> bool:
        return self.kept[author, number] >= (1 if author else LAST_WORDS)
