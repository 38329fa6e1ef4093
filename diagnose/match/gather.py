"""One pass over a source, or over a part of it: what is kept of it for a closer look.

The cost is that of the automata plus what matched. Of a signature that floods a source only the
first and the last lines are kept; their count stays exact. `join` makes of what was gathered of
the parts of a source, in whatever process, what is gathered of the whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, Protocol

from diagnose.ingest.source import Chunk
from diagnose.match.cadence import LIMIT, REACH, Beginning, beginnings
from diagnose.match.calls import CallMarks, Noted, marks_in, with_init
from diagnose.match.compile import Matcher
from diagnose.match.lines import TEXT_LIMIT, VISIBLE, Reading, first_lines, last_lines, segments
from diagnose.match.shapes import Asked, Ends, Form, Runs, runs
from diagnose.match.steps import (
    TAIL_MAX,
    StepLines,
    StepSearch,
    TailChunk,
    every_match,
    steps_in,
    tail_end,
)

# Lines kept of one pattern in one source: this many from its start and from its end.
KEEP_FIRST = 2000
KEEP_LAST = 1000
# Lines kept of all patterns in one source. Where there are more, each pattern gets half as many, as
# long as these are more than the least: a log of failures alone is no larger than one of a flood.
KEEP_ALL = 40_000
KEEP_LEAST = 125

ReadPart = Callable[[int, int | None, int], Iterator[Chunk]]  # start, end and first line


class Calls(Protocol):
    """What takes NCCL's call lines as they go by."""

    def feed(self, chunk: Chunk, marks: CallMarks) -> None:
        """Take the next chunk, and what the marks found in it."""


@dataclass(slots=True)
class Gathered:
    """What was found in a source or a part of it.

    `kept` and `flood` (by its first pattern) are matched segments, `seen` counts all of them by
    that pattern, of which `keep_first` and `keep_last` are kept, `held` in all; `samples` are those
    of per-step patterns, `last_stride` tells where these end, and `last_words` are those of the end
    of the source.
    `first` and `last` are its edges. `end` is the place behind its last byte, `size` how many bytes
    were searched, `lines` the number of its last line, `truncated` says that it ends inside this;
    `starts` has the offset and first line of every chunk. `beginnings` is where its first words
    recur. `ends` holds the chunks with the last REACH bytes, `small` all of a small source; they
    stay in their process.
    """

    kept: list[Reading] = field(default_factory=list)
    flood: dict[int, deque[Reading]] = field(default_factory=dict)
    seen: Counter[int] = field(default_factory=Counter)
    keep_first: int = field(default_factory=lambda: KEEP_FIRST)
    keep_last: int = field(default_factory=lambda: KEEP_LAST)
    held: int = 0
    samples: list[Reading] = field(default_factory=list)
    last_stride: int = -1
    last_words: list[Reading] = field(default_factory=list)
    first: list[Reading] = field(default_factory=list)
    last: list[Reading] = field(default_factory=list)
    end: int = 0
    size: int = 0
    lines: int = 0
    truncated: bool = False
    starts: list[tuple[int, int]] = field(default_factory=list)
    calls: Noted | None = None
    ends: deque[Chunk] = field(default_factory=deque)
    beginnings: list[Beginning] = field(default_factory=list)
    small: list[Chunk] = field(default_factory=list)

    def take(self, raws: Iterable[Reading]) -> None:
        """Keep segments, unless there are too many of a kind, or of all kinds."""
        seen = self.seen
        for raw in raws:
            first = raw.patterns[0]
            seen[first] = times = seen[first] + 1
            if times <= self.keep_first:
                self.kept.append(raw)
            else:
                self.flood.setdefault(first, deque(maxlen=self.keep_last)).append(raw)
            if times <= self.keep_first + self.keep_last:
                self.held += 1
                self._bound()

    def leave_out(self, first: int, times: int) -> None:
        """Count lines of a pattern that are not kept."""
        most = self.keep_first + self.keep_last
        before, self.seen[first] = self.seen[first], self.seen[first] + times
        self.held += min(self.seen[first], most) - min(before, most)
        self._bound()

    def _bound(self) -> None:
        """Keep no more than so many in all: that follows from the counts, however it is parted."""
        while self.held > KEEP_ALL and self.keep_first > KEEP_LEAST:
            self.keep_half()

    def keep_half(self) -> None:
        """Keep half as many lines of each pattern."""
        self.keep_first //= 2
        self.keep_last //= 2
        kept, flood = self.kept, self.flood
        self.kept, self.flood, times = [], {}, Counter[int]()
        for raw in chain(kept, *flood.values()):
            first = raw.patterns[0]
            times[first] += 1
            if times[first] <= self.keep_first:
                self.kept.append(raw)
            else:
                self.flood.setdefault(first, deque(maxlen=self.keep_last)).append(raw)
        most = self.keep_first + self.keep_last
        self.held = sum(min(seen, most) for seen in self.seen.values())

    def dropped(self) -> dict[int, int]:
        """Lines of each flooding pattern that were not kept, by pattern number."""
        return {
            number: self.seen[number] - self.keep_first - len(flood)
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
        searched = search(chunk, place, matcher)
        found.take(searched.lines)
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
    if last is not None:
        found.truncated = _ends_inside_a_line(last.data)
        found.lines = _last_line(last) or found.lines
    found.last_stride = steps.last_stride
    if to_end:
        found.last_words = _last_words(steps, found.end)
    if found.size <= LIMIT:
        found.beginnings, found.small = beginnings(small, found.first, matcher.shapes), small
    if isinstance(calls, Noted):
        found.calls = calls
    return found


def _ends_inside_a_line(data: bytes) -> bool:
    """Whether a text ends inside a line; one that is drawn again and again has no end yet."""
    rest = data[data.rfind(b"\n") + 1 :]
    return bool(rest.strip()) and b"\r" not in rest


def _last_line(chunk: Chunk) -> int:
    """The number of the last line of a chunk; 0 where its lines are not those of the source."""
    if chunk.lines:
        return 0
    return chunk.first_line - 1 + chunk.newlines() + (not chunk.data.endswith(b"\n"))


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
        near_end = _read(whole, read, begin, tail_end(whole.last_stride))
        tail = [TailChunk(chunk.offset, chunk) for chunk in near_end]
        steps = StepSearch(matcher, last_stride=whole.last_stride, tail=tail)
        whole.last_words = _last_words(steps, whole.end)
    whole.ends = deque(_read(whole, read, whole.end - REACH, whole.end))
    if whole.size <= LIMIT:
        whole.beginnings = beginnings(
            [*_read(whole, read, 0, whole.end)], whole.first, matcher.shapes
        )
    return whole


def _last_words(steps: StepSearch, end: int) -> list[Reading]:
    """The last words in a source with this end."""
    return [
        raw for place, chunk, hits in steps.last_words(end) for raw in segments(chunk, hits, place)
    ]


def _append(whole: Gathered, part: Gathered) -> None:
    before = whole.lines
    while whole.keep_first > part.keep_first:
        whole.keep_half()
    whole.take(_moved(raw, before) for raw in part.kept)
    for number, extra in part.dropped().items():
        whole.leave_out(number, extra)
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
    whole.truncated = part.truncated
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


SMALL = 1 << 20  # bytes of a chunk: of large ones the automata look at many lines at once
SEARCHES_PAY = 2000  # lines that were searched before: a paste is read once
# Of the lines: of so many unknown ones the per-step patterns are looked for one by one.
_FEW = 1 / 4
_NOTHING = (), ()


class Searched(NamedTuple):
    """What a chunk holds: segments in which something is found, NCCL's call lines.

    And, where that is known of all lines, the per-step patterns.
    """

    lines: Iterator[Reading]
    calls: CallMarks
    steps: StepLines | None = None


def search(chunk: Chunk, place: int, matcher: Matcher) -> Searched:
    """What a chunk that begins at `place` holds.

    Of small sources all lines are looked up in the table of shapes, and only those of a new shape
    are searched by the automata.
    """
    data = chunk.data
    rows = _lines_in(data, matcher) if len(data) <= SMALL else None
    if rows is None:
        patterns, words, calls = matcher.scan(data)
        found = (segments(chunk, hits, place) for hits in (patterns, words))
        return Searched(chain.from_iterable(found), calls)
    chunk.lines_are(rows)
    kinds = dict.fromkeys(rows.kinds)
    forms, alike = _found(data, rows, kinds, matcher)
    steps = None
    if alike is not None:
        own = {number: form.steps for number, form in forms.items() if form.steps}
        steps = StepLines(rows, alike, own)
    lines = ((n, at, end, forms[n]) for n, at, end in rows.spans(sorted(forms)))
    begun = rows.lines_of(with_init(kinds))
    inits = [(start, same) for same, _, starts in begun for start in starts]
    return Searched(_readings(chunk, place, lines), marks_in(kinds, inits), steps)


def _lines_in(data: bytes, matcher: Matcher) -> Runs | None:
    """The lines of a text where they are best looked up; those that are cut cannot be."""
    if not data or b"\r" in data:
        return None
    if matcher.shapes.searched < SEARCHES_PAY:
        matcher.shapes.searched += data.count(b"\n") + 1
    rows = runs(data) if matcher.shapes.searched >= SEARCHES_PAY else None
    return rows if rows and max(map(len, rows.kinds)) <= TEXT_LIMIT else None


def _found(
    data: bytes, rows: Runs, kinds: Iterable[bytes], matcher: Matcher
) -> tuple[dict[int, Form], dict[bytes, Ends] | None]:
    """What is in lines, by their numbers, but for per-step patterns that all of a shape have.

    Those are by shape, in the order of `kinds`, which are the shapes that there are; None where not
    all of them are known.
    """
    entries = matcher.shapes.entries
    alike: dict[bytes, Form] = {}
    steps: dict[bytes, Ends] = {}
    apart: set[bytes] = set()  # shapes whose lines are not alike, or not known to be
    for same in kinds:
        entry = entries.get(same)
        form = None if entry is None else entry.alike
        if form is None or form.found is None:
            apart.add(same)
        elif form.found != _NOTHING:
            alike[same] = form
        elif form.steps:
            steps[same] = form.steps
    found: dict[int, Form] = {}
    for same, numbers, _ in rows.lines_of(alike):
        found |= dict.fromkeys(numbers, alike[same])
    unknown: dict[int, bytes] = {}
    for same, numbers, starts in rows.lines_of(apart):
        entry = entries.get(same)
        for number, start in zip(numbers, starts, strict=True):
            line = data[start : start + len(same)]
            form = None if entry is None else entry.form(line)
            if form is None or form.found is None:
                unknown[number] = line
            elif form.steps or form.found != _NOTHING:
                found[number] = form
    few = len(unknown) <= _FEW * len(rows)
    if unknown:
        found |= _learned(unknown, rows, matcher, few=few)
    return found, steps if few else None


def _learned(
    lines: Mapping[int, bytes], rows: Runs, matcher: Matcher, *, few: bool
) -> dict[int, Form]:
    """What is in these lines, which is remembered; per-step patterns where they are `few`."""
    held = _scanned(lines, matcher)
    found: dict[int, Form] = {}
    for number, line in lines.items():
        own = held.get(number, _NOTHING)
        known = matcher.shapes.learned(rows.kind(number), line, Asked.SEARCH)
        form = Form() if known is None else known
        if form.steps is None and (few or known is not None):
            form.steps = steps_in(line, matcher)
        form.found = own  # last, as another thread may look at once
        if form.steps or own != _NOTHING:
            found[number] = form
    return found


def _scanned(
    lines: Mapping[int, bytes], matcher: Matcher
) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """The same but for per-step patterns, by the automata."""
    chunk = Chunk(b"\n".join(lines.values()), 0, 0, list(lines))
    scanned = matcher.scan(chunk.data)
    patterns, words = (
        {line.line: line.patterns for line in segments(chunk, hits, 0)}
        for hits in (scanned.patterns, scanned.words)
    )
    return {
        number: (patterns.get(number, ()), words.get(number, ())) for number in (*patterns, *words)
    }


def _readings(
    chunk: Chunk, place: int, lines: Iterable[tuple[int, int, int, Form]]
) -> Iterator[Reading]:
    """The segments of the lines in which there is more than per-step patterns.

    Of each line its number in the chunk, its start and end, and what is in it.
    """
    for number, at, end, form in lines:
        if form.found and form.found != _NOTHING:
            line, offset = chunk.number(number), chunk.offset_at(at, number)
            for patterns in filter(None, form.found):
                yield Reading(place + at, line, offset, chunk.data[at:end], patterns)
