"""Decompression by content: gzip, bzip2, xz and zstd, bounded, as far as the stream is whole."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import zstandard

from diagnose.ingest.inflate import MOST, inflated
from diagnose.ingest.raw import Reader
from diagnose.lazy import expression

Codec = Literal["gzip", "bzip2", "xz", "zstd"]

_IN = 32 << 10
_OUT = 512 << 10
# zstd gives no bound on the output of one call: 4 bytes of input can stand for 128 KiB.
_ZSTD_RATIO = 1024
_MEMORY = 256 << 20
_ZSTD_WINDOW = 1 << 27

_MAGIC: list[tuple[re.Pattern[bytes], Codec]] = [
    (expression(rb"\x1f\x8b\x08"), "gzip"),
    (expression(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), "bzip2"),
    (expression(rb"\xfd7zXZ\0"), "xz"),
    (expression(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), "zstd"),
]
_ERRORS = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError, ValueError)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one compressed source may become.

    `max_out`: decompressed bytes. `max_ratio`: output to input, looked at only beyond
    `ratio_floor` bytes of output, because a log that repeats itself shrinks a lot too.
    """

    max_out: int = 64 << 30
    max_ratio: int = 1000
    ratio_floor: int = 1 << 30


DEFAULT_LIMITS = Limits()


def codec_of(head: bytes) -> Codec | None:
    """The compression that the first bytes of a source announce, if any."""
    for magic, codec in _MAGIC:
        if magic.match(head):
            return codec
    return None


def decompress(
    reader: Reader,
    codec: Codec,
    cut: Callable[[str], None],
    limits: Limits = DEFAULT_LIMITS,
    *,
    step: int | None = None,
) -> Iterator[bytes]:
    """Decompress all members of a store in blocks of about `step` bytes (zstd: up to 32 times).

    Without a `step` of the caller's a small gzip file is one block.
    Truncated or damaged data gives what could be decoded; `cut` is told why not all was, also of
    bounds reached and of bytes behind the end that belong to nothing. Raises OSError from reading
    only.
    """
    if codec == "gzip" and step is None and min(limits.max_out, limits.ratio_floor) >= MOST:
        whole = inflated(reader)
        if whole:
            yield whole
            return
    given = 0
    for block, taken in _decoded(reader, codec, cut, step or _OUT):
        left = limits.max_out - given
        if len(block) > left:
            cut(f"decompressed data cut at {limits.max_out} bytes")
            if left:
                yield block[:left]
            return
        given += len(block)
        yield block
        if given > limits.ratio_floor and given > taken * limits.max_ratio:
            cut(f"decompression stopped: more than {limits.max_ratio} times the compressed size")
            return


def _decoded(
    reader: Reader, codec: Codec, cut: Callable[[str], None], step: int
) -> Iterator[tuple[bytes, int]]:
    """The decoded blocks of all members, each with the compressed bytes that were read for it."""
    offset = 0
    decoder: _Decoder | None = None
    data = b""
    while True:
        if len(data) < 16 and (decoder is None or decoder.needs_input):
            more = reader.read_at(offset, _IN)
            offset += len(more)
            data += more
            if not data:
                break
        if decoder is None:
            data = data.lstrip(b"\0")  # padding between members
            if not data:
                continue
            decoder = _decoder(codec, data, cut)
            if decoder is None:
                return
        try:
            block = decoder.decompress(data, step)
        except _ERRORS as error:
            cut(f"damaged {codec} data, read up to the damage ({error})")
            return
        data = b""
        if block:
            yield block, offset
        if decoder.eof:
            data = decoder.unused_data
            decoder = None
    if decoder is not None:
        cut(f"truncated {codec} data, read up to its end")


def _decoder(codec: Codec, data: bytes, cut: Callable[[str], None]) -> _Decoder | None:
    """What decodes the member that `data` begins; None, and `cut` is told why, if nothing does."""
    if codec_of(data) != codec:
        cut(f"bytes after the end of the {codec} data were ignored")
        return None
    needed, allowed = _memory(codec, data)
    if needed > allowed:
        cut(
            f"the {codec} data needs {needed >> 20} MiB of memory, more than "
            f"{allowed >> 20} MiB: not read any further"
        )
        return None
    return _DECODERS[codec]()


def _memory(codec: Codec, data: bytes) -> tuple[int, int]:
    """The bytes of memory that a stream starting with `data` asks for, and those allowed."""
    if codec == "zstd":
        try:
            return zstandard.get_frame_parameters(data).window_size, _ZSTD_WINDOW
        except zstandard.ZstdError:
            return 0, _ZSTD_WINDOW
    return (_xz_dictionary(data) if codec == "xz" else 0), _MEMORY


def _xz_dictionary(data: bytes) -> int:
    """The size of the dictionary by the first block's header (xz file format, 3.1)."""
    at = 14
    for present in (0x40, 0x80):  # sizes of the block, of seven bits a byte
        if data[13:14] and data[13] & present:
            while data[at : at + 1] and data[at] & 0x80:
                at += 1
            at += 1
    if data[at : at + 2] != b"\x21\x01" or len(data) < at + 3:
        return 0
    bits = data[at + 2] & 0x3F
    return (2 | bits & 1) << (bits // 2 + 11)


class _Decoder(Protocol):
    """The interface of bz2 and lzma decompressors."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        out = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        # A full output may hide more of it inside, even when all input is taken.
        self.needs_input = not self._inflate.unconsumed_tail and len(out) < max_length
        return out


class _Zstd:
    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        self._pending = b""
        self._error: zstandard.ZstdError | None = None
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        return not self._pending and self._error is None

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        if self._error is not None:
            raise self._error
        source = self._pending + data
        taken = have = 0
        parts: list[bytes] = []
        try:
            size = max_length // _ZSTD_RATIO
            while taken < len(source) and have < max_length and not self._frame.eof:
                part = self._frame.decompress(source[taken : taken + size])
                taken += size
                have += len(part)
                parts.append(part)
        except zstandard.ZstdError as error:
            self._error = error  # for the next call: what was decoded before it counts
        self._pending = source[taken:]
        if self._frame.eof:
            self.unused_data = self._frame.unused_data + self._pending
            self._pending = b""
        return b"".join(parts)


def _bzip2() -> _Decoder:
    return bz2.BZ2Decompressor()


def _xz() -> _Decoder:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY)


_DECODERS: dict[Codec, Callable[[], _Decoder]] = {
    "gzip": _Gzip,
    "bzip2": _bzip2,
    "xz": _xz,
    "zstd": _Zstd,
}
