"""Lines of a log read again from its source, for what events do not keep.

A log whose text is what is stored is read at the known offset; other small sources are read whole,
because their lines may have been joined or renumbered (pastes, container logs). Of anything else
nothing is read: a second pass over a large compressed log would cost more than the report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from typing import TYPE_CHECKING

from diagnose.ingest.read import TextChunks
from diagnose.timeline.readings import DOCUMENT_SIGNALS

if TYPE_CHECKING:
    from diagnose.ingest.source import Source
    from diagnose.job.model import Job

SMALL = 2 << 20  # bytes as stored
READ_LIMIT = 8 << 20  # decompressed bytes of a small source
WINDOW = 16 << 10  # bytes read to each side of the offset
LINE_LIMIT = 8 << 10  # bytes of one line

Place = tuple[str, int]  # source and 1-based line
Lines = dict[int, str]  # by number


def lines_around(job: Job, places: Iterable[Place], above: int, below: int) -> dict[Place, Lines]:
    """Each place with the lines around it, at most so many above and below; absent where unknown.

    A place must be that of an event, unless its source is small.
    """
    places = [*places]
    near = lines_near(job, places, above, below)
    return {
        (source, line): {
            number: near[source][number]
            for number in range(line - above, line + below + 1)
            if number in near[source]
        }
        for source, line in places
        if line in near.get(source, ())
    }


def lines_near(job: Job, places: Iterable[Place], above: int, below: int) -> dict[str, Lines]:
    """The same lines by source, each once however many places it is near to."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for source, line in places:
        wanted[source].add(line)
    if not wanted:
        return {}
    found: dict[str, Lines] = defaultdict(dict)
    sources = {source.name: source for source in job.sources if source.name in wanted}
    plain = {name: reader for name, source in sources.items() if (reader := _plain(source))}
    offsets = _offsets(job, {name: lines for name, lines in wanted.items() if name in plain})
    for name, lines in wanted.items():
        at = offsets.get(name, {})
        window = WINDOW if name in sources and sources[name].size > SMALL else SMALL
        for span in _spans(at, window):
            found[name] |= _from_span(plain[name], span, window, (above, below))
        if name in sources and sources[name].size <= SMALL and lines - at.keys():
            found[name] |= _from_whole(sources[name], lines - at.keys(), above, below)
    return found


def _from_whole(source: Source, lines: set[int], above: int, below: int) -> Lines:
    numbers = {near for line in lines for near in range(line - above, line + below + 1)}
    last = max(numbers)
    rows: Lines = {}
    read = 0
    for chunk in source.chunks():
        read += len(chunk.data)
        pieces = chunk.data.split(b"\n")
        if chunk.lines is None:
            first, end = chunk.first_line, chunk.first_line + len(pieces)
            given = [(near, pieces[near - first]) for near in numbers if first <= near < end]
        else:
            given = [pair for pair in zip(chunk.lines, pieces, strict=False) if pair[0] in numbers]
        for number, data in given:
            if not rows.get(number):  # the last of a chunk may be where the next one begins
                rows[number] = _text(data)
        if read > READ_LIMIT or chunk.first_line > last:
            break
    for line in lines:
        if not rows.get(line, "").strip():
            rows.pop(line, None)
    return rows


def _plain(source: Source) -> TextChunks | None:
    """How to read a source at an offset, if its bytes are stored as they were scanned."""
    chunks = source.chunks
    if not isinstance(chunks, TextChunks) or not (source.size > SMALL or chunks.whole):
        return None
    return chunks if chunks.opened.as_stored else None


def _offsets(job: Job, wanted: Mapping[str, set[int]]) -> dict[str, dict[int, int]]:
    """The bytes at which the wanted lines of sources begin."""
    found: dict[str, dict[int, int]] = {}
    sources = job.events.column("source") if wanted else ()
    for event in compress(job.events, map(wanted.__contains__, sources)):
        # Edges carry the offset of their chunk, and what a document means has none.
        known = event.kind != "edge" and event.signal not in DOCUMENT_SIGNALS
        if known and event.line in wanted[event.source]:
            found.setdefault(event.source, {})[event.line] = event.offset
    return found


def _spans(at: Mapping[int, int], window: int) -> Iterator[list[tuple[int, int]]]:
    """Lines with their offsets, in order, together those that are read at once."""
    span: list[tuple[int, int]] = []
    for line, offset in sorted(at.items()):
        if span and (offset - span[-1][1] > window or offset - span[0][1] > READ_LIMIT):
            yield span
            span = []
        span.append((line, offset))
    if span:
        yield span


def _from_span(
    chunks: TextChunks, span: list[tuple[int, int]], window: int, reach: tuple[int, int]
) -> Lines:
    (line, offset), last = span[0], span[-1][1]
    start = max(0, offset - window)
    try:
        with chunks.store.open() as reader:
            data = reader.read_at(start, last - start + window)
    except OSError:
        return {}
    before, after = data[: offset - start], data[offset - start :]
    # The offset may be that of a segment behind a carriage return: its line began before it.
    begin = before.rfind(b"\n") + 1
    after = before[begin:] + after
    above = before[:begin].rsplit(b"\n", reach[0] + 1)[:-1]
    if start > 0:
        above = above[1:]  # cut by the window
    rows = above[len(above) - reach[0] if len(above) > reach[0] else 0 :]
    first = line - len(rows)
    rows += after.split(b"\n", span[-1][0] - line + reach[1] + 1)
    found: Lines = {}
    for near, _ in span:
        for number in range(max(near - reach[0], first), near + reach[1] + 1):
            if number not in found and number - first < len(rows):
                found[number] = _text(rows[number - first])
    return found


def _text(data: bytes) -> str:
    # Of a progress bar, what the terminal showed last.
    data = data.rstrip(b"\r")
    if b"\r" in data[-LINE_LIMIT:]:
        data = data[-LINE_LIMIT:].rpartition(b"\r")[2]
    return data[:LINE_LIMIT].decode(errors="replace").removeprefix("\ufeff")
