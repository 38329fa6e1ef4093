from __future__ import annotations

import gzip
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from diagnose.ingest.compress import DEFAULT_LIMITS, Codec, Limits, codec_of
from diagnose.ingest.frames import MOST, FramedReader, Frames, frames_of
from diagnose.ingest.raw import BytesStore
from tests.framed import PACKED, bgzf, zstd_frames

TEXT = random.Random(1).randbytes(150_000).hex().encode() + b"\n" + b"x" * 200_000
FORMS = pytest.mark.parametrize("form", PACKED)


def frames(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Frames | None:
    with BytesStore(data).open() as reader:
        return frames_of(reader, codec(data), limits)


def codec(data: bytes) -> Codec:
    found = codec_of(data)
    assert found is not None
    return found


def read(
    data: bytes, start: int, length: int, seen: bytes | None = None
) -> tuple[bytes, list[str]]:
    """What stands at a place of `data`, whose frames are those that `seen` had."""
    told: list[str] = []
    found = frames(seen or data)
    assert found is not None
    with BytesStore(data).open() as reader:
        framed = FramedReader(reader, codec(data), found, told.append, DEFAULT_LIMITS)
        assert framed.size == len(TEXT)
        return framed.read_at(start, length), told


@FORMS
@pytest.mark.parametrize("start", [0, 1, 59_999, 60_000, 60_001, 300_001, len(TEXT) - 1])
@pytest.mark.parametrize("length", [1, 60_000, 130_000])
def test_any_place_is_read_alone(form: str, start: int, length: int) -> None:
    assert read(PACKED[form](TEXT), start, length) == (TEXT[start : start + length], [])


@FORMS
def test_where_frames_begin(form: str) -> None:
    found = frames(PACKED[form](TEXT))
    assert found is not None
    last = [len(TEXT)] if form == "bgzf" else []  # the empty member
    assert [*found.places] == [*range(0, len(TEXT), 60_000), *last]
    assert found.size == len(TEXT)


def test_frames_without_a_checksum_and_with_blocks_of_all_types() -> None:
    data = zstd_frames(TEXT, 250_000, checksum=False)
    found = frames(data)
    assert found is not None
    assert [*found.places] == [0, 250_000, 500_000 - 0][: len(found.places)]
    assert read(data, 249_990, 20) == (TEXT[249_990:250_010], [])


@FORMS
@pytest.mark.parametrize("lost", [1, 5, 9, 30_000])
def test_what_is_cut_off_has_no_frames(form: str, lost: int) -> None:
    assert frames(PACKED[form](TEXT)[:-lost]) is None


@FORMS
def test_something_behind_the_frames(form: str) -> None:
    assert frames(PACKED[form](TEXT) + b"and so on") is None


def stream(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(gzip.compress(TEXT) * 2, id="gzip members of any size"),
        pytest.param(stream(TEXT) * 2, id="zstd frames that tell no size"),
        pytest.param(zstd_frames(TEXT, 1 << 20), id="one frame"),
        pytest.param(zstd_frames(bytes(MOST + 1), MOST + 1) * 2, id="large frames"),
    ],
)
def test_what_cannot_be_read_at_any_place(data: bytes) -> None:
    assert frames(data) is None


def test_sizes_that_would_pass_the_limits() -> None:
    data = zstd_frames(bytes(1 << 20), 1 << 18)
    assert frames(data) is not None
    assert frames(data, Limits(max_out=(1 << 20) - 1)) is None
    assert frames(data, Limits(max_ratio=100, ratio_floor=1 << 18)) is None


@FORMS
def test_damage_ends_what_is_read(form: str) -> None:
    data = PACKED[form](TEXT)
    found = frames(data)
    assert found is not None
    at = found.starts[2] + 3_000
    broken = data[:at] + bytes(64) + data[at + 64 :]
    got, told = read(broken, 60_000, 200_000, seen=data)
    assert TEXT[60_000:].startswith(got)
    assert len(got) < 120_000
    assert [text.partition(" data")[0] for text in told] == [f"damaged {codec(data)}"]


@pytest.mark.skipif(shutil.which("bgzip") is None, reason="no bgzip here")
def test_what_bgzip_writes(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(TEXT)
    subprocess.run(["bgzip", "job.log"], cwd=tmp_path, check=True)
    assert read((tmp_path / "job.log.gz").read_bytes(), 100_000, 50) == (TEXT[100_000:100_050], [])


def test_bgzf_is_gzip() -> None:
    unpack: Callable[[bytes], bytes] = gzip.decompress
    assert unpack(bgzf(TEXT)) == TEXT
