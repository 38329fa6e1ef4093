"""Joining log lines that a container runtime split: CRI `P` lines, docker's 16 KiB pieces.

Forms: FORMATS.md 1.4. The joined line stands where its last piece stood and counts as being on
the line of its first piece, of which it keeps the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from diagnose.ingest.chunks import line_starts
from diagnose.ingest.source import Chunk

JOINED_LIMIT = 1 << 20  # bytes of one joined line
_LINES_LOOKED_AT = 10


@dataclass(frozen=True, slots=True)
class Form:
    """How one runtime writes a line.

    `line` has the groups head, stream, more (set if the line continues), text and tail; `partial`
    finds whether any line of a chunk may continue.
    """

    name: str
    line: re.Pattern[bytes]
    partial: re.Pattern[bytes]


_FORMS = (
    Form(
        "cri",
        re.compile(
            rb"(?P<head>\d{4}-\d\d-\d\dT\S+ (?P<stream>stdout|stderr) )"
            rb"(?:(?P<more>P)|F)(?::[^ \n]*)? (?P<text>[^\n]*)(?P<tail>)"
        ),
        re.compile(rb" std(?:out|err) P[ :]"),
    ),
    Form(
        "docker",
        re.compile(
            rb'(?P<head>\{"log":")(?P<text>(?:[^"\\\n]|\\.)*?)(?P<end>\\n)?'
            rb'(?P<tail>","stream":"(?P<stream>\w+)"[^\n]*\})(?P<more>)'
        ),
        re.compile(rb'(?:[^n]|[^\\]n|\\\\n)","stream":"'),
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


def partial_form(data: bytes) -> Form | None:
    """The form of a source, if its first lines all have it."""
    lines = data[: 256 << 10].split(b"\n", _LINES_LOOKED_AT)[:_LINES_LOOKED_AT]
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
            joined = _Joined(form)
            offsets = chunk.raw_offsets
            if offsets is None:
                offsets = line_starts(chunk.data, chunk.offset)
            for index, line in enumerate(chunk.data.splitlines(keepends=True) if False else _lines(chunk.data)):
                joined.add(line, chunk.first_line + index, offsets[index], pending)
            yield from joined.chunk()
        else:
            yield chunk
    rest = _Joined(form)
    for piece in sorted(pending.values(), key=lambda piece: piece.line):
        rest.put(piece)
    yield from rest.chunk()


def _lines(data: bytes) -> list[bytes]:
    """The lines with their ends (only newlines end a line here)."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


class _Joined:
    """Builds the output of one chunk."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._out: list[bytes] = []
        self._numbers: list[int] = []
        self._offsets: list[int] = []

    def add(self, line: bytes, number: int, offset: int, pending: dict[bytes, _Pending]) -> None:
        match = self._form.line.fullmatch(line.removesuffix(b"\n"))
        if match is None:
            self._emit(line, number, offset)
            return
        stream = match["stream"]
        more = match["more"] if self._form.name == "cri" else match["end"] is None
        piece = pending.get(stream)
        if piece is None:
            if not more:
                self._emit(line, number, offset)
                return
            piece = pending[stream] = _Pending(match["head"], match["tail"], number, offset)
        piece.parts.append(match["text"])
        piece.size += len(match["text"])
        if not more or piece.size > JOINED_LIMIT:
            self.put(pending.pop(stream))

    def put(self, piece: _Pending) -> None:
        """Emit a joined line."""
        text = b"".join(piece.parts)
        if self._form.name == "cri":
            line = piece.head + b"F " + text + b"\n"
        else:
            line = piece.head + text + b"\\n" + piece.tail + b"\n"
        self._emit(line, piece.line, piece.offset)

    def chunk(self) -> Iterator[Chunk]:
        """The chunk, if it holds anything."""
        if self._out:
            numbers, offsets = self._numbers, self._offsets
            yield Chunk(b"".join(self._out), offsets[0], numbers[0], numbers, offsets)

    def _emit(self, line: bytes, number: int, offset: int) -> None:
        self._out.append(line)
        self._numbers.append(number)
        self._offsets.append(offset)
