"""The lines around matches: found in raw bytes, cut where they are long, decoded when it pays.

And who wrote a line, as its bytes say it, without parsing them: tags in front, a rank, a device. It
sets the authors of interleaved lines apart, of which the last words are kept. A name that is too
fine costs lines that are kept for nothing, one that is too coarse the last words of somebody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING

from diagnose.catalog.entries import Meant
from diagnose.formats import table
from diagnose.ingest.source import Chunk
from diagnose.lazy import expression
from diagnose.parse.prefix import Prefix, peel

if TYPE_CHECKING:
    from diagnose.match.shapes import ShapeMeaning

# How far a line's start and end are looked for around a match, and how much of it is kept.
LINE_WINDOW = 8192
TEXT_LIMIT = 4096
_HEAD = 512
# Where a line is cut whole words are left out: so many characters are looked through, so many
# before the match are never left out.
_LONGEST_WORD = 1024
_KEPT = 512
_BREAKS = b"\r\n"
_ENDS = b"\r\n \t\"',;"
_ENDS_LIST = tuple(bytes((char,)) for char in _ENDS)
_WORDS = expression(rb"[^ \t\r\n]{0,1024}(?:[ \t]+[^ \t\r\n]{1,1024}){0,3}[ \t]+")
_ITEMS = expression(rb"(?:[^\"',;&\s]{0,256}[\"',;&]){1,8}")  # of JSON without blanks
# First and last lines kept of a source.
_EDGE_LINES = 4
VISIBLE = expression(rb"\S")


_UNREAD = Prefix("")


@dataclass(slots=True)
class Reading:
    """One line, or a segment of one: where it is, what was found in it, and then what it says.

    `place` orders it in its source, where parts of what was one line share number and offset.
    `patterns` are those that may be in `data`; negative ones are words. What they say follows where
    it pays: the clean `text`, bounded by TEXT_LIMIT, which takes the place of the data, its
    `prefix`, `matches` as (signature number, captures), and the `word` that a vocabulary knows of a
    line that no signature knows better. Those with the same `alike` differ in numbers only; they
    share prefixes, which leave out the message.
    """

    place: int
    line: int
    offset: int
    data: bytes
    patterns: tuple[int, ...] = field(default=(), compare=False)
    text: str = ""
    prefix: Prefix = field(default_factory=lambda: _UNREAD)
    matches: Sequence[tuple[int, dict[str, str]]] = ()
    word: Meant | None = None
    alike: ShapeMeaning | None = field(default=None, repr=False, compare=False)


def segments(chunk: Chunk, hits: Iterable[tuple[int, int]], place: int) -> Iterator[Reading]:
    """The segments (lines, cut at carriage returns too) around the hits, in order.

    `place` is that of the chunk's start.
    """
    number = start = end = first = -1
    patterns: list[int] = []
    for pattern, to in hits:
        if to <= end:
            if pattern not in patterns:
                patterns.append(pattern)
            continue
        if patterns:
            yield _made(chunk, number, start, end, patterns, first, place)
        number, start, end = chunk.line_at(to) or _bounds(chunk, to)
        first = to
        patterns = [pattern]
    if patterns:
        yield _made(chunk, number, start, end, patterns, first, place)


def _bounds(chunk: Chunk, to: int) -> tuple[int, int, int]:
    data = chunk.data
    low = max(0, to - LINE_WINDOW)
    newline = data.rfind(b"\n", low, to)
    start = newline + 1 if newline >= 0 else low
    start = max(start, data.rfind(b"\r", start, max(start, to - 1)) + 1)
    high = min(len(data), to + LINE_WINDOW)
    newline = data.find(b"\n", to, high)
    end = newline if newline >= 0 else high
    bare = data.find(b"\r", to, end)
    return chunk.newlines(start), start, bare if bare >= 0 else end


def _made(
    chunk: Chunk, newlines: int, start: int, end: int, patterns: list[int], to: int, place: int
) -> Reading:
    """A segment, cut to its start and the surroundings of its first match if it is long."""
    line, offset = chunk.number(newlines), chunk.offset_at(start, newlines)
    start, end = _whole_words(chunk.data, start, end, to)
    data = chunk.data[start:end]
    if len(data) > TEXT_LIMIT:
        low = max(start + _HEAD, to - TEXT_LIMIT // 2)
        high = min(end, low + TEXT_LIMIT - _HEAD)
        low, high = _whole_words(chunk.data, low, high, to)
        _, head = _whole_words(chunk.data, start, start + _HEAD, start)
        data = chunk.data[start:head] + b" ... " + chunk.data[low:high]
    return Reading(place + start, line, offset, data, tuple(patterns))


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


def text_of(data: bytes) -> str:
    """The text of a line, bounded."""
    return data[: TEXT_LIMIT + 8].decode(errors="replace")


def first_lines(chunk: Chunk) -> list[Reading]:
    """The first few non-empty lines of a chunk that has some."""
    data = chunk.data
    visible = VISIBLE.search(data)
    first = visible.start() if visible else 0
    start = max(data.rfind(b"\n", 0, first) + 1, first - _HEAD)
    rows = data[start : start + LINE_WINDOW].split(b"\n")
    pieces = (next(filter(bytes.strip, row.split(b"\r")), b"") for row in rows)
    rows_at = enumerate(pieces, start=chunk.newlines(start))
    return list(islice(filled_lines(chunk, rows_at), _EDGE_LINES))


def last_lines(chunk: Chunk) -> list[Reading]:
    """The last few non-empty lines of a chunk that has some; of a long one its start and end."""
    data = chunk.data.rstrip()
    start = data.rfind(b"\n") + 1
    rows = [data[start:]]
    if start:
        low = max(0, start - LINE_WINDOW)
        before = data[low : start - 1].split(b"\n")
        rows = before[1 if low else 0 :] + rows
    numbers = count(chunk.newlines(len(data)), -1)
    pieces = (_ends(row.rstrip().rpartition(b"\r")[2]) for row in reversed(rows))
    found = list(islice(filled_lines(chunk, zip(numbers, pieces, strict=False)), _EDGE_LINES))
    return found[::-1]


def _ends(row: bytes) -> bytes:
    """A line, of which the middle is left out if it is long."""
    if len(row) <= TEXT_LIMIT:
        return row
    return row[:_HEAD] + b" ... " + row[_HEAD - TEXT_LIMIT :]


def filled_lines(chunk: Chunk, rows: Iterable[tuple[int, bytes]]) -> Iterator[Reading]:
    """The lines that are not empty, by their 0-based number in the chunk."""
    for number, row in rows:
        if row.strip():
            yield Reading(chunk.offset, chunk.number(number), chunk.offset, row)


def peeled(lines: Iterable[Reading], matched: Iterable[Reading] = ()) -> Iterator[Reading]:
    """Lines with what their prefixes say, and without matches, though they may be `matched`."""
    known = {line.line: line for line in matched}
    for line in lines:
        line.text, same = text_of(line.data), known.get(line.line)
        line.prefix = (
            same.prefix if same is not None and same.text == line.text else peel(line.text)
        )
        yield line


_REACH = 600  # bytes of a line that are looked at

# First of all no word that a blank follows: most lines have no tag and fail there.
_TAGS = expression(
    rb"(?:(?:(?![\w.-]++ )(?:%b)|[\w.-]++ *+\| )){0,16}" % table.read().tags.encode()
)
# What a logger says of itself: `[rank 3]`, `"rank": 3`, and host and device between tabs.
_RANK = expression(rb"\b[Rr]ank\W{0,4}\d++|\t[\w.-]++:\d++\t")
# The process or thread in front of glog's place: I0925 21:44:11.393842 139000004532 train.py:214].
_GLOG = expression(rb"[IWEF]\d{4} [\d:.]{8,15}+ ++(\d++) (?=[^ \]:]++:\d++\])")


def author_of(line: bytes, begin: int = 0) -> bytes:
    """The name of the author of a line that begins there; empty where the line says none."""
    return author_at(line, begin, author_places(line, begin))


def author_places(line: bytes, begin: int) -> Sequence[tuple[int, int]]:
    """Where a line that begins there names its author, from its beginning on."""
    tags = _TAGS.match(line, begin)
    start = tags.end() if tags else begin
    end = begin + len(line[begin:start].rstrip(b" "))
    found = ((0, end - begin),) if end > begin else ()
    if glog := _GLOG.match(line, start):
        return (*found, (glog.start(1) - begin, glog.end(1) - begin))
    newline = line.find(b"\n", start)
    end = min(len(line) if newline < 0 else newline, begin + _REACH)
    # Faster than the expression, and most lines have none of these.
    if line.find(b"ank", start, end) < 0 and line.find(b"\t", start, end) < 0:
        return found
    rank = _RANK.search(line, start, end)
    return (*found, (rank.start() - begin, rank.end() - begin)) if rank else found


def author_at(line: bytes, begin: int, places: Sequence[tuple[int, int]]) -> bytes:
    """The name of an author that is in these `author_places`."""
    if len(places) == 1:
        ((start, end),) = places
        return line[begin + start : begin + end]
    return b"".join([line[begin + start : begin + end] for start, end in places])
