"""Joining log lines that a container runtime split: CRI `P` lines, docker's 16 KiB pieces.

A joined line stands where its last piece stood, and counts as being on the line of its first piece,
whose time it keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from diagnose.ingest.chunks import line_starts
from diagnose.ingest.source import Chunk
from diagnose.lazy import dataclass, expression

JOINED_LIMIT = 1 << 20  # bytes of one joined line
LINES_LOOKED_AT = 10


@dataclass(frozen=True, slots=True)
class Form:
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


@dataclass(slots=True)
class _Pending:
    """The pieces of one unfinished line."""

    head: bytes
    tail: bytes
    line: int
    offset: int
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class _Joined:
    """The output of one chunk while it grows."""

    marks: tuple[bytes, bytes]
    data: list[bytes] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def put(self, data: bytes, line: int, offset: int) -> None:
        self.data.append(data)
        self.lines.append(line)
        self.offsets.append(offset)

    def finish(self, piece: _Pending) -> None:
        before, after = self.marks
        whole = b"".join((piece.head, before, *piece.parts, after, piece.tail, b"\n"))
        self.put(whole, piece.line, piece.offset)

    def chunk(self) -> Iterator[Chunk]:
        if self.data:
            data = b"".join(self.data)
            yield Chunk(data, self.offsets[0], self.lines[0], self.lines, self.offsets)


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
            yield from _joined(chunk, form, pending).chunk()
        else:
            yield chunk
    rest = _Joined(form.marks)
    for piece in sorted(pending.values(), key=lambda piece: piece.line):
        rest.finish(piece)
    yield from rest.chunk()


def _joined(chunk: Chunk, form: Form, pending: dict[bytes, _Pending]) -> _Joined:
    out = _Joined(form.marks)
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
            out.put(data, line, offset)
            continue
        stream = match["stream"]
        if stream not in pending:
            pending[stream] = _Pending(match["head"], match["tail"], line, offset)
        piece = pending[stream]
        piece.parts.append(match["text"])
        piece.size += len(match["text"])
        if match["more"] is None or piece.size > JOINED_LIMIT:
            out.finish(pending.pop(stream))
    return out
