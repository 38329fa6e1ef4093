from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from diagnose.ingest import read
from diagnose.ingest.raw import BytesStore, FileStore, reason
from diagnose.ingest.read import TextChunks, look
from diagnose.ingest.sniff import Container
from diagnose.ingest.source import Budget, Chunk

TEXT = "".join(f"[rank{n % 8}]: step {n} größer ▏\n" for n in range(3000))


def chunks(data: bytes, limit: int = 4096) -> tuple[list[Chunk], list[str]]:
    store = BytesStore(data)
    budget = Budget()
    parts = list(TextChunks(store, look(store, "x"), budget, chunk_limit=limit)())
    assert budget.unread == budget.notes
    return parts, budget.notes


def text_of(parts: list[Chunk]) -> str:
    return b"".join(chunk.data for chunk in parts).decode()


PACK: list[Callable[[bytes], bytes]] = [
    lambda data: data,
    gzip.compress,
    bz2.compress,
    lzma.compress,
    lambda data: zstandard.ZstdCompressor().compress(data),
]


@pytest.mark.parametrize("pack", PACK, ids=["plain", "gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
    ],
)
def test_every_compression_and_encoding(
    pack: Callable[[bytes], bytes], encoding: str, mark: bytes
) -> None:
    parts, notes = chunks(pack(mark + TEXT.encode(encoding)))
    assert text_of(parts) == TEXT
    assert notes == []
    assert len(parts) > 10
    line, offset = 1, len(mark) if encoding == "utf-8" else 0
    for chunk in parts:
        assert (chunk.first_line, chunk.offset) == (line, offset)
        line += chunk.data.count(b"\n")
        offset += len(chunk.data)


def test_windows_text_in_utf_16() -> None:
    (chunk,) = chunks("one\r\ntwo\r\n".encode("utf-16"))[0]
    assert chunk.data == b"one\ntwo\n"
    assert list(chunk.raw_offsets or []) == [0, 5]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_may_end_with_returns_alone(mark: bytes) -> None:
    (chunk,) = chunks(mark + b"one\rtwo\r")[0]
    assert (chunk.data, chunk.first_line) == (b"one\ntwo\n", 1)


def test_a_bar_without_percents_is_one_line() -> None:
    bar = b"".join(b"%dit [01:00, 1.20it/s]\r" % number for number in range(5000))
    parts = chunks(bar + b"\nTraceback (most recent call last):\n")[0]
    assert parts[-1].first_line + parts[-1].data.count(b"\n") == 3


def test_chunks_start_anew_at_each_call() -> None:
    store = BytesStore(gzip.compress(TEXT.encode(), mtime=0)[:-20])
    budget = Budget()
    source = TextChunks(store, look(store, "x"), budget)
    assert list(source()) == list(source())
    assert budget.notes == budget.unread == ["truncated gzip data, read up to its end"]


def test_limits_apply_to_compressed_data() -> None:
    store = BytesStore(gzip.compress(TEXT.encode(), mtime=0))
    budget = Budget(total=9)
    source = TextChunks(store, look(store, "x"), budget)
    assert [chunk.data for chunk in source()] == [b"[rank0]: "]
    assert budget.notes == budget.unread == ["decompressed data cut at 9 bytes"]


def test_a_pasted_source_becomes_one_chunk_with_its_lines() -> None:
    data = (
        b"it hangs:\r\n> [rank0]: one\r\n> \r\n> [rank1]: WorkNCCL(SeqNum=1,\r\n"
        b"> OpType=SEND, Timeout(ms)=9)\r\n> end"
    )
    for limit in (8, 1 << 20):
        parts, _ = chunks(data, limit)
        (chunk,) = parts
        assert chunk.data == (
            b"it hangs:\n[rank0]: one\n\n[rank1]: WorkNCCL(SeqNum=1, OpType=SEND, Timeout(ms)=9)\n"
            b"end"
        )
        assert chunk.lines == [1, 2, 3, 4, 6]
        assert chunk.raw_offsets == [
            data.index(mark) for mark in (b"it", b"> [", b"> \r", b"> [rank1", b"> end")
        ]
        assert (chunk.first_line, chunk.offset) == (1, 0)


def test_a_large_source_is_not_searched_for_pasting(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"> [rank0]: one\n" * 100
    assert chunks(data, 64)[0][0].data.startswith(b"[rank0]: one\n[rank0]")
    monkeypatch.setattr(read, "PASTE_LIMIT", 1000)
    parts, _ = chunks(data, 64)
    assert text_of(parts) == data.decode()
    assert parts[1].first_line == 5


def test_container_logs_are_joined_not_unpasted() -> None:
    time = "2026-08-20T10:00:00.1Z"
    data = f"{time} stderr P > [rank0]: o\n{time} stderr F ne\n".encode()
    assert text_of(chunks(data)[0]) == f"{time} stderr F > [rank0]: one\n"


@pytest.mark.parametrize(
    ("data", "kind", "note"),
    [
        (b"", "empty", ""),
        (gzip.compress(b"", mtime=0), "empty", "empty gzip data"),
        (
            gzip.compress(TEXT.encode(), mtime=0)[:15],
            "unreadable",
            "truncated gzip data, read up to its end",
        ),
        (
            gzip.compress(gzip.compress(b"x", mtime=0), mtime=0),
            "binary",
            "gzip data inside gzip data",
        ),
        (bytes(5000), "binary", "nothing but NUL bytes"),
        (bytes(200_000) + b"[rank0]: text\n", "text", ""),
        (bytes(200_000) + bytes(range(256)) * 512, "binary", "binary data"),
        (
            gzip.compress(pickle.dumps({"pg_config": {}}), mtime=0),
            "fr_dump",
            "",
        ),
        (gzip.compress(b"[rank0]: text\n", mtime=0), "text", ""),
        (b"7z\xbc\xaf\x27\x1c....", "binary", "7z archive: unpack it and give the folder"),
    ],
)
def test_kind_and_note(data: bytes, kind: str, note: str) -> None:
    opened = look(BytesStore(data), "x")
    assert (opened.kind, opened.note) == (kind, note)


def test_an_error_file_comes_as_it_is() -> None:
    error = b'{"message": {"message": "[36mx[0m ```", "extraInfo": {"py_callstack": ""}}}'
    assert [chunk.data for chunk in chunks(error)[0]] == [error]
    assert [chunk.data for chunk in chunks(b"[36mx[0m ```")[0]] == [b"x "]


def test_a_hole_at_the_start_is_removed() -> None:
    parts, _ = chunks(bytes(100_000) + b"[rank0]: one\ntwo\n")
    assert text_of(parts) == "[rank0]: one\ntwo\n"
    assert parts[0].first_line == 1


def test_a_file_that_vanished_ends_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(TEXT)
    budget = Budget()
    source = TextChunks(FileStore(path), look(FileStore(path), "log"), budget)
    path.unlink()
    assert list(source()) == []
    assert budget.notes == budget.unread == ["reading stopped: no such file or directory"]


@pytest.mark.parametrize("zeros", [70_000, 3 << 20])
def test_text_between_holes_is_found(zeros: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hole = bytes(zeros)
    parts, _ = chunks(hole + b"[rank0]: one\n" + hole)
    assert text_of(parts) == "[rank0]: one\n"
    opened = look(BytesStore(hole + b"PK\x03\x04" + hole), "x")
    assert (opened.kind, opened.container) == ("binary", Container.ARCHIVE)
    opened = look(BytesStore(hole), "x")
    assert (opened.kind, opened.note) == ("binary", "nothing but NUL bytes")
    # So many that they are not looked through: reading will tell.
    monkeypatch.setattr(read, "ZEROS_LIMIT", 1 << 20)
    assert look(BytesStore(bytes(3 << 20)), "x").kind == "text"


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (TEXT.encode(), True),
        (b"\xef\xbb\xbf" + TEXT.encode(), True),
        (TEXT.replace("\n", "\r\n").encode(), False),
        (TEXT.replace("step", "\x1b[1mstep\x1b[0m").encode(), False),
        ("".join(f"> {line}\n" for line in TEXT.splitlines()).encode(), False),
        (gzip.compress(TEXT.encode()), False),
        (TEXT.encode("utf-16"), False),
    ],
    ids=["plain", "bom", "crlf", "escapes", "paste", "gzip", "utf16"],
)
def test_a_reading_tells_whether_the_text_is_what_is_stored(data: bytes, whole: bool) -> None:
    source = TextChunks(BytesStore(data), look(BytesStore(data), "x"), Budget())
    for _ in range(2):
        list(source())
    assert source.whole == [True] * whole


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EIO, "Input/output error"), "input/output error"),
        (PermissionError(errno.EACCES, "Permission denied"), "permission denied"),
        (OSError("NoKeyError: Unable to find it"), "NoKeyError: Unable to find it"),
        (ValueError("Not a gzipped file"), "not a gzipped file"),
        (ValueError(""), ""),
    ],
)
def test_names_keep_their_capitals_in_a_reason(error: Exception, words: str) -> None:
    assert reason(error) == words
