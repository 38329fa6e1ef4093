from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable

import pytest
import zstandard

from diagnose.ingest.compress import Codec, Limits, codec_of, decompress
from diagnose.ingest.raw import BytesStore

LOG = b"".join(b"[rank%d]: step %d loss %d\n" % (i % 8, i, i * i % 997) for i in range(20_000))


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


COMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
}
CODECS = pytest.mark.parametrize("codec", COMPRESS)


def unpack(data: bytes, codec: Codec, limits: Limits | None = None) -> tuple[bytes, list[str]]:
    notes: list[str] = []
    with BytesStore(data).open() as reader:
        out = b"".join(decompress(reader, codec, notes.append, limits or Limits()))
    return out, notes


@CODECS
def test_whole_data(codec: Codec) -> None:
    packed = COMPRESS[codec](LOG)
    assert codec_of(packed) == codec
    assert unpack(packed, codec) == (LOG, [])


@CODECS
def test_empty_data(codec: Codec) -> None:
    assert unpack(COMPRESS[codec](b""), codec) == (b"", [])


@CODECS
def test_several_members_follow_each_other(codec: Codec) -> None:
    pack = COMPRESS[codec]
    packed = pack(b"one\n") + pack(b"") + pack(LOG) + pack(b"three\n")
    assert unpack(packed, codec) == (b"one\n" + LOG + b"three\n", [])


@CODECS
def test_truncated_data_gives_what_is_there(codec: Codec) -> None:
    pack = COMPRESS[codec]
    packed = pack(LOG) + pack(LOG)
    out, notes = unpack(packed[: len(packed) - 20], codec)
    assert out.startswith(LOG)
    assert (LOG + LOG).startswith(out)
    assert notes == [f"truncated {codec} data, read up to its end"]


def test_truncated_gzip_is_read_to_its_last_bytes() -> None:
    packed = gzip.compress(LOG)
    out, notes = unpack(packed[:-8], "gzip")  # only the checksum is missing
    assert (out, notes) == (LOG, ["truncated gzip data, read up to its end"])


@CODECS
def test_damaged_data_gives_what_comes_before(codec: Codec) -> None:
    packed = bytearray(COMPRESS[codec](LOG) + COMPRESS[codec](LOG))
    at = len(packed) * 3 // 4
    packed[at : at + 64] = bytes(64)
    out, notes = unpack(bytes(packed), codec)
    assert out.startswith(LOG)
    assert len(notes) == 1
    assert notes[0].startswith((f"damaged {codec} data, read up to the damage", "truncated"))


@CODECS
def test_bytes_behind_the_end(codec: Codec) -> None:
    packed = COMPRESS[codec](b"one\n")
    assert unpack(packed + bytes(512), codec) == (b"one\n", [])
    assert unpack(packed + b"not compressed at all", codec) == (
        b"one\n",
        [f"bytes behind the end of the {codec} data were ignored"],
    )


@CODECS
def test_output_is_bounded(codec: Codec) -> None:
    out, notes = unpack(COMPRESS[codec](LOG), codec, Limits(max_out=1000))
    assert (out, notes) == (LOG[:1000], ["decompressed data cut at 1000 bytes"])


@CODECS
def test_a_bomb_stops_at_the_ratio_in_small_blocks(codec: Codec) -> None:
    bomb = COMPRESS[codec](bytes(64 << 20))
    limits = Limits(max_ratio=100, ratio_floor=1 << 20)
    notes: list[str] = []
    with BytesStore(bomb).open() as reader:
        sizes = [len(block) for block in decompress(reader, codec, notes.append, limits)]
    assert max(sizes) <= 17 << 20
    assert sum(sizes) <= 40 << 20
    assert notes == ["decompression stopped: more than 100 times the compressed size"]


def test_text_is_not_compressed() -> None:
    assert codec_of(b"BZh is not bzip2\n") is None
    assert codec_of(LOG) is None
    assert codec_of(b"") is None
