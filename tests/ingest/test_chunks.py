from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.ingest.chunks import cuts, line_starts, plain_chunks, stream_chunks
from diagnose.ingest.raw import BytesStore, FileStore
from diagnose.ingest.source import Chunk


def plain(data: bytes, limit: int, start: int = 0) -> list[Chunk]:
    with BytesStore(data).open() as reader:
        return list(plain_chunks(reader, start, limit))


def streamed(data: bytes, limit: int, block: int) -> list[Chunk]:
    blocks = [data[at : at + block] for at in range(0, len(data), block)]
    return list(stream_chunks(blocks, 0, limit))


def placed(chunks: list[Chunk]) -> tuple[bytes, dict[int, int]]:
    """All data, and the first original offset seen of every line number."""
    places: dict[int, int] = {}
    for chunk in chunks:
        starts = line_starts(chunk.data, chunk.offset)
        offsets = starts if chunk.raw_offsets is None else chunk.raw_offsets
        assert len(offsets) == len(starts) > 0
        for number, offset in enumerate(offsets, chunk.first_line):
            places.setdefault(number, offset)
    return b"".join(chunk.data for chunk in chunks), places


def test_chunks_are_cut_at_the_last_newline_before_multiples_of_the_limit() -> None:
    assert plain(b"one\ntwo\nthree\nfour\nfive", 10) == [
        Chunk(b"one\ntwo\n", 0, 1),
        Chunk(b"three\nfour\n", 8, 3),
        Chunk(b"five", 19, 5),
    ]


@given(
    st.lists(
        st.sampled_from([b"a\n", b"bcd e\n", b"\n", b"x" * 30 + b"\n", b"y" * 9, bytes(37)]),
        max_size=80,
    ),
    st.integers(4, 40),
    st.integers(1, 3),
    st.integers(1, 64),
)
def test_a_part_between_cuts_gives_the_chunks_of_the_whole(
    rows: list[bytes], limit: int, times: int, block: int
) -> None:
    data = b"".join(rows)
    with BytesStore(data).open() as reader:
        borders = [0, *cuts(reader, times * limit, limit), None]
        parts = []
        for start, end in pairwise(borders):
            line = data.count(b"\n", 0, start) + 1
            parts += plain_chunks(reader, start or 0, limit, end, line)
    assert parts == plain(data, limit) == streamed(data, limit, block)


def test_a_store_that_fits_is_one_chunk() -> None:
    assert plain(b"one\ntwo\n", 8) == [Chunk(b"one\ntwo\n", 0, 1)]
    assert plain(b"", 8) == []


def test_a_chunk_that_needs_no_cleaning_is_the_object_that_was_read() -> None:
    data = b"one\ntwo\n"
    (chunk,) = plain(data, 1 << 20)
    assert chunk.data is data


def test_reading_starts_behind_a_byte_order_mark() -> None:
    assert plain(b"\xef\xbb\xbfone\n", 100, 3) == [Chunk(b"one\n", 3, 1)]


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (b"\x1b[36m(task pid=1)\x1b[0m text\n", b"(task pid=1) text\n"),
        (b"\x1b[38;5;12mx\x1b[39m\x1b[K\n", b"x\n"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\n", b"ab\n"),
        (b"\x1b(Bx\x1b=y\x1bMz\n", b"xyz\n"),
        (b"bar\x1b[A\r\x1b[2Kbar\n", b"bar\rbar\n"),
        (b"\x1b]0;no end\ntext\n", b"]0;no end\ntext\n"),
        (b"end\x1b", b"end"),
        (b"a\0b\0\0\n", b"ab\n"),
        (b"a\r\nb\rc\r\n", b"a\nb\rc\n"),
        (b"caf\xe9 \xff\n", b"caf\xe9 \xff\n"),
    ],
)
def test_cleaning(raw: bytes, clean: bytes) -> None:
    assert b"".join(chunk.data for chunk in plain(raw, 1 << 20)) == clean


def test_cleaned_lines_keep_their_original_offsets() -> None:
    (chunk,) = plain(b"\x1b[1mone\x1b[0m\r\n\0two\nthree", 1 << 20)
    assert chunk.data == b"one\ntwo\nthree"
    assert chunk.raw_offsets is not None
    assert list(chunk.raw_offsets) == [0, 13, 18]
    assert (chunk.offset, chunk.first_line) == (0, 1)


def test_a_line_longer_than_the_limit_comes_in_pieces_of_one_line() -> None:
    line = b"x" * 10_000
    for chunks in (plain(line + b"\nnext\n", 1000), streamed(line + b"\nnext\n", 1000, 300)):
        assert b"".join(chunk.data for chunk in chunks) == line + b"\nnext\n"
        assert max(len(chunk.data) for chunk in chunks) <= 1300
        assert {chunk.first_line for chunk in chunks[:10]} == {1}
        assert [chunk.offset for chunk in chunks[:3]] == [0, 1000, 2000]
        assert chunks[-1].data.endswith(b"next\n")


def test_a_long_line_is_cut_before_a_carriage_return_or_a_character() -> None:
    assert [chunk.data for chunk in plain(b"10%|a\r20%|b\r30%|c", 12)] == [
        b"10%|a\r20%|b",
        b"\r30%|c",
    ]
    assert [chunk.data for chunk in plain("aaaé▏bb".encode(), 6)] == [
        "aaaé".encode(),
        "▏bb".encode(),
    ]


def test_no_escape_sequence_is_torn() -> None:
    line = b"aaaa\x1b[36mbbbb\x1b]0;title\x07cccc\n"
    for limit in range(1, 30):
        assert b"".join(chunk.data for chunk in plain(line, limit)) == b"aaaabbbbcccc\n"


PIECES = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b"\x1b[36m", b"\x1b[0m", b"\x1b]0;t\x07", b"\x1b", b"[", b"\0", b"a",
     b"bcd", "é".encode(), "▏".encode(), "🏖".encode(), b"\xff", b"]", b"\x1b(B", b"12;3",
     b"long " * 20]
)  # fmt: skip


@given(st.lists(PIECES, max_size=60).map(b"".join), st.integers(1, 64), st.integers(1, 64))
def test_data_and_lines_do_not_depend_on_the_chunk_size(
    data: bytes, limit: int, block: int
) -> None:
    whole, places = placed(plain(data, 1 << 20))
    for cut, cut_places in (placed(plain(data, limit)), placed(streamed(data, limit, block))):
        assert cut == whole
        assert cut_places.keys() == places.keys()
        # Of a line that is cut, a first piece of nothing but escape sequences is left out.
        assert all(
            places[line] <= offset and b"\n" not in data[places[line] : offset]
            for line, offset in cut_places.items()
        )


@given(st.lists(st.text("ab \r", max_size=12), max_size=40), st.integers(1, 50))
def test_line_numbers_and_offsets_are_those_of_the_file(rows: list[str], limit: int) -> None:
    data = "\n".join(rows).encode()
    expected, offset = {}, 0
    for number, row in enumerate(data.split(b"\n"), 1):
        if offset < len(data):
            expected[number] = offset
        offset += len(row) + 1
    assert placed(plain(data, limit))[1] == expected


def test_a_growing_file_ends_where_it_ended_when_opened(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    with FileStore(path).open() as reader:
        with path.open("ab") as more:
            more.write(b"three\n")
        assert b"".join(chunk.data for chunk in plain_chunks(reader)) == b"one\ntwo\n"


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads of files."""
    sizes: list[int] = []
    pread = os.pread

    def counted(fd: int, length: int, offset: int) -> bytes:
        data = pread(fd, length, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    return sizes


def sparse(path: Path, *places: tuple[int, bytes], size: int = 0) -> Path:
    with path.open("wb") as file:
        for at, data in places:
            file.seek(at)
            file.write(data)
        file.truncate(max(size, file.tell()))
    return path


def test_holes_are_not_read(tmp_path: Path, read_bytes: list[int]) -> None:
    gib = 1 << 30
    path = sparse(tmp_path / "log", (0, b"one\ntw"), (gib, b"o\nthree\n"), size=4 * gib)
    with FileStore(path).open() as reader:
        chunks = list(plain_chunks(reader))
    assert b"".join(chunk.data for chunk in chunks) == b"one\ntwo\nthree\n"
    assert [chunk.first_line for chunk in chunks] == [1, 2, 2]
    assert chunks[-1].offset == gib
    assert sum(read_bytes) < 32 << 20  # some chunks, not gigabytes


def test_nuls_give_no_chunks() -> None:
    zeros = bytes(1 << 20)
    for chunks in (plain(zeros + b"one\n" + zeros, 1 << 16), streamed(zeros + b"one\n", 512, 512)):
        assert [(chunk.data, chunk.first_line) for chunk in chunks] == [(b"one\n", 1)]
        assert [list(chunk.raw_offsets or [chunk.offset]) for chunk in chunks] == [[1 << 20]]
