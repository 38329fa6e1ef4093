"""Compressed data that is cut into frames, as `bgzip` and writers of Zstandard frames leave it."""

from __future__ import annotations

import struct
import zlib

import zstandard


def bgzf(data: bytes, block: int = 60_000) -> bytes:
    """Members of BGZF (SAM specification, 4.1), with the empty one at the end."""
    blocks = [data[at : at + block] for at in range(0, len(data), block)]
    return b"".join(_member(one) for one in [*blocks, b""])


def _member(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    body = packer.compress(data) + packer.flush()
    head = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff\x06\0BC\x02\0"
    size = struct.pack("<H", len(head) + 2 + len(body) + 8 - 1)
    return head + size + body + struct.pack("<II", zlib.crc32(data), len(data))


def zstd_frames(data: bytes, block: int = 60_000, *, checksum: bool = True) -> bytes:
    """Frames that tell what they hold, and one to be skipped behind each."""
    packer = zstandard.ZstdCompressor(write_checksum=checksum)
    blocks = [data[at : at + block] for at in range(0, len(data), block)]
    return b"".join(packer.compress(one) + b"\x53\x2a\x4d\x18\x03\0\0\0abc" for one in blocks)


PACKED = {"bgzf": bgzf, "zstd": zstd_frames}
