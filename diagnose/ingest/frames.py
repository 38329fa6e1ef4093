"""Compressed data that is cut into frames, each with its size: any place of it can be read alone.

BGZF (`bgzip`; SAM specification, 4.1): gzip members of at most 64 KiB, whose header has the size of
the member in a subfield `BC`, and whose last four bytes say what it holds. Zstandard (RFC 8878): a
frame header may have the size of what the frame holds; where it ends, the headers of its blocks
tell. `pzstd` and streams of unknown length leave that size out.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import zstandard

from diagnose.ingest.compress import Codec, Limits, decompress
from diagnose.ingest.raw import Reader

MOST = 8 << 20  # bytes that a frame may hold: of larger ones too much is read for nothing
_MANY = 1 << 20  # frames that anybody has looked through
_SIZES_UNKNOWN = (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames in their order: where each begins in the store, and what it holds in the whole.

    `size` is that of the whole, in bytes.
    """

    starts: array[int]
    places: array[int]
    size: int


@dataclass(frozen=True, slots=True)
class FramedReader:
    """Reads what frames hold, at any offset; damage ends it, of which `cut` is told."""

    reader: Reader
    codec: Codec
    frames: Frames
    cut: Callable[[str], None]
    limits: Limits

    @property
    def size(self) -> int:
        """See Reader."""
        return self.frames.size

    def read_at(self, offset: int, length: int) -> bytes:
        """See Reader."""
        return b"".join(self.blocks(offset, offset + length))

    def blocks(self, start: int, end: int | None) -> Iterator[bytes]:
        """From `start` to `end`, or to the end of all, in blocks as they are decompressed."""
        number = bisect_right(self.frames.places, start) - 1
        place = self.frames.places[number]
        store = _Rest(self.reader, self.frames.starts[number])
        for block in decompress(store, self.codec, self.cut, self.limits):
            wanted = block[max(0, start - place) : None if end is None else max(0, end - place)]
            place += len(block)
            if wanted:
                yield wanted
            if end is not None and place >= end:
                break


@dataclass(frozen=True, slots=True)
class _Rest:
    """A reader without its beginning."""

    reader: Reader
    start: int

    @property
    def size(self) -> int:
        return self.reader.size - self.start

    def read_at(self, offset: int, length: int) -> bytes:
        return self.reader.read_at(self.start + offset, length)


def frames_of(reader: Reader, codec: Codec, limits: Limits) -> Frames | None:
    """The frames of a store, if it is nothing but frames that tell their sizes, none of them large.

    Nothing is decompressed: that a size is wrong is found by reading. Raises OSError.
    """
    walk = _WALKS.get(codec)
    if walk is None:
        return None
    starts, places, place = array("q"), array("q"), 0
    try:
        for start, held in walk(reader):
            bomb = place > limits.ratio_floor and place > start * limits.max_ratio
            if bomb or held > MOST or len(starts) == _MANY:
                return None
            starts.append(start)
            places.append(place)
            place += held
    except (struct.error, ValueError):
        return None  # something else, or cut off
    return Frames(starts, places, place) if len(starts) >= 2 and place <= limits.max_out else None


def _bgzf(reader: Reader) -> Iterator[tuple[int, int]]:
    """Where each member begins, and how many bytes it holds."""
    at, head = 0, reader.read_at(0, 18)
    while head:
        if head[:4] != b"\x1f\x8b\x08\x04" or head[10:16] != b"\x06\0BC\x02\0":
            raise ValueError("not BGZF")
        end = at + 1 + struct.unpack_from("<H", head, 16)[0]
        ends = reader.read_at(end - 4, 4 + 18)
        yield at, struct.unpack_from("<I", ends)[0]
        at, head = end, ends[4:]


def _zstd(reader: Reader) -> Iterator[tuple[int, int]]:
    """The same of frames; those that are to be skipped hold nothing."""
    at = 0
    while head := reader.read_at(at, 18):
        if head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18":
            at += 8 + struct.unpack_from("<I", head, 4)[0]
            continue
        try:
            parameters = zstandard.get_frame_parameters(head)
        except zstandard.ZstdError as error:
            raise ValueError("not a frame") from error
        if parameters.content_size in _SIZES_UNKNOWN:
            raise ValueError("nobody knows what it holds")
        yield at, parameters.content_size
        at = _end_of_blocks(reader, at + zstandard.frame_header_size(head))
        at += 4 if parameters.has_checksum else 0
    if at != reader.size:
        raise ValueError("cut off")


def _end_of_blocks(reader: Reader, at: int) -> int:
    """Where the last block of a frame ends, whose first one begins at `at` (RFC 8878, 3.1.1.2)."""
    last = False
    while not last:
        low, high = struct.unpack("<HB", reader.read_at(at, 3))
        header = low | high << 16
        last, run = bool(header & 1), header >> 1 & 3 == 1
        at += 3 + (1 if run else header >> 3)
    return at


_WALKS: Mapping[Codec, Callable[[Reader], Iterator[tuple[int, int]]]] = {
    "gzip": _bgzf,
    "zstd": _zstd,
}
