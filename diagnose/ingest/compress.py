"""Decompression by content: gzip, bzip2, xz and zstd, bounded, as far as the stream is whole."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from diagnose.ingest.raw import Reader
from diagnose.ingest.source import Budget
from diagnose.lazy import expression

if TYPE_CHECKING:
    from types import ModuleType

Codec = Literal["gzip", "bzip2", "xz", "zstd"]

_SMALL = 512 << 10  # bytes of a gzip file that is decoded at once
_SMALL_RATIO = 32  # what shrinks more is decoded in steps, which its reader may end
_SMALL_TEXT = _SMALL * _SMALL_RATIO
# The header of a gzip file, and of one with its name (RFC 1952); of others zlib looks at more.
_GZIP_HEADERS = (b"\x1f\x8b\x08\0", b"\x1f\x8b\x08\x08")
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
_ERRORS = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def codec_of(head: bytes) -> Codec | None:
    """The compression that the first bytes of a source announce, if any."""
    for magic, codec in _MAGIC:
        if magic.match(head):
            return codec
    return None


def decompress(
    reader: Reader, codec: Codec, budget: Budget, *, step: int | None = None
) -> Iterator[bytes]:
    """Decompress all members of a store in blocks of about `step` bytes (zstd: up to 32 times).

    Without a `step` of the caller's a small gzip file is one block.
    Truncated or damaged data gives what could be decoded; the budget notes why not all was, also of
    bounds reached and of bytes behind the end that belong to nothing. Raises OSError from reading
    only.
    """
    if codec == "gzip" and step is None and min(budget.total, budget.ratio_floor) >= _SMALL_TEXT:
        whole = _inflated(reader)
        if whole:
            if budget.allows(len(whole)):
                yield whole
            return
    given = 0
    for block, taken in _decoded(reader, codec, budget.cut, step or _OUT):
        left = budget.total - given
        if not budget.allows(given + min(len(block), left)):
            return
        if len(block) > left:
            budget.cut(f"decompressed data cut at {budget.total} bytes")
            if left:
                yield block[:left]
            return
        given += len(block)
        yield block
        if given > budget.ratio_floor and given > taken * budget.ratio:
            budget.cut(f"decompression stopped: more than {budget.ratio} times the compressed size")
            return


def _inflated(reader: Reader) -> bytes | None:
    """What one small gzip member holds that is whole and all there is; None of anything else.

    By ISA-L, where it is installed, thrice as fast as zlib. How damaged data ends each library
    reports differently: that is left to zlib.
    """
    library = _isal()
    if library is None or reader.size > _SMALL:
        return None
    try:
        data = reader.read_at(0, _SMALL)
    except OSError:
        return None  # what comes before can be read
    if not data.startswith(_GZIP_HEADERS):
        return None
    decoder: Any = library.decompressobj(wbits=31)
    try:
        text: bytes = decoder.decompress(data, len(data) * _SMALL_RATIO)
    except library.error:
        return None
    return text if decoder.eof and not decoder.unused_data else None


@cache
def _isal() -> ModuleType | None:
    try:
        from isal import isal_zlib  # noqa: PLC0415  for gzip only, and not on every system
    except ImportError:
        return None
    return isal_zlib


def _decoded(
    reader: Reader, codec: Codec, cut: Callable[[str], None], step: int
) -> Iterator[tuple[bytes, int]]:
    """The decoded blocks of all members, each with the compressed bytes that were read for it."""
    offset = 0
    decoder: Any = None
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


def _decoder(codec: Codec, data: bytes, cut: Callable[[str], None]) -> Any:
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
        import zstandard  # noqa: PLC0415  for zstd only

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


class _Gzip:
    """As the decompressors of bz2 and lzma; so does _Zstd."""

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
        import zstandard  # noqa: PLC0415  as above

        self._known_error = zstandard.ZstdError
        self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        self._pending = b""
        self._error: ValueError | None = None
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
        except self._known_error as error:
            self._error = ValueError(error)  # for the next call: what was decoded before it counts
        self._pending = source[taken:]
        if self._frame.eof:
            self.unused_data = self._frame.unused_data + self._pending
            self._pending = b""
        return b"".join(parts)


_DECODERS: dict[Codec, Callable[[], Any]] = {
    "gzip": _Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": partial(lzma.LZMADecompressor, format=lzma.FORMAT_XZ, memlimit=_MEMORY),
    "zstd": _Zstd,
}
