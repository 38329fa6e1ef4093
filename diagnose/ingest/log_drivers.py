"""What log drivers make of the lines that programs print, undone: CRI, docker, systemd's journal.

CRI (`P` lines) and docker (16 KiB pieces) split long lines. A joined line stands where its last
piece stood, and counts as being on the line of its first piece, whose time it keeps.

Of the journal there are two forms of its own. `-o export` (systemd.io/JOURNAL_EXPORT_FORMATS):
records of fields, an empty line below each; a field is `NAME=text`, or `NAME`, the length in eight
bytes, little end first, and the bytes. Of `-o verbose` records begin with a time, below which their
fields stand indented. What comes out is `-o short-iso-precise`, each line of a message with its
prefix, with the priority in front of it where that says more than that something was printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from diagnose.lazy import expression
from diagnose.parse.chunk import Chunk

EXPORT, VERBOSE = "journal-export", "journal-verbose"

_LIMIT = 1 << 20  # bytes of a value or a line that are kept
_LONGEST = 768 << 20  # bytes of a value that journald takes; a length above it is damage
_TIME = "__REALTIME_TIMESTAMP"
_HOST = ("_HOSTNAME",)
_PROGRAM = ("SYSLOG_IDENTIFIER", "_COMM")
_PID = ("_PID", "SYSLOG_PID")
_WANTED = frozenset({_TIME, "MESSAGE", "PRIORITY", *_HOST, *_PROGRAM, *_PID})
_WARNING = 4  # and what is more urgent: 3 is an error, 6 is what programs print
_EXPORTED = expression(rb"(?:[A-Z_][A-Z0-9_]{0,63}=[^\n]*\n){0,40}?__REALTIME_TIMESTAMP=\d{1,17}\n")
_HEADING = expression(
    rb"[A-Z][a-z]{2} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)"
    rb"(?: (\S{1,6}))? \[s=[0-9a-f]{4,40};"
)
_NAME = expression(rb"[A-Z_][A-Z0-9_]{0,63}\Z")
_UNPRINTED = expression(r"[^\w./\-()@]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def journal_form(head: bytes) -> str | None:
    """Which of the two forms a source that begins so has; None for neither."""
    if _EXPORTED.match(head):
        return EXPORT
    return VERBOSE if _HEADING.match(head) else None


def journal_lines(blocks: Iterable[bytes], form: str) -> Iterator[bytes]:
    """The lines of the records, in blocks."""
    stream = _Stream(iter(blocks))
    records = _exported(stream) if form == EXPORT else _verbose(stream)
    for record in records:
        text = _printed(record)
        if text:
            yield text


@dataclass(slots=True)
class _Stream:
    """Bytes that come in blocks, taken line by line or by their number."""

    blocks: Iterator[bytes]
    held: bytes = field(default=b"", repr=False)
    at: int = 0

    def line(self) -> bytes | None:
        """The next line, without its end; None behind the last. Of a long one a piece."""
        searched = self.at
        while (end := self.held.find(b"\n", searched)) < 0:
            searched = len(self.held) - self.at
            if searched > _LIMIT or not self._more():
                return self.take(searched) if searched else None
        line, self.at = self.held[self.at : end], end + 1
        return line

    def take(self, size: int) -> bytes:
        """The next bytes; of many only the first are kept."""
        kept = bytearray()
        while size > 0:
            piece = self.held[self.at : self.at + size]
            if not piece and not self._more():
                break
            kept += piece[: _LIMIT - len(kept)]
            self.at += len(piece)
            size -= len(piece)
        return bytes(kept)

    def _more(self) -> bool:
        block = next(self.blocks, b"")
        self.held, self.at = self.held[self.at :] + block, 0
        return bool(block)


def _exported(stream: _Stream) -> Iterator[dict[str, bytes]]:
    record: dict[str, bytes] = {}
    while (line := stream.line()) is not None:
        if not line:
            yield record
            record = {}
            continue
        name, equals, value = line.partition(b"=")
        if not equals and _NAME.match(name):
            size = int.from_bytes(stream.take(8), "little")
            value = stream.take(size if size <= _LONGEST else 0)
            stream.line()
        _keep(record, name, value)
    yield record


def _verbose(stream: _Stream) -> Iterator[dict[str, bytes]]:
    record: dict[str, bytes] = {}
    while (line := stream.line()) is not None:
        heading = _HEADING.match(line)
        if heading:
            yield record
            record = {_TIME: heading[1] + (b"Z" if heading[2] in (b"UTC", b"GMT") else b"")}
            continue
        name, _, value = line.strip().partition(b"=")
        _keep(record, name, value)
    yield record


def _keep(record: dict[str, bytes], name: bytes, value: bytes) -> None:
    text = name.decode(errors="replace")
    if text in _WANTED:
        record.setdefault(text, value)


def _printed(record: Mapping[str, bytes]) -> bytes:
    texts = {name: value.decode(errors="replace") for name, value in record.items()}
    if not texts.get("MESSAGE") or _TIME not in texts:
        return b""
    host, program, pid = (
        next((texts[name] for name in names if texts.get(name)), "")
        for names in (_HOST, _PROGRAM, _PID)
    )
    program = _UNPRINTED.sub("_", program)[:80] or "unknown"
    process = f"{program}[{pid}]" if pid.isdecimal() else program
    urgency = texts.get("PRIORITY", "")
    mark = f"<{urgency}>" if len(urgency) == 1 and "0" <= urgency <= str(_WARNING) else ""
    head = f"{mark}{_time(texts[_TIME])} {_UNPRINTED.sub('_', host)[:128] or '-'} {process}: "
    lines = texts["MESSAGE"].removesuffix("\n").split("\n")
    return "".join(f"{head}{line}\n" for line in lines).encode()


def _time(text: str) -> str:
    """Microseconds since 1970, or a time that was printed already, as ISO 8601 has it."""
    if not text.isdecimal():
        return text.replace(" ", "T")
    return (_EPOCH + timedelta(microseconds=int(text[:17]))).isoformat(timespec="microseconds")


JOINED_LIMIT = 1 << 20  # bytes of one joined line
LINES_LOOKED_AT = 10


class Form(NamedTuple):
    """How one runtime writes a line.

    `line` has the groups head, stream, text, tail and more, which takes part in a match only if
    the line continues. `partial` finds whether any line of a chunk may continue. `marks` are put
    around the text of a joined line to make it a whole one.
    """

    line: re.Pattern[bytes]
    partial: re.Pattern[bytes]
    marks: tuple[bytes, bytes]


_FORMS = (
    Form(
        line=expression(
            rb"(?P<head>\d{4}-\d\d-\d\dT\S+ (?P<stream>stdout|stderr) )"
            rb"(?:(?P<more>P)|F)(?::\S*)? (?P<text>[^\n]*)(?P<tail>)"
        ),
        partial=expression(rb" std(?:out|err) P[ :]"),
        marks=(b"F ", b""),
    ),
    Form(
        line=expression(
            rb'(?P<head>\{"log":")(?P<text>(?:[^"\\\n]|\\.)*?)(?:\\n|(?P<more>))'
            rb'(?P<tail>","stream":"(?P<stream>\w+)"[^\n]*\})'
        ),
        # Not behind an escaped newline; an escaped backslash and an n look like one.
        partial=expression(rb'(?:[^n]|[^\\]n|\\\\n)","stream":"'),
        marks=(b"", b"\\n"),
    ),
)


_Row = tuple[bytes, int, int]  # a line, its number and where it begins


@dataclass(slots=True)
class _Pending:
    """The pieces of one unfinished line."""

    head: bytes
    tail: bytes
    line: int
    offset: int
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def whole(self, marks: tuple[bytes, bytes]) -> _Row:
        before, after = marks
        data = b"".join((self.head, before, *self.parts, after, self.tail, b"\n"))
        return data, self.line, self.offset


def partial_form(data: bytes) -> Form | None:
    """The form of a source that starts with `data`, if all its first lines have one."""
    lines = data[: 256 << 10].split(b"\n", LINES_LOOKED_AT)[:LINES_LOOKED_AT]
    lines = [line for line in lines if line]
    for form in _FORMS:
        if lines and all(form.line.match(line) for line in lines):
            return form
    return None


def join_partials(chunks: Iterator[Chunk], form: Form) -> Iterator[Chunk]:
    """The chunks with the pieces of split lines joined, each stream on its own."""
    pending: dict[bytes, _Pending] = {}
    for chunk in chunks:
        if pending or form.partial.search(chunk.data):
            yield from _chunk_of([*_joined(chunk, form, pending)])
        else:
            yield chunk
    rest = sorted(pending.values(), key=lambda piece: piece.line)
    yield from _chunk_of([piece.whole(form.marks) for piece in rest])


def _chunk_of(rows: list[_Row]) -> Iterator[Chunk]:
    if rows:
        data, lines, offsets = zip(*rows, strict=True)
        yield Chunk(b"".join(data), offsets[0], lines[0], [*lines], [*offsets])


def _joined(chunk: Chunk, form: Form, pending: dict[bytes, _Pending]) -> Iterator[_Row]:
    from diagnose.ingest.chunks import line_starts  # noqa: PLC0415  it knows of sources

    offsets = chunk.raw_offsets
    if offsets is None:
        offsets = line_starts(chunk.data, chunk.offset)
    start = 0
    for index, offset in enumerate(offsets):
        end = chunk.data.find(b"\n", start) + 1 or len(chunk.data)
        data = chunk.data[start:end]
        start = end
        line = chunk.first_line + index
        match = form.line.fullmatch(data.removesuffix(b"\n"))
        if match is None or (match["more"] is None and match["stream"] not in pending):
            yield data, line, offset
            continue
        stream = match["stream"]
        if stream not in pending:
            pending[stream] = _Pending(match["head"], match["tail"], line, offset)
        piece = pending[stream]
        piece.parts.append(match["text"])
        piece.size += len(match["text"])
        if match["more"] is None or piece.size > JOINED_LIMIT:
            yield pending.pop(stream).whole(form.marks)
