"""The lines around a line of evidence, read again from its source.

More of them are read than shown, and given to `show` together: whether a line is a piece of a
secret may stand far above or below it.

A log whose text is what is stored is read at the known offset; other small sources are read whole,
because their lines may have been joined or renumbered (pastes, container logs). Anything else has
no context: a second pass over a large compressed log would cost more than the report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from diagnose.diagnosis import Diagnosis, Evidence
from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import Source
from diagnose.job.model import Job
from diagnose.report.html.scrub import Scrub
from diagnose.report.redact import Redactor

AROUND = 5  # lines before and after
REACH = 80  # lines before and after that are looked at; the longest usual key file has 55
SMALL = 2 << 20  # bytes as stored
READ_LIMIT = 8 << 20  # decompressed bytes of a small source
WINDOW = 16 << 10  # bytes read to each side of the offset
LINE_LIMIT = 8 << 10  # bytes of one line


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a log; `number` is 1-based."""

    number: int
    text: str


Show = Callable[[Sequence[str]], list[str]]
Rows = dict[tuple[str, int], list[Row]]


def around(job: Job, evidence: Iterable[Evidence], show: Show = list) -> Rows:
    """The surroundings of each (source, line), the line itself included; absent where unknown.

    `show` makes lines that follow each other fit to be shown, as many as it is given.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for item in evidence:
        wanted[item.source].add(item.line)
    if not wanted:
        return {}
    found: Rows = {}
    sources = {source.name: source for source in job.sources if source.name in wanted}
    plain = {name: reader for name, source in sources.items() if (reader := _plain(source))}
    offsets = _offsets(job, {name: lines for name, lines in wanted.items() if name in plain})
    for name, lines in wanted.items():
        at = offsets.get(name, {})
        for line, offset in at.items():
            window = WINDOW if sources[name].size > SMALL else SMALL
            rows = _shown(_from_window(plain[name], line, offset, window), line, show)
            if rows:
                found[name, line] = rows
        if name in sources and sources[name].size <= SMALL and lines - at.keys():
            found |= _from_whole(sources[name], lines - at.keys(), show)
    return found


def _from_whole(source: Source, lines: set[int], show: Show) -> Rows:
    numbers = {near for line in lines for near in range(line - REACH, line + REACH + 1)}
    last = max(numbers)
    rows: dict[int, str] = {}
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
    found: Rows = {}
    for line in lines:
        near = range(line - REACH, line + REACH + 1)
        if rows.get(line, "").strip():
            kept = [Row(number, rows[number]) for number in near if number in rows]
            found[source.name, line] = _shown(kept, line, show)
    return found


def _shown(rows: list[Row], line: int, show: Show) -> list[Row]:
    """The rows that a reader sees, after `show` saw all of those within WINDOW characters."""
    above = _within(reversed([row for row in rows if row.number < line]))
    below = _within(row for row in rows if row.number >= line)
    kept = [*reversed(above), *below]
    texts = show([row.text for row in kept])
    seen = [
        Row(row.number, text)
        for row, text in zip(kept, texts, strict=True)
        if abs(row.number - line) <= AROUND
    ]
    return _trimmed(seen, line)


def _within(rows: Iterable[Row]) -> list[Row]:
    """The first rows, as many as AROUND tells or WINDOW characters hold."""
    kept: list[Row] = []
    size = 0
    for row in rows:
        size += len(row.text)
        if size > WINDOW and len(kept) > AROUND:
            break
        kept.append(row)
    return kept


def _trimmed(rows: list[Row], line: int) -> list[Row]:
    """Without the empty lines at both ends."""
    while rows and rows[0].number < line and not rows[0].text.strip():
        rows = rows[1:]
    while rows and rows[-1].number > line and not rows[-1].text.strip():
        rows = rows[:-1]
    return rows


def _plain(source: Source) -> TextChunks | None:
    """How to read a source at an offset, if its bytes are stored as they were scanned."""
    chunks = source.chunks
    if not isinstance(chunks, TextChunks) or not (source.size > SMALL or chunks.whole):
        return None
    return chunks if chunks.opened.codec is None and chunks.opened.encoding == "utf-8" else None


def _offsets(job: Job, wanted: Mapping[str, set[int]]) -> dict[str, dict[int, int]]:
    """The bytes at which the wanted lines of sources begin."""
    found: dict[str, dict[int, int]] = {}
    sources = job.events.column("source") if wanted else ()
    for event in compress(job.events, map(wanted.__contains__, sources)):
        # Edges carry the offset of their chunk.
        if event.kind != "edge" and event.line in wanted[event.source]:
            found.setdefault(event.source, {})[event.line] = event.offset
    return found


def _from_window(chunks: TextChunks, line: int, offset: int, window: int) -> list[Row]:
    start = max(0, offset - window)
    try:
        with chunks.store.open() as reader:
            data = reader.read_at(start, offset - start + window)
    except OSError:
        return []
    before, after = data[: offset - start], data[offset - start :]
    # The offset may be that of a segment behind a carriage return: its line began before it.
    begin = before.rfind(b"\n") + 1
    after = before[begin:] + after
    above = before[:begin].rsplit(b"\n", REACH + 1)[:-1]
    if start > 0:
        above = above[1:]  # cut by the window
    above = above[-REACH:]
    rows = [Row(line - len(above) + index, _text(data)) for index, data in enumerate(above)]
    below = after.split(b"\n", REACH + 1)[: REACH + 1]
    return rows + [Row(line + index, _text(data)) for index, data in enumerate(below)]


def _text(data: bytes) -> str:
    # Of a progress bar, what the terminal showed last.
    data = data.rstrip(b"\r")
    if b"\r" in data[-LINE_LIMIT:]:
        data = data[-LINE_LIMIT:].rpartition(b"\r")[2]
    return data[:LINE_LIMIT].decode(errors="replace")


def learn(job: Job, diagnosis: Diagnosis, redactor: Redactor) -> Redactor:
    """`redactor`, which now knows the secrets around the evidence; for text that shows no more."""
    chosen: list[Evidence] = []
    for item in diagnosis.evidence:
        near = (one for one in chosen if one.source == item.source)
        if all(abs(one.line - item.line) > REACH // 2 for one in near):
            chosen.append(item)
    around(job, chosen, Scrub(redactor).block)
    return redactor
