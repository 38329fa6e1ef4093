"""From a store to chunks: decompress, decode, cut, clean, join, and undo what pasting did."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from diagnose.ingest import log_drivers
from diagnose.ingest.chunks import (
    CHUNK_LIMIT,
    cuts,
    is_zeros,
    line_starts,
    plain_chunks,
    stream_chunks,
)
from diagnose.ingest.compress import Codec, codec_of, decompress
from diagnose.ingest.log_drivers import LINES_LOOKED_AT, join_partials, partial_form
from diagnose.ingest.raw import Reader, Store, data_from, reason
from diagnose.ingest.sniff import HEAD, RETURNS, Container, describe, encoding_of, without_mark
from diagnose.ingest.source import Budget, Chunk

DOCUMENT_LIMIT = 64 << 20  # bytes of a dump or another file that is read as a whole
ZEROS_LIMIT = 256 << 20  # NULs at the start of a log that are read to see what stands behind them
PASTE_LIMIT = 4 << 20  # bytes of a source that may be a paste
_START = 64 << 10  # bytes that mostly hold the lines which tell how a log was written


class Opened(NamedTuple):
    """What a look at the first bytes of a store told; `size` are its bytes at that time.

    `container`: it may hold logs, but in a form that is not read as text.
    """

    kind: str
    note: str
    codec: Codec | None
    encoding: str
    bom: int
    size: int = 0
    container: Container | None = None

    @property
    def as_stored(self) -> bool:
        """Whether the bytes of its text are those of the store."""
        return self.codec is None and self.encoding == "utf-8"


@dataclass(frozen=True, slots=True)
class TextChunks:
    """The `chunks` of a text source: call it to read the store from its start.

    `budget` is that of the Source itself. Reading never raises: an error ends the chunks and is
    noted there. `whole` is not empty once a reading gave all bytes as they are stored, in one
    chunk: lines stand where they were found.
    """

    store: Store
    opened: Opened
    budget: Budget
    chunk_limit: int = field(default=CHUNK_LIMIT)
    whole: list[bool] = field(default_factory=list, compare=False, repr=False)

    @property
    def size(self) -> int:
        """Bytes of the text, before it is cleaned; of compressed data as they are stored."""
        return self.opened.size

    def seekable(self) -> bool:
        """Whether a part of it can be read by itself: `part` gives chunks of the whole.

        Not where reading needs what came before: of compressed data, of text in another encoding,
        of lines that a container runtime split, and of a text that may be a paste.
        """
        opened = self.opened
        if not opened.as_stored or self.budget.archive:
            return False
        if self.size <= PASTE_LIMIT:
            return False
        try:
            with self.store.open() as reader:
                for limit in (_START, self.chunk_limit):
                    first = next(plain_chunks(reader, opened.bom, limit), None)
                    if first is None or first.data.count(b"\n") >= LINES_LOOKED_AT:
                        break
        except OSError:
            return False  # whoever reads it tells
        return first is None or opened.kind != "text" or partial_form(first.data) is None

    def starts(self, step: int) -> list[int]:
        """Where parts of a seekable store begin, about `step` bytes of text each."""
        try:
            with self.store.open() as reader:
                step += -step % self.chunk_limit
                return [self.opened.bom, *cuts(reader, step, self.chunk_limit)]
        except OSError:
            return [self.opened.bom]

    def part(self, start: int, end: int | None, line: int = 1) -> Iterator[Chunk]:
        """The chunks from `start` to `end`, one of `starts` or where a chunk begins, or the end.

        `line` is that of the first. Together the parts give what reading all of it gives.
        """
        try:
            with _whole(self.store, self.opened, self.budget) as reader:
                yield from plain_chunks(reader, start, self.chunk_limit, end, line)
        except OSError as error:
            self.budget.cut(f"reading stopped: {reason(error)}")

    def __call__(self) -> Iterator[Chunk]:
        """The chunks in order, read anew."""
        try:
            with _whole(self.store, self.opened, self.budget) as reader:
                chunks = self._cut(reader)
                for chunk in _refined(chunks) if self.opened.kind == "text" else chunks:
                    self._note(chunk)
                    yield chunk
        except OSError as error:
            self.budget.cut(f"reading stopped: {reason(error)}")

    def _note(self, chunk: Chunk) -> None:
        opened = self.opened
        cleaned = chunk.lines is not None or chunk.raw_offsets is not None
        complete = len(chunk.data) == opened.size - opened.bom
        if opened.as_stored and complete and not cleaned and not self.whole:
            self.whole.append(True)

    def _cut(self, reader: Reader) -> Iterator[Chunk]:
        opened = self.opened
        if opened.as_stored:
            return plain_chunks(reader, opened.bom, self.chunk_limit)
        if opened.codec is None:
            blocks = _stored(reader)
        else:
            blocks = decompress(reader, opened.codec, self.budget)
        blocks = _without_start(blocks, opened.bom)
        if opened.encoding == "utf-8":
            return stream_chunks(blocks, opened.bom, self.chunk_limit)
        return stream_chunks(as_utf8(blocks, opened.encoding), 0, self.chunk_limit)


@dataclass(frozen=True, slots=True)
class Content:
    """The `content` of a document: call it to read the store as a whole, decompressed, in UTF-8.

    What is longer than DOCUMENT_LIMIT is cut there, with a note; an error gives what came before.
    """

    store: Store
    opened: Opened
    budget: Budget

    def __call__(self) -> bytes:
        """The bytes, read anew."""
        parts: list[bytes] = []
        have = 0
        try:
            with _whole(self.store, self.opened, self.budget) as reader:
                codec = self.opened.codec
                blocks = decompress(reader, codec, self.budget) if codec else _stored(reader)
                for block in blocks:
                    parts.append(block[: DOCUMENT_LIMIT - have])
                    have += len(parts[-1])
                    if have >= DOCUMENT_LIMIT:
                        self.budget.cut(f"only the first {DOCUMENT_LIMIT >> 20} MiB were read")
                        break
        except OSError as error:
            self.budget.cut(f"reading stopped: {reason(error)}")
        return without_mark(b"".join(parts))


@dataclass(slots=True)
class _Watched:
    """A reader that notices where its store has lost bytes since it was opened.

    It ends where the `budget`, if there is one, does not allow to go on.
    """

    reader: Reader
    size: int
    budget: Budget | None
    short: bool = False

    def read_at(self, offset: int, length: int) -> bytes:
        data = self.reader.read_at(offset, length)
        if len(data) < min(length, self.size - offset):
            self.short = True
        within = self.budget is None or self.budget.allows(offset + len(data))
        return data if within else b""

    def data_from(self, offset: int) -> int:
        return data_from(self.reader, offset)


@contextmanager
def _whole(store: Store, opened: Opened, budget: Budget) -> Iterator[Reader]:
    """Open a store to read all of it; notes where bytes that were there have gone."""
    with store.open() as reader:
        # Of compressed data what comes out counts.
        watched = _Watched(reader, reader.size, budget if opened.codec is None else None)
        yield watched
        if watched.short or reader.size < opened.size:
            budget.cut("became shorter while it was read")


def no_chunks() -> Iterator[Chunk]:
    """The chunks of a source with nothing to read."""
    return iter(())


def look(store: Store, name: str, budget: Budget | None = None) -> Opened:
    """Tell a store's compression, encoding and kind from its first bytes. Raises OSError."""
    with store.open() as reader:
        head = reader.read_at(0, HEAD)
        codec = codec_of(head)
        # A look costs little: it takes nothing from an archive's budget, and its notes are its own.
        bounds = replace(budget or Budget(), archive=None, notes=[], unread=[])
        if codec is not None:
            head = _decompressed_head(reader, codec, bounds)
        elif head and is_zeros(head):
            # A hole at the start of a log; what it is, only the bytes behind it can tell.
            start = _end_of_zeros(reader)
            if start >= reader.size:
                return Opened("binary", "nothing but NUL bytes", None, "utf-8", 0)
            kind, what, container = describe(reader.read_at(start, HEAD), name)
            return Opened(kind, what, None, "utf-8", 0, reader.size, container)
        size = reader.size
        encoding, bom = encoding_of(head)
        # A long bar, below which lines end as usual: its updates are one line.
        if (
            encoding == RETURNS
            and codec is None
            and b"\n" in reader.read_at(max(0, size - HEAD), HEAD)
        ):
            encoding = "utf-8"
    if codec is not None and not head:
        if bounds.notes:
            return Opened("unreadable", bounds.notes[0], codec, encoding, bom)
        return Opened("empty", f"empty {codec} data", codec, encoding, bom)
    if codec is not None and codec_of(head) is not None:
        what = f"{codec_of(head)} data inside {codec} data"
        return Opened("binary", what, codec, encoding, bom, container=Container.TWICE)
    kind, what, container = describe(head, name)
    if container in (Container.ARCHIVE, Container.OTHER_ARCHIVE):
        what += ": unpack it and give the folder"
    return Opened(kind, what, codec, encoding, bom, size, container)


def _end_of_zeros(reader: Reader) -> int:
    """Where the first byte that is no NUL stands; as far as NULs were looked through."""
    at = have = 0
    while have < ZEROS_LIMIT and (at := data_from(reader, at)) < reader.size:
        block = reader.read_at(at, 1 << 20)
        if not block:
            return reader.size
        if not is_zeros(block):
            return at + len(block) - len(block.lstrip(b"\0"))
        at += len(block)
        have += len(block)
    return at


def _decompressed_head(reader: Reader, codec: Codec, budget: Budget) -> bytes:
    head = b""
    for block in decompress(reader, codec, budget, step=HEAD):
        head += block
        if len(head) >= HEAD:
            break
    return head[:HEAD]


def _stored(reader: Reader) -> Iterator[bytes]:
    offset = 0
    while block := reader.read_at(offset, 1 << 20):
        yield block
        offset += len(block)


def _without_start(blocks: Iterator[bytes], length: int) -> Iterator[bytes]:
    for block in blocks:
        if length:
            rest = block[length:]
            length -= len(block) - len(rest)
            yield rest
        else:
            yield block


def as_utf8(blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Text of an encoding, without its byte order mark, as `sniff.encoding_of` names it."""
    if encoding in (log_drivers.EXPORT, log_drivers.VERBOSE):
        yield from log_drivers.journal_lines(blocks, encoding)
        return
    if encoding == RETURNS:
        yield from (block.replace(b"\r", b"\n") for block in blocks)
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for block in blocks:
        yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()


def _refined(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Join partial container log lines, or undo pasting if the source is small."""
    first = next(chunks, None)
    if first is None:
        return
    form = partial_form(first.data)
    if form is not None:
        yield from join_partials(chain([first], chunks), form)
        return
    held, total = deque([first]), len(first.data)
    del first  # chunks are large: none is kept longer than it has to be
    while total <= PASTE_LIMIT:
        chunk = next(chunks, None)
        if chunk is None:
            yield from _unpasted(list(held))
            return
        held.append(chunk)
        total += len(chunk.data)
    while held:
        yield held.popleft()
    yield from chunks


def _unpasted(chunks: list[Chunk]) -> Iterator[Chunk]:
    """The chunks of a whole small source, as one normalised chunk if it looks pasted."""
    from diagnose.ingest.paste import normalise  # noqa: PLC0415  small sources only

    data = chunks[0].data if len(chunks) == 1 else b"".join(chunk.data for chunk in chunks)
    normal = normalise(data)
    if normal is None:
        yield from chunks
        return
    if not normal.data:
        return
    offsets: list[int] = []
    for chunk in chunks:
        starts = chunk.raw_offsets
        if starts is None:
            starts = line_starts(chunk.data, chunk.offset)
        # A line cut into pieces starts where its first piece does.
        offsets += starts[1:] if len(offsets) > chunk.first_line - 1 else starts
    yield Chunk(
        normal.data,
        offsets[normal.lines[0] - 1],
        normal.lines[0],
        normal.lines,
        [offsets[line - 1] for line in normal.lines],
    )
