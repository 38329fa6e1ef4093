from __future__ import annotations

import errno
import gzip
import io
import sys
import zlib
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.ingest import compress
from diagnose.ingest.compress import _inflated, decompress
from diagnose.ingest.raw import BytesStore
from diagnose.ingest.source import Budget

pytest.importorskip("isal", reason="zlib decodes everything")
LOG = b"".join(b"[rank%d]: step %d loss %d\n" % (i % 8, i, i * i % 997) for i in range(9000))


def whole(data: bytes) -> bytes | None:
    with BytesStore(data).open() as reader:
        return _inflated(reader)


def unpacked(data: bytes, budget: Budget | None = None) -> tuple[bytes, list[str]]:
    budget = (budget or Budget()).apart()
    with BytesStore(data).open() as reader:
        out = b"".join(decompress(reader, "gzip", budget))
    return out, budget.notes


def by_zlib(data: bytes, budget: Budget | None = None) -> tuple[bytes, list[str]]:
    with mock.patch.object(compress, "_isal", return_value=None):
        return unpacked(data, budget)


def named(data: bytes) -> bytes:
    sink = io.BytesIO()
    with gzip.GzipFile("rank_0.log", "wb", fileobj=sink) as file:
        file.write(data)
    return sink.getvalue()


@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_a_whole_member_is_decoded_at_once(level: int) -> None:
    assert whole(gzip.compress(LOG, level)) == LOG


def test_a_named_one_too() -> None:
    assert whole(named(LOG)) == LOG


def test_of_anything_else_nothing_is_told() -> None:
    packed = gzip.compress(LOG)
    for other in (packed + b"x", packed + packed, packed[:-1], packed[:-5] + b"\0" * 5, b"", LOG):
        assert whole(other) is None


def test_without_the_library_zlib_reads_all(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(LOG)
    monkeypatch.setitem(sys.modules, "isal", None)
    monkeypatch.setattr(compress, "_isal", compress._isal.__wrapped__)
    assert whole(packed) is None
    assert unpacked(packed) == (LOG, [])


def test_what_is_large_or_shrinks_a_lot_is_left() -> None:
    noise = bytes(i * i * i >> 7 & 255 for i in range(1 << 20))
    assert whole(gzip.compress(noise, 0)) is None
    assert whole(gzip.compress(bytes(1 << 20))) is None


def test_headers_that_zlib_refuses_are_left_to_it() -> None:
    for flags in (2, 32, 64, 128):
        packed = bytearray(gzip.compress(LOG))
        packed[3] = flags
        assert whole(bytes(packed)) is None


def test_what_comes_before_an_error_of_the_disk_is_read() -> None:
    packed = gzip.compress(bytes(i * i * i >> 7 & 255 for i in range(100_000)), 0)

    class Failing:
        size = len(packed)

        def read_at(self, offset: int, length: int) -> bytes:
            if offset + length > 70_000:
                raise OSError(errno.EIO, "input/output error")
            return packed[offset : offset + length]

    blocks = decompress(Failing(), "gzip", Budget())
    assert len(next(blocks)) > 30_000
    assert len(next(blocks)) > 30_000
    with pytest.raises(OSError, match="input/output"):
        next(blocks)


def test_no_more_is_given_than_is_allowed() -> None:
    packed = gzip.compress(LOG)
    for budget in (Budget(total=1000), Budget(ratio=2, ratio_floor=1000)):
        assert unpacked(packed, budget) == by_zlib(packed, budget)
        assert unpacked(packed, budget)[1]


@given(
    st.integers(0, len(LOG)),
    st.integers(0, 9),
    st.booleans(),
    st.floats(0, 1),
    st.sampled_from(["whole", "cut", "flip", "zeros", "more", "twice"]),
)
def test_both_give_the_same_bytes_and_notes(
    size: int, level: int, has_name: bool, where: float, damage: str
) -> None:
    text = LOG[:size]
    packed = named(text) if has_name else gzip.compress(text, level)
    at = int(where * (len(packed) - 1))
    damaged = {
        "whole": packed,
        "cut": packed[:at],
        "flip": packed[:at] + bytes([packed[at] ^ 1 << at % 8]) + packed[at + 1 :],
        "zeros": packed[:at] + bytes(len(packed[at : at + 64])) + packed[at + 64 :],
        "more": packed + packed[:at],
        "twice": packed + packed,
    }[damage]
    assert unpacked(damaged) == by_zlib(damaged)
    if damage == "whole":
        assert unpacked(damaged) == (zlib.decompress(packed, 31), [])
