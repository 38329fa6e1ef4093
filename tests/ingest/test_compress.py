from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable

import pytest
import zstandard

from diagnose.ingest.compress import Codec, _xz_dictionary, codec_of, decompress
from diagnose.ingest.raw import BytesStore
from diagnose.ingest.source import Budget

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


def unpack(data: bytes, codec: Codec, budget: Budget | None = None) -> tuple[bytes, list[str]]:
    budget = budget or Budget()
    with BytesStore(data).open() as reader:
        out = b"".join(decompress(reader, codec, budget))
    return out, budget.notes


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
        [f"bytes after the end of the {codec} data were ignored"],
    )


@CODECS
def test_output_is_bounded(codec: Codec) -> None:
    out, notes = unpack(COMPRESS[codec](LOG), codec, Budget(total=1000))
    assert (out, notes) == (LOG[:1000], ["decompressed data cut at 1000 bytes"])


@CODECS
def test_a_bomb_stops_at_the_ratio_in_small_blocks(codec: Codec) -> None:
    bomb = COMPRESS[codec](bytes(64 << 20))
    budget = Budget(ratio=100, ratio_floor=1 << 20)
    with BytesStore(bomb).open() as reader:
        sizes = [len(block) for block in decompress(reader, codec, budget)]
    assert max(sizes) <= 17 << 20
    assert sum(sizes) <= 40 << 20
    assert budget.notes == ["decompression stopped: more than 100 times the compressed size"]


def test_text_is_not_compressed() -> None:
    assert codec_of(b"BZh is not bzip2\n") is None
    assert codec_of(LOG) is None
    assert codec_of(b"") is None


@pytest.mark.slow
def test_a_window_over_the_bound_is_no_damage() -> None:
    options = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    stream = zstandard.ZstdCompressor(compression_params=options).compressobj()
    wide = stream.compress(LOG) + stream.flush()
    assert unpack(wide, "zstd") == (
        b"",
        ["the zstd data needs 256 MiB of memory, more than 128 MiB: not read any further"],
    )
    assert unpack(zstd(b"one\n") + wide, "zstd")[0] == b"one\n"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}]
    assert unpack(lzma.compress(LOG, filters=filters), "xz") == (
        b"",
        ["the xz data needs 512 MiB of memory, more than 256 MiB: not read any further"],
    )
    largest = lzma.compress(LOG, preset=9)
    assert unpack(largest, "xz") == (LOG, [])


def test_the_dictionary_behind_sizes_of_a_block() -> None:
    # As `xz -T2` writes it: the sizes of the block stand before its filters.
    whole = lzma.compress(LOG, preset=6)
    sized = whole[:13] + b"\xc0\x80\x80\x01\x85\x02" + whole[14:17]
    assert _xz_dictionary(sized) == _xz_dictionary(whole) == 8 << 20
    assert _xz_dictionary(whole[:14]) == _xz_dictionary(b"") == 0
