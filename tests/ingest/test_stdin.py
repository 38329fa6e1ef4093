from __future__ import annotations

import gzip
import io
import os
import shutil
import tempfile
from typing import Any

import pytest

from diagnose.ingest import Source, find, stdin_source, text_source


def data(source: Source) -> bytes:
    return b"".join(chunk.data for chunk in source.chunks())


def test_stdin_in_memory_and_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"[rank0]: one\n" * 1000
    source = stdin_source(io.BytesIO(text))
    assert (source.name, source.kind, source.size, source.note) == ("<stdin>", "text", 13000, "")
    assert data(source) == data(source) == text
    monkeypatch.setattr(find, "STDIN_MEMORY", 100)
    spooled = stdin_source(io.BytesIO(gzip.compress(os.urandom(500).hex().encode() + text)))
    assert spooled.size > 100
    assert data(spooled).endswith(text)
    assert data(spooled) == data(spooled)
    both = list(zip(spooled.chunks(), spooled.chunks(), strict=True))
    assert all(one == other for one, other in both)


def test_stdin_is_bounded_and_survives_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "STDIN_LIMIT", 5)
    source = stdin_source(io.BytesIO(b"one\ntwo\n"))
    assert (data(source), source.note) == (
        b"one\nt",
        "only the first 5 bytes were read: give the file itself",
    )

    class Broken(io.BytesIO):
        def read(self, _size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    source = stdin_source(Broken())
    assert (source.kind, source.note) == ("empty", "reading stopped: input/output error")


class Endless(io.RawIOBase):
    """A stream that repeats a piece; `taken` counts what was read."""

    def __init__(self, piece: bytes, start: bytes = b"") -> None:
        self.block, self.start, self.taken = piece * ((1 << 20) // len(piece)), start, 0

    def readable(self) -> bool:
        return True

    def read(self, _size: int = -1, /) -> bytes:
        block = self.start or self.block
        self.start = b""
        self.taken += len(block)
        return block


def test_endless_input_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    write = tempfile.SpooledTemporaryFile.write

    def counted(file: Any, data: bytes) -> int:
        kept.append(len(data))
        return write(file, data)

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "write", counted)
    zeros = Endless(b"\0")
    source = stdin_source(zeros)  # type: ignore[arg-type]
    assert (source.kind, zeros.taken, kept) == ("empty", find.ZEROS_LIMIT, [])
    assert source.unread == [
        f"reading stopped: nothing but NUL bytes in the first {find.ZEROS_LIMIT} bytes"
    ]
    noise = Endless(bytes(range(256)))
    source = stdin_source(noise)  # type: ignore[arg-type]
    assert (source.kind, source.note, noise.taken) == ("binary", "binary data", 1 << 20)
    # A temporary file takes half of the free space.
    free = shutil.disk_usage(".")._replace(free=6 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    monkeypatch.setattr(find, "STDIN_MEMORY", 2 << 20)
    lines = Endless(b"step 1 loss 2.5\n")
    kept.clear()
    source = stdin_source(lines)  # type: ignore[arg-type]
    assert (source.kind, source.size, lines.taken) == ("text", 5 << 20, 6 << 20)
    assert sum(kept) == 5 << 20
    assert source.unread == [f"only the first {5 << 20} bytes were read: give the file itself"]


def test_holes_in_standard_input_are_not_kept() -> None:
    hole = bytes(3 << 20)
    first = b"[rank0]: one\n".ljust(1 << 20, b"\n")
    source = stdin_source(io.BytesIO(hole + first + hole + b"two\n"))
    assert (source.kind, source.size, source.unread) == ("text", (1 << 20) + 4, [])
    assert data(source) == first + b"two\n"
    packed = gzip.compress(hole + first, compresslevel=0)
    assert data(stdin_source(io.BytesIO(packed))) == first


def test_pasted_text() -> None:
    source = text_source("> [rank0]: größer\n> x\n")
    assert (source.name, source.kind) == ("<paste>", "text")
    assert data(source) == "[rank0]: größer\nx\n".encode()
    assert data(text_source("\ud800\n", "issue")) == b"?\n"
