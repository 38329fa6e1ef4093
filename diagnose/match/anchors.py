"""Lines of thin signatures around serious ones: of each author the last before, the first after.

Whether somebody worked on after an error is seen by what he had done before it, so these lines are
kept whatever else is left out. The serious lines are known when a source was read to its end; what
stands around them is read again, if the source is small or can be read anywhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from diagnose.catalog.schema import Signature
from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import Chunk, Source
from diagnose.lazy import expression
from diagnose.match.authors import author_of
from diagnose.match.compile import Matcher
from diagnose.match.gather import Gathered
from diagnose.match.lines import Line, Raw, segments

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
    source: Source, found: Gathered, lines: Sequence[Line], kept: Sequence[Raw], matcher: Matcher
) -> list[Raw]:
    """The lines to keep around the serious ones of `lines`, but for those that are kept already."""
    serious = _serious(lines, matcher.signatures)
    if not serious:
        return []
    places = {(raw.line, raw.offset): raw.place for raw in kept}
    work = max((line.line for line in lines if _is_work(line, matcher.signatures)), default=-1)
    # Below the last step of all the last words of each author say how far it got.
    serious = [line for line in serious if line.line <= work]
    anchors = sorted(places[line.line, line.offset] for line in serious)
    known = {raw.place for raw in kept}
    spans = _spans(anchors)
    chunks = _chunks(source, found, spans)
    return [raw for raw in around(anchors, spans, chunks, matcher) if raw.place not in known]


def _serious(lines: Iterable[Line], signatures: Sequence[Signature]) -> list[Line]:
    """The first and the last lines of each kind that may tell of an error."""
    kinds: dict[object, list[Line]] = defaultdict(list)
    for line in lines:
        for number, _ in line.matches:
            if signatures[number].role in _SERIOUS or signatures[number].tells == "trouble":
                kinds[number].append(line)
                break
        else:
            if line.word is not None:
                kinds[line.word.id].append(line)
    chosen = {id(line): line for own in kinds.values() for line in _ends(own, _OF_ENTRY)}
    return _ends(sorted(chosen.values(), key=lambda line: (line.line, line.offset)), _OF_SOURCE)


def _is_work(line: Line, signatures: Sequence[Signature]) -> bool:
    return any(signatures[number].role == "progress" for number, _ in line.matches)


def _ends(lines: list[Line], size: tuple[int, int]) -> list[Line]:
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
) -> list[Raw]:
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
        behind = bisect_right(starts, place)
        first = bisect_right(starts, place - BEFORE - 1)
        last = bisect_right(starts, place + AFTER)
        chosen.update(_quota(reversed(hits[first:behind]), _BEFORE, _BEFORE_UNTAGGED))
        chosen.update(_quota(hits[behind:last], _AFTER, _AFTER_UNTAGGED))
    found: list[Raw] = []
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
    for pattern, to in sorted(matcher.scan_thin(data[low:high], every=True), key=itemgetter(1)):
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
