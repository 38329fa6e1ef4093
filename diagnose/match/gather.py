"""One pass over a source, or over a part of it: what is kept of it for a closer look.

The cost is that of the automata plus what matched. Of a signature that floods a source only the
first and the last lines are kept; their count stays exact. `join` makes of what was gathered of
the parts of a source, in whatever process, what is gathered of the whole.

Whether somebody worked on after an error is seen by what he had done before it, so lines of steps
around serious ones are kept whatever else is left out: of each author the last before, the first
after. The serious lines are known when a source was read to its end; what stands around them is
read again, if the source is small or can be read anywhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import NamedTuple, Protocol

from diagnose.catalog.schema import Signature
from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import Chunk, Source
from diagnose.lazy import expression
from diagnose.match.cadence import LIMIT, REACH, Beginning, beginnings
from diagnose.match.calls import CallMarks, Noted
from diagnose.match.compile import Matcher
from diagnose.match.lines import VISIBLE, Reading, author_of, first_lines, last_lines, segments
from diagnose.match.steps import TAIL_MAX, StepSearch, TailChunk, every_match, tail_end

# Lines kept of one pattern in one source: this many from its start and from its end.
KEEP_FIRST = 2000
KEEP_LAST = 1000

ReadPart = Callable[[int, int | None, int], Iterator[Chunk]]  # start, end and first line


class Calls(Protocol):
    """What takes NCCL's call lines as they go by."""

    def feed(self, chunk: Chunk, marks: CallMarks) -> None:
        """Take the next chunk, and what the marks found in it."""


@dataclass(slots=True)
class Gathered:
    """What was found in a source or a part of it.

    `kept` and `flood` (by its first pattern) are matched segments, `seen` counts all of them by
    that pattern; `samples` are those of per-step patterns, `last_stride` tells where these end, and
    `last_words` are those of the end of the source.
    `first` and `last` are its edges. `end` is the place behind its last byte, `size` how many bytes
    were searched, `lines` the number of its last line, `starts` the offset and first line of every
    chunk. `beginnings` is where its first words recur. `ends` holds the chunks with the last
    REACH bytes, `small` all of a small source; they stay in their process.
    """

    kept: list[Reading] = field(default_factory=list)
    flood: dict[int, deque[Reading]] = field(default_factory=dict)
    seen: Counter[int] = field(default_factory=Counter)
    samples: list[Reading] = field(default_factory=list)
    last_stride: int = -1
    last_words: list[Reading] = field(default_factory=list)
    first: list[Reading] = field(default_factory=list)
    last: list[Reading] = field(default_factory=list)
    end: int = 0
    size: int = 0
    lines: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)
    calls: Noted | None = None
    ends: deque[Chunk] = field(default_factory=deque)
    beginnings: list[Beginning] = field(default_factory=list)
    small: list[Chunk] = field(default_factory=list)

    def take(self, raws: Iterable[Reading]) -> None:
        """Keep segments, unless there are too many of a kind."""
        seen = self.seen
        for raw in raws:
            first = raw.patterns[0]
            seen[first] = times = seen[first] + 1
            if times <= KEEP_FIRST:
                self.kept.append(raw)
            else:
                self.flood.setdefault(first, deque(maxlen=KEEP_LAST)).append(raw)

    def dropped(self) -> dict[int, int]:
        """Lines of each flooding pattern that were not kept, by pattern number."""
        return {
            number: self.seen[number] - KEEP_FIRST - len(flood)
            for number, flood in self.flood.items()
        }


def gather(
    chunks: Iterable[Chunk],
    matcher: Matcher,
    calls: Calls,
    *,
    to_end: bool = True,
    every_step: bool = False,
) -> Gathered:
    """Search chunks that follow each other, up to the end of their source or of a part of it.

    `calls` is fed with those that NCCL wrote into. With `every_step` no line of a
    per-step signature is left out.
    """
    found, steps = Gathered(), StepSearch(matcher)
    last: Chunk | None = None
    visible: Chunk | None = None  # the last one that holds more than blanks
    small: list[Chunk] = []  # all, as long as they are few
    for chunk in chunks:
        last = chunk
        if VISIBLE.search(chunk.data):
            if visible is None:
                found.first = first_lines(chunk)
            visible = chunk
        # Where cleaning removed bytes, the next chunk begins a little behind the last one.
        place = max(found.end, chunk.offset)
        searched = matcher.known.search(chunk, place)
        found.take(searched.raws)
        hits = steps.feed(place, chunk, searched.steps)
        found.samples += segments(chunk, every_match(matcher, chunk) if every_step else hits, place)
        calls.feed(chunk, searched.calls)
        found.starts.append((chunk.offset, chunk.first_line))
        found.end = place + len(chunk.data)
        found.size += len(chunk.data)
        if chunk.lines:
            found.lines = max(found.lines, *chunk.lines)
        found.ends.append(chunk)
        if found.size <= LIMIT:
            small.append(chunk)
        while sum(len(one.data) for one in found.ends) - len(found.ends[0].data) >= REACH:
            found.ends.popleft()
    if visible is not None:
        found.last = last_lines(visible)
    if last is not None and not last.lines:
        unfinished = not last.data.endswith(b"\n")
        found.lines = last.first_line - 1 + last.newlines() + unfinished
    found.last_stride = steps.last_stride
    if to_end:
        found.last_words = _last_words(steps, found.end)
    if found.size <= LIMIT:
        found.beginnings, found.small = beginnings(small, found.first), small
    if isinstance(calls, Noted):
        found.calls = calls
    return found


def portable(found: Gathered) -> Gathered:
    """What of it another process is given."""
    return replace(found, ends=deque(), beginnings=[], small=[])


def join(parts: Sequence[Gathered], read: ReadPart, matcher: Matcher) -> Gathered:
    """What `gather` would have found in the parts, which follow each other, at once.

    `read` reads of the source from the start of a chunk to that of another one, or to the end.
    """
    whole = Gathered(calls=Noted())
    for part in parts:
        _append(whole, part)
    begin = min(tail_end(whole.last_stride), whole.end) - TAIL_MAX
    alone = parts[-1].last_stride >= 0 and parts[-1].starts[0][0] <= begin
    if whole.last_stride >= 0 and not alone:
        chunks = _read(whole, read, begin, tail_end(whole.last_stride))
        tail = [TailChunk(chunk.offset, chunk) for chunk in chunks]
        steps = StepSearch(matcher, last_stride=whole.last_stride, tail=tail)
        whole.last_words = _last_words(steps, whole.end)
    whole.ends = deque(_read(whole, read, whole.end - REACH, whole.end))
    if whole.size <= LIMIT:
        whole.beginnings = beginnings([*_read(whole, read, 0, whole.end)], whole.first)
    return whole


def _last_words(steps: StepSearch, end: int) -> list[Reading]:
    """The last words in a source with this end."""
    return [
        raw for place, chunk, hits in steps.last_words(end) for raw in segments(chunk, hits, place)
    ]


def _append(whole: Gathered, part: Gathered) -> None:
    before = whole.lines
    whole.take(_moved(raw, before) for raw in part.kept)
    for number, extra in part.dropped().items():
        whole.seen[number] += extra
    for queue in part.flood.values():
        whole.take(_moved(raw, before) for raw in queue)
    whole.samples += [_moved(raw, before) for raw in part.samples]
    whole.last_words = [_moved(raw, before) for raw in part.last_words]
    whole.last_stride = max(whole.last_stride, part.last_stride)
    whole.first = whole.first or [_moved(raw, before) for raw in part.first]
    whole.last = [_moved(raw, before) for raw in part.last] or whole.last
    whole.end = max(whole.end, part.end)
    whole.size += part.size
    whole.lines += part.lines
    whole.starts += [(offset, line + before) for offset, line in part.starts]
    if whole.calls is not None and part.calls is not None:
        whole.calls.append(part.calls, before)


def _moved(line: Reading, lines: int) -> Reading:
    line.line += lines
    return line


def _read(whole: Gathered, read: ReadPart, low: int, high: int) -> Iterator[Chunk]:
    """The chunks that hold what lies between two places."""
    begin = max(0, bisect_right(whole.starts, low, key=_offset) - 1)
    stop = bisect_left(whole.starts, high, key=_offset)
    if begin < stop:
        start, line = whole.starts[begin]
        end = whole.starts[stop][0] if stop < len(whole.starts) else None
        yield from read(start, end, line)


def _offset(start: tuple[int, int]) -> int:
    return start[0]


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
