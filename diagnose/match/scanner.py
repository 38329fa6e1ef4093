"""One pass of the catalog over a source's bytes; Python objects only for lines that matched.

The cost of a scan is that of Hyperscan plus what matched. Of a signature that floods a source
only the first and the last lines are kept (the count stays exact). Thin signatures (a line a
step) are looked for in the start of a source and in samples of its middle; in its end the last
line of each author is found exactly. So the middle of a log costs hardly more than one automaton.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from math import inf
from time import thread_time
from typing import TYPE_CHECKING

from diagnose.catalog.entries import Meant
from diagnose.ingest.source import Chunk, Source
from diagnose.match.cadence import REACH, beats
from diagnose.match.compile import MATCH_TIMEOUT_S, Matcher
from diagnose.match.thin import Thin
from diagnose.parse.prefix import Prefix, peel

if TYPE_CHECKING:
    from diagnose.parse.comm_rank import CommRank
    from diagnose.parse.nccl_coll import CollReader

# How far a line's start and end are looked for around a match, and how much of it is kept.
LINE_WINDOW = 8192
TEXT_LIMIT = 4096
# A line made to hurt may cost so much CPU time and one more search; then its other patterns are
# skipped. (`regex` counts CPU time too, so a busy machine changes nothing.)
LINE_BUDGET_S = 0.02
# A line that takes so long is made to hurt: those that match take a tenth. After so many of them
# in a source its other long lines get little time.
HURT_S, HURTFUL_LINES, LITTLE_S = 0.005, 20, 0.001
# A line so short cannot be made to hurt; a pause of the machine must not change what it says.
HARMLESS = 600
_HEAD = 512
# Where a line is cut whole words are left out: so many characters are looked through, so many
# before the match are never left out.
_LONGEST_WORD = 1024
_KEPT = 512
_BREAKS = b"\r\n"
_ENDS = b"\r\n \t\"',;"
_ENDS_LIST = tuple(bytes((char,)) for char in _ENDS)
_WORDS = re.compile(rb"[^ \t\r\n]{0,1024}(?:[ \t]+[^ \t\r\n]{1,1024}){0,3}[ \t]+")
_ITEMS = re.compile(rb"(?:[^\"',;&\s]{0,256}[\"',;&]){1,8}")  # of JSON without blanks
# Lines kept of one pattern in one source: this many from its start and from its end.
KEEP_FIRST = 2000
KEEP_LAST = 1000
# First and last lines kept of a source.
_EDGE_LINES = 4
_VISIBLE = re.compile(rb"\S")


@dataclass(slots=True)
class Line:
    """One line that matched: its place, its clean text, its prefixes and what matched.

    `matches` holds (signature number, captures), `word` what a vocabulary knows of a line that
    no signature knows better. `text` is bounded by TEXT_LIMIT.
    """

    line: int
    offset: int
    text: str
    prefix: Prefix
    matches: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    word: Meant | None = None


@dataclass(slots=True)
class SourceScan:
    """What one source gave: matched lines in order, exact counts, its first and last lines.

    `counts` maps signature numbers to the number of lines they matched (of thin signatures: of
    lines kept). `edges` holds the first and the last few non-empty lines, matched or not.
    `beats` are lines of progress that no signature knows, with their counters. `comm_ranks` is what
    NCCL's call lines tell of each rank in each communicator.
    """

    source: Source
    lines: list[Line] = field(default_factory=list)
    edges: list[Line] = field(default_factory=list)
    beats: list[tuple[Line, int]] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    total_lines: int = 0
    problem: str = ""
    comm_ranks: list[CommRank] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Raw:
    """A matched segment before anything was decoded; `place` orders it in the clean bytes."""

    place: int
    line: int
    offset: int
    data: bytes
    patterns: tuple[int, ...]


def scan_source(source: Source, matcher: Matcher) -> SourceScan:
    """Scan one source to its end; what cannot be read becomes `problem`, never an exception."""
    scan = _Scan(source, matcher)
    try:
        for chunk in source.chunks():
            scan.feed(chunk)
    except (OSError, EOFError, ValueError) as error:
        scan.result.problem = f"reading stopped: {error}"
        source.unread.append(scan.result.problem)
    return scan.finish()


class _Scan:
    """What is known of one source while its chunks come in."""

    def __init__(self, source: Source, matcher: Matcher) -> None:
        self.result = SourceScan(source)
        self.matcher = matcher
        self.thin = Thin(matcher)
        self.kept: list[_Raw] = []
        self.flood: dict[int, deque[_Raw]] = {}
        self.seen: Counter[int] = Counter()
        self.calls: CollReader | None = None
        self.last: Chunk | None = None
        self.visible: Chunk | None = None  # the last one that holds more than blanks
        self.ends: deque[Chunk] = deque()  # those that hold the last REACH bytes
        self.read = 0

    def feed(self, chunk: Chunk) -> None:
        """Match the next chunk."""
        self.last = chunk
        if _VISIBLE.search(chunk.data):
            if self.visible is None:
                self.result.edges += _first_lines(chunk)
            self.visible = chunk
        for hits in self.matcher.scan(chunk.data):
            for raw in _segments(chunk, hits, self.read):
                first = raw.patterns[0]
                self.seen[first] += 1
                if self.seen[first] <= KEEP_FIRST:
                    self.kept.append(raw)
                else:
                    self.flood.setdefault(first, deque(maxlen=KEEP_LAST)).append(raw)
        self.kept += _segments(chunk, self.thin.feed(self.read, chunk), self.read)
        if self.calls is not None or b"opCount " in chunk.data or b"- Init " in chunk.data:
            self.calls = self.calls or _call_reader(self.result.source)
            self.calls.feed(chunk)
        self.read += len(chunk.data)
        self.ends.append(chunk)
        while sum(len(one.data) for one in self.ends) - len(self.ends[0].data) >= REACH:
            self.ends.popleft()
        if chunk.lines:
            self.result.total_lines = max(self.result.total_lines, *chunk.lines)

    def finish(self) -> SourceScan:
        """Confirm what was kept, once all chunks were fed."""
        result, last = self.result, self.last
        if self.calls is not None:
            result.comm_ranks = self.calls.result()
        for place, chunk, hits in self.thin.last_words(self.read):
            self.kept += _segments(chunk, hits, place)
        for queue in self.flood.values():
            self.kept += queue
        if self.visible is not None:
            result.edges += _last_lines(self.visible)
        if last is not None and not last.lines:
            result.total_lines = last.first_line - 1 + _lines(last.data)
        result.lines = list(_confirm(self.kept, self.matcher, result.counts))
        if not self._progresses():
            result.beats = list(_beats(self.ends))
        for number, extra in _uncounted(self.seen, self.flood).items():
            if number >= 0:
                result.counts[self.matcher.patterns[number].signature] += extra
        return result

    def _progresses(self) -> bool:
        """Whether a signature of progress matched."""
        signatures = self.matcher.signatures
        return any(signatures[number].role == "progress" for number in self.result.counts)


def _beats(chunks: Sequence[Chunk]) -> Iterator[tuple[Line, int]]:
    """The cadence of the end of a source."""
    data = b"".join(chunk.data for chunk in chunks)
    starts = [0, *accumulate(len(chunk.data) for chunk in chunks)]
    for beat in beats(data):
        index = bisect_right(starts, beat.start) - 1
        number = chunks[index].data.count(b"\n", 0, beat.start - starts[index])
        row = data[beat.start : beat.end]
        yield next(_edges(chunks[index], [(number, row)])), beat.counter


def _call_reader(source: Source) -> CollReader:
    from diagnose.parse.nccl_coll import CollReader  # noqa: PLC0415  few logs hold such lines

    return CollReader(source)


def _uncounted(seen: Counter[int], flood: dict[int, deque[_Raw]]) -> dict[int, int]:
    """Lines of each flooding pattern that were dropped, by pattern number."""
    return {number: seen[number] - KEEP_FIRST - len(flood[number]) for number in flood}


def _lines(data: bytes) -> int:
    """Lines in a piece of a source, an unfinished last one included."""
    return data.count(b"\n") + (not data.endswith(b"\n"))


def _segments(chunk: Chunk, hits: Iterable[tuple[int, int]], read: int) -> Iterator[_Raw]:
    """The segments (lines, cut at carriage returns too) around the hits, in order.

    `read` is the number of clean bytes of the source before this chunk.
    """
    data = chunk.data
    counted_to, newlines = 0, 0
    start = end = first = -1
    patterns: list[int] = []
    for number, to in hits:
        if to <= end:
            if number not in patterns:
                patterns.append(number)
            continue
        if patterns:
            newlines += data.count(b"\n", counted_to, start)
            counted_to = start
            yield _raw(chunk, start, end, newlines, patterns, first, read)
        start, end = _bounds(data, to)
        first = to
        patterns = [number]
    if patterns:
        newlines += data.count(b"\n", counted_to, start)
        yield _raw(chunk, start, end, newlines, patterns, first, read)


def _bounds(data: bytes, to: int) -> tuple[int, int]:
    low = max(0, to - LINE_WINDOW)
    newline = data.rfind(b"\n", low, to)
    start = newline + 1 if newline >= 0 else low
    start = max(start, data.rfind(b"\r", start, max(start, to - 1)) + 1)
    high = min(len(data), to + LINE_WINDOW)
    newline = data.find(b"\n", to, high)
    end = newline if newline >= 0 else high
    bare = data.find(b"\r", to, end)
    return start, bare if bare >= 0 else end


def _raw(
    chunk: Chunk, start: int, end: int, newlines: int, patterns: list[int], to: int, read: int
) -> _Raw:
    """A segment, cut to its start and the surroundings of its first match if it is long."""
    if chunk.lines is not None:
        line = chunk.lines[min(newlines, len(chunk.lines) - 1)]
    else:
        line = chunk.first_line + newlines
    if chunk.raw_offsets is not None:
        offset = chunk.raw_offsets[min(newlines, len(chunk.raw_offsets) - 1)]
    else:
        offset = chunk.offset + start
    start, end = _whole_words(chunk.data, start, end, to)
    data = chunk.data[start:end]
    if len(data) > TEXT_LIMIT:
        low = max(start + _HEAD, to - TEXT_LIMIT // 2)
        high = min(end, low + TEXT_LIMIT - _HEAD)
        low, high = _whole_words(chunk.data, low, high, to)
        _, head = _whole_words(chunk.data, start, start + _HEAD, start)
        data = chunk.data[start:head] + b" ... " + chunk.data[low:high]
    return _Raw(read + start, line, offset, data, tuple(patterns))


def _whole_words(data: bytes, start: int, end: int, to: int) -> tuple[int, int]:
    """`start` and `end` of a quote around `to`, moved where they cut a line inside of a word.

    Half a token can no longer be told, nor a value that lost its name: the first words after a
    cut go, too.
    """
    if start > 0 and data[start - 1] not in _BREAKS:
        upto = max(start, min(to, end) - _KEPT)
        words = _WORDS.match(data, start, upto) or _ITEMS.match(data, start, upto)
        start = words.end() if words else start
    if end < len(data) and data[end] not in _ENDS:
        last = max(data.rfind(char, max(to, end - _LONGEST_WORD), end) for char in _ENDS_LIST)
        end = last if last >= 0 else end
    return start, end


def _confirm(kept: list[_Raw], matcher: Matcher, counts: Counter[int]) -> Iterator[Line]:
    """Decode, peel and confirm the kept segments, each place once, in the order of the source."""
    kept.sort(key=lambda raw: raw.place)
    merged: list[_Raw] = []
    for raw in kept:
        if merged and merged[-1].place == raw.place:
            both = dict.fromkeys((*merged[-1].patterns, *raw.patterns))
            merged[-1] = replace(raw, patterns=tuple(both))
        else:
            merged.append(raw)
    hurtful = 0
    for raw in merged:
        text = _text(raw.data)
        line = Line(raw.line, raw.offset, text, peel(text))
        patience = inf
        if len(text) > HARMLESS:
            patience = LITTLE_S if hurtful >= HURTFUL_LINES else LINE_BUDGET_S
        begun = thread_time()
        found = _search(line, raw.patterns, matcher, patience)
        hurtful += patience < inf and thread_time() - begun > HURT_S
        line.word = _word(line, found, raw.patterns, matcher)
        if found or line.word:
            # In the order of the text: a bar and the marker glued to it tell which came last.
            in_text = sorted(found.items(), key=lambda item: item[1][0])
            line.matches = [(signature, captures) for signature, (_, captures) in in_text]
            counts.update(found.keys())
            yield line


def _search(
    line: Line, patterns: Iterable[int], matcher: Matcher, patience: float
) -> dict[int, tuple[int, dict[str, str]]]:
    """Signature → where it matches and its captures, within so many seconds of CPU time."""
    found: dict[int, tuple[int, dict[str, str]]] = {}
    give_up = thread_time() + patience
    for number in patterns:
        signature = matcher.patterns[number].signature if number >= 0 else -1
        if signature in found or number < 0:
            continue
        if give_up < inf and thread_time() > give_up:
            break
        timeout = min(patience, MATCH_TIMEOUT_S)
        match = matcher.locate(number, line.text, line.prefix.message, timeout)
        if match is not None:
            found[signature] = match
    return found


def _word(
    line: Line,
    found: Mapping[int, tuple[int, dict[str, str]]],
    patterns: Sequence[int],
    matcher: Matcher,
) -> Meant | None:
    """The word of a line that no signature knows but one that stands for many."""
    known = [matcher.signatures[number] for number in found]
    if not all(signature.generic for signature in known) or not (known or min(patterns) < 0):
        return None
    raised = any(signature.tells == "exception" for signature in known)
    return matcher.words.find(line.text, raised=raised)


def _text(data: bytes) -> str:
    return data[: TEXT_LIMIT + 8].decode(errors="replace")


def _first_lines(chunk: Chunk) -> list[Line]:
    """The first few non-empty lines of a chunk that has some, with what their prefixes say."""
    data = chunk.data
    visible = _VISIBLE.search(data)
    first = visible.start() if visible else 0
    start = max(data.rfind(b"\n", 0, first) + 1, first - _HEAD)
    rows = data[start : start + LINE_WINDOW].split(b"\n")
    pieces = (next(filter(bytes.strip, row.split(b"\r")), b"") for row in rows)
    rows_at = enumerate(pieces, start=data.count(b"\n", 0, start))
    return list(islice(_edges(chunk, rows_at), _EDGE_LINES))


def _last_lines(chunk: Chunk) -> list[Line]:
    """The last few non-empty lines of a chunk that has some; of a long one its start and end."""
    data = chunk.data.rstrip()
    start = data.rfind(b"\n") + 1
    rows = [data[start:]]
    if start:
        low = max(0, start - LINE_WINDOW)
        before = data[low : start - 1].split(b"\n")
        rows = before[1 if low else 0 :] + rows
    pieces = (_ends(row.rstrip().rpartition(b"\r")[2]) for row in rows)
    first = data.count(b"\n") + 1 - len(rows)
    filled = [(number, piece) for number, piece in enumerate(pieces, start=first) if piece.strip()]
    return list(_edges(chunk, filled[-_EDGE_LINES:]))


def _ends(row: bytes) -> bytes:
    """A line, of which the middle is left out if it is long."""
    if len(row) <= TEXT_LIMIT:
        return row
    return row[:_HEAD] + b" ... " + row[_HEAD - TEXT_LIMIT :]


def _edges(chunk: Chunk, rows: Iterable[tuple[int, bytes]]) -> Iterator[Line]:
    """The lines that are not empty, by their 0-based number in the chunk."""
    for number, row in rows:
        if not row.strip():
            continue
        text = _text(row)
        if chunk.lines:
            line = chunk.lines[min(number, len(chunk.lines) - 1)]
        else:
            line = chunk.first_line + number
        yield Line(line, chunk.offset, text, peel(text))
