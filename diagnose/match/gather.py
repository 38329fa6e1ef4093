"""One pass over a source, or over a part of it: what is kept of it for a closer look.

The cost is that of the automata plus what matched. Of a signature that floods a source only the
first and the last lines are kept; their count stays exact. `join` makes of what was gathered of
the parts of a source, in whatever process, what is gathered of the whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from diagnose.ingest.source import Chunk
from diagnose.match.cadence import REACH
from diagnose.match.call_marks import CallMarks
from diagnose.match.calls import Noted
from diagnose.match.compile import Matcher
from diagnose.match.first_words import LIMIT, Again, said_again
from diagnose.match.lines import VISIBLE, Raw, first_lines, last_lines, segments
from diagnose.match.thin import TAIL_MAX, Kept, Thin, every, tail_end

# Lines kept of one pattern in one source: this many from its start and from its end.
KEEP_FIRST = 2000
KEEP_LAST = 1000

ReadAgain = Callable[[int, int | None, int], Iterator[Chunk]]  # start, end and first line


class Calls(Protocol):
    """What takes NCCL's call lines as they go by."""

    def feed(self, chunk: Chunk, told: CallMarks) -> None:
        """Take the next chunk, and what the marks found in it."""


@dataclass(slots=True)
class Gathered:
    """What was found in a source or a part of it.

    `kept` and `flood` (by its first pattern) are matched segments, `seen` counts all of them by
    that pattern; `samples` are those of thin patterns, `last_stride` tells where these end, and
    `last_words` are those of the end of the source.
    `first` and `last` are its edges. `end` is the place behind its last byte, `size` how many bytes
    were searched, `lines` the number of its last line, `starts` the offset and first line of every
    chunk. `again` is where it says its first words again. `ends` holds the chunks with the last
    REACH bytes, `small` all of a small source; they stay in their process.
    """

    kept: list[Raw] = field(default_factory=list)
    flood: dict[int, deque[Raw]] = field(default_factory=dict)
    seen: Counter[int] = field(default_factory=Counter)
    samples: list[Raw] = field(default_factory=list)
    last_stride: int = -1
    last_words: list[Raw] = field(default_factory=list)
    first: list[Raw] = field(default_factory=list)
    last: list[Raw] = field(default_factory=list)
    end: int = 0
    size: int = 0
    lines: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)
    calls: Noted | None = None
    ends: deque[Chunk] = field(default_factory=deque)
    again: list[Again] = field(default_factory=list)
    small: list[Chunk] = field(default_factory=list)

    def take(self, raws: Iterable[Raw]) -> None:
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

    `calls` is fed with those that NCCL wrote into. With `every_step` no line of a thin signature is
    left out.
    """
    found, thin = Gathered(), Thin(matcher)
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
        told = matcher.known.search(chunk, place)
        found.take(told.raws)
        hits = thin.feed(place, chunk, told.thin)
        found.samples += segments(chunk, every(matcher, chunk) if every_step else hits, place)
        calls.feed(chunk, told.calls)
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
    found.last_stride = thin.last_stride
    if to_end:
        found.last_words = _last_words(thin, found.end)
    if found.size <= LIMIT:
        found.again, found.small = said_again(small, found.first), small
    if isinstance(calls, Noted):
        found.calls = calls
    return found


def portable(found: Gathered) -> Gathered:
    """What of it another process is given."""
    return replace(found, ends=deque(), again=[], small=[])


def join(parts: Sequence[Gathered], again: ReadAgain, matcher: Matcher) -> Gathered:
    """What `gather` would have found in the parts, which follow each other, at once.

    `again` reads of the source from the start of a chunk to that of another one, or to the end.
    """
    whole = Gathered(calls=Noted())
    for part in parts:
        _append(whole, part)
    begin = min(tail_end(whole.last_stride), whole.end) - TAIL_MAX
    alone = parts[-1].last_stride >= 0 and parts[-1].starts[0][0] <= begin
    if whole.last_stride >= 0 and not alone:
        chunks = _read(whole, again, begin, tail_end(whole.last_stride))
        tail = [Kept(chunk.offset, chunk) for chunk in chunks]
        thin = Thin(matcher, last_stride=whole.last_stride, tail=tail)
        whole.last_words = _last_words(thin, whole.end)
    whole.ends = deque(_read(whole, again, whole.end - REACH, whole.end))
    if whole.size <= LIMIT:
        whole.again = said_again([*_read(whole, again, 0, whole.end)], whole.first)
    return whole


def _last_words(thin: Thin, end: int) -> list[Raw]:
    """The last words in a source with this end."""
    return [
        raw for place, chunk, hits in thin.last_words(end) for raw in segments(chunk, hits, place)
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


def _moved(raw: Raw, lines: int) -> Raw:
    return raw._replace(line=raw.line + lines) if lines else raw


def _read(whole: Gathered, again: ReadAgain, low: int, high: int) -> Iterator[Chunk]:
    """The chunks that hold what lies between two places."""
    begin = max(0, bisect_right(whole.starts, low, key=_offset) - 1)
    behind = bisect_left(whole.starts, high, key=_offset)
    if begin < behind:
        start, line = whole.starts[begin]
        end = whole.starts[behind][0] if behind < len(whole.starts) else None
        yield from again(start, end, line)


def _offset(start: tuple[int, int]) -> int:
    return start[0]
