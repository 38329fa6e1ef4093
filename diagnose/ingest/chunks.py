"""Cutting bytes into line-aligned chunks, and cleaning them.

Everything here is independent of where the cuts fall: the data of all chunks together, and every
line number and offset, are the same for any chunk limit. Cleaning never adds or removes a line.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from diagnose.ingest.raw import Reader, data_from
from diagnose.ingest.source import Chunk
from diagnose.lazy import expression

CHUNK_LIMIT = 2 << 20  # bytes: what is read several times should stay in the processor's cache
_PROBE = 32 << 10
_NEWLINE = expression(rb"\n")
_LARGE = 256 << 10  # pieces for which loading numpy pays

# Terminal escape sequences (ECMA-48): CSI, the string sequences (OSC, DCS, PM, APC, SOS), character
# set selection and the two-byte ones. They are bounded and never go across a line end or a carriage
# return; of what is none only the ESC goes. A run of ESC is taken at once: each match costs a
# hundred bytes of memory. (`re` looks for the first byte of `\x1b\x1b*` ten times as fast as for
# `\x1b+`, which has no literal to begin with.)
_ESCAPE = expression(
    rb"\x1b\x1b*(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]"
    rb"|[\]PX^_][^\x07\x1b\r\n]{0,2048}(?:\x07|\x1b\\)"
    rb"|[ -/]{1,8}[0-~]"
    rb"|[0-OQ-WYZ\\`-~])?"
)
# One which the end of the data may have cut off.
_OPEN_ESCAPE = expression(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[\]PX^_][^\x07\x1b\r\n]{0,2048}\x1b?|[ -/]{0,8})\Z"
)
_LONGEST_ESCAPE = 2048 + 4


def plain_chunks(
    reader: Reader, start: int = 0, limit: int = CHUNK_LIMIT, end: int | None = None, line: int = 1
) -> Iterator[Chunk]:
    """Cut an uncompressed UTF-8 (or legacy) store, from byte `start` on. Raises OSError.

    With `end`, up to there: one of `cuts`, as `start` is then too; `line` is that of `start`.
    Fast path: a chunk that needs no cleaning is the very object that was read. Holes are not read.
    """
    offset = data_from(reader, start)
    stop = reader.size if end is None else end
    while offset < stop and (raw := _read_piece(reader, offset, stop, limit)):
        chunk = _chunk(raw, offset, line)
        if chunk is not None:
            yield chunk
        offset += len(raw)
        if offset < stop:  # nobody asks on which line a source ends
            line += chunk.newlines() if chunk is not None else 0
            offset = data_from(reader, offset)


def cuts(reader: Reader, step: int, limit: int = CHUNK_LIMIT) -> Iterator[int]:
    """Where chunks of `plain_chunks` begin, about every `step` bytes (a multiple of `limit`).

    Whatever chunk comes before, there is a cut behind the last line end of the probe before each
    multiple of the limit; where the probe has none, nothing is told.
    """
    for edge in range(step, reader.size, step):
        probe = _probe(limit)
        newline = reader.read_at(edge - probe, probe).rfind(b"\n")
        if newline >= 0:
            yield edge - probe + newline + 1


def stream_chunks(
    blocks: Iterable[bytes], start: int = 0, limit: int = CHUNK_LIMIT, line: int = 1
) -> Iterator[Chunk]:
    """Cut a stream of blocks of any size; `start` is the offset of its first byte, `line` its line.

    The cuts are those of a plain store.
    """
    offset = start
    parts: list[bytes] = []
    have = 0
    for block in blocks:
        parts.append(block)
        have += len(block)
        if have < _room(offset, limit):
            continue
        buffer = b"".join(parts)
        done = 0
        while cut := _next_cut(buffer, done, offset, limit):
            window = buffer[done : done + cut]
            chunk = _chunk(window, offset, line)
            if chunk is not None:
                yield chunk
                line += chunk.newlines()
            offset += cut
            done += cut
        parts = [buffer[done:]]
        have = len(buffer) - done
    chunk = _chunk(b"".join(parts), offset, line)
    if chunk is not None and chunk.data:
        yield chunk


def is_zeros(data: bytes) -> bool:
    """Whether there is nothing but NULs, as in a hole; many times faster than stripping them."""
    return data == bytes(len(data))


def line_starts(data: bytes, base: int = 0) -> array[int]:
    """The offset of each line's start in `data`, plus `base`; a final newline starts no line."""
    starts = array("q", [base] if data else [])
    if len(data) < _LARGE:
        starts.extend(match.end() + base for match in _NEWLINE.finditer(data))
    else:
        import numpy as np  # noqa: PLC0415  for large logs only

        places = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64)
        starts.frombytes((places + base + 1).tobytes())
    if data.endswith(b"\n"):
        starts.pop()
    return starts


def _room(offset: int, limit: int) -> int:
    """How far a chunk that begins at `offset` may reach: to a multiple of the limit.

    Cuts by places in the store and not by what came before make chunks of a part of it, read by
    itself, the chunks of the whole. The last cut lies a little before a multiple.
    """
    return limit - (offset + _probe(limit)) % limit + _probe(limit)


def _near(offset: int, limit: int) -> int:
    """How far it is to the next multiple of the limit, if that is near; else 0.

    A line ends before it only where a chunk begins behind a hole: others begin behind that end.
    """
    left = -offset % limit
    return left if left <= _probe(limit) else 0


def _probe(limit: int) -> int:
    """How far before a multiple of the limit the end of a line is looked for."""
    return min(_PROBE, limit // 2)


def _long_room(room: int, limit: int) -> int:
    """How far a chunk may reach whose first line passes that multiple: not to the next one."""
    return max(room, min(limit, room + limit - _probe(limit) - 1))


def _next_cut(buffer: bytes, done: int, offset: int, limit: int) -> int:
    """How long the chunk at `done`, which is `offset`, is; 0 if the buffer is too short to tell."""
    room, have = _room(offset, limit), len(buffer) - done
    if have < room:
        return 0
    if newline := buffer.rfind(b"\n", done, done + room) + 1:
        return newline - done
    want = _long_room(room, limit)
    while have >= want:
        # Without the bound a block larger than the limit would become one huge chunk.
        if cut := _cut(buffer[done : done + want]):
            return cut
        want += _LONGEST_ESCAPE
    return 0


def _read_piece(reader: Reader, offset: int, stop: int, limit: int) -> bytes:
    """The next piece from `offset` on, read without a copy where a line ends near its end."""
    room = _room(offset, limit)
    if near := reader.read_at(offset, min(_near(offset, limit), stop - offset)).rfind(b"\n") + 1:
        return reader.read_at(offset, near)
    if stop - offset <= room:
        return reader.read_at(offset, stop - offset)
    span = _probe(limit)
    cut = reader.read_at(offset + room - span, span).rfind(b"\n")
    if cut >= 0:
        return reader.read_at(offset, room - span + cut + 1)
    want = _long_room(room, limit)
    while True:
        raw = reader.read_at(offset, min(want, stop - offset))
        if cut := _next_cut(raw, 0, offset, limit):
            return raw[:cut]
        if len(raw) < want:
            return raw
        want += _LONGEST_ESCAPE


def _cut(buffer: bytes) -> int:
    """Where to cut: behind the last newline, else inside a long line where cleaning permits.

    0 means that the buffer is too short to tell.
    """
    if newline := buffer.rfind(b"\n") + 1:
        return newline
    # Before a carriage return: behind it, CR LF could be torn apart.
    if (bare := buffer.rfind(b"\r")) > 0:
        return bare
    end = len(buffer)
    if bare == 0 and end == 1:
        return 0
    if open_escape := _OPEN_ESCAPE.search(buffer, max(0, end - _LONGEST_ESCAPE)):
        end = open_escape.start()
    return _character_start(buffer, end)


def _character_start(buffer: bytes, end: int) -> int:
    """`end`, or the start of the UTF-8 character that `end` would cut."""
    for back in range(1, min(4, end) + 1):
        byte = buffer[end - back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return end - back if length > back else end
    return end


def _chunk(raw: bytes, offset: int, line: int) -> Chunk | None:
    """The chunk, unless nothing of it is left when it is clean: of which no newline is removed."""
    if raw[:1] == b"\0" and is_zeros(raw):
        return None
    data = _clean(raw)
    if data is raw:
        return Chunk(data, offset, line)
    if not data:
        return None
    offsets = line_starts(raw, offset)
    if data.endswith(b"\n") and not raw.endswith(b"\n"):
        offsets.pop()  # of an unfinished line that held nothing but escape sequences
    return Chunk(data, offset, line, None, offsets)


def without_escapes(data: bytes) -> bytes:
    """The data without escape sequences."""
    return _ESCAPE.sub(b"", data)


def _clean(raw: bytes) -> bytes:
    """CR LF to LF, escape sequences and NULs removed; the same object if there are none.

    The order matters: done like this, each step sees what it would see in the whole source.
    """
    data = raw
    if b"\r" in data and b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    if b"\x1b" in data:
        data = without_escapes(data)
    if b"\0" in data:
        data = data.translate(None, b"\0")
    return data
