"""What was not read to its end is told as such; what is no log is not missed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest
import zstandard

from diagnose.ingest import Source, find, find_sources, stdin_source
from diagnose.ingest.archive import NAMED, archive_sources
from diagnose.ingest.raw import BytesStore, FileStore, Reader
from diagnose.ingest.read import DOCUMENT_LIMIT
from diagnose.ingest.recognise import source_of
from diagnose.ingest.source import Budget
from diagnose.job.load import load, read
from tests.archives import END, TEXT, member, tar, zipped

_RANDOM = Random(0)
NOISE = b"".join(b"%x step\n" % _RANDOM.getrandbits(72) for _ in range(9000))


def unread(sources: list[Source]) -> list[str]:
    """What of them is not read, after all that can be was."""
    for source in sources:
        for _ in source.chunks():
            pass
        source.content()
    return [f"{source.name}: {why}" for source in sources for why in source.unread]


def stored(data: bytes, budget: Budget | None = None) -> list[Source]:
    return [source_of(BytesStore(data), "a", len(data), budget)]


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        ("gzip", gzip.compress),
        ("bzip2", bz2.compress),
        ("xz", lzma.compress),
        ("zstd", zstandard.ZstdCompressor(write_checksum=True).compress),
    ],
)
def test_compressed_logs(codec: str, pack: Callable[[bytes], bytes]) -> None:
    whole = pack(NOISE)
    assert unread(stored(whole)) == []
    assert unread(stored(whole + bytes(512))) == []
    (cut,) = unread(stored(whole[: len(whole) * 9 // 10]))
    assert cut == f"a: truncated {codec} data, read up to its end"
    (damaged,) = unread(stored(whole[:5000] + b"\xff" * 500 + whole[5500:]))
    assert damaged.startswith(f"a: damaged {codec} data")
    (more,) = unread(stored(whole + b"an error behind it\n"))
    assert more == f"a: bytes after the end of the {codec} data were ignored"
    (none,) = unread(stored(whole[:14]))
    assert none == f"a: truncated {codec} data, read up to its end"


def test_bounds_of_compressed_logs() -> None:
    zeros = gzip.compress(b"\n" * 5_000_000)
    assert unread(stored(zeros)) == []
    assert unread(stored(zeros, Budget(ratio=9, ratio_floor=99))) == [
        "a: decompression stopped: more than 9 times the compressed size"
    ]
    assert unread(stored(zeros, Budget(total=9))) == ["a: decompressed data cut at 9 bytes"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"7z\xbc\xaf\x27\x1c....", ["7z archive: unpack it and give the folder"]),
        (b"\x04\x22\x4d\x18....", ["lz4 data"]),
        (gzip.compress(gzip.compress(TEXT, mtime=0), mtime=0), ["gzip data inside gzip data"]),
        (b"\x7fELF\0\0\0", []),
        (b"", []),
    ],
)
def test_forms_that_are_not_read(data: bytes, why: list[str]) -> None:
    (source,) = stored(data)
    assert source.unread == why


def test_a_file_that_becomes_shorter(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for change in (lambda: os.truncate(path, 5), lambda: path.write_text("new\n")):
        path.write_bytes(b"one\n" * 2000)
        (source,) = [source_of(FileStore(path), "a", 8000)]
        change()
        assert unread([source]) == ["a: became shorter while it was read"]
    path.write_bytes(b"one\n" * 2000)
    (source,) = [source_of(FileStore(path), "a", 8000)]
    with path.open("ab") as more:
        more.write(b"two\n")
    assert unread([source]) == []
    path.unlink()
    assert unread([source]) == ["a: reading stopped: no such file or directory"]


@pytest.mark.parametrize("mark", [b"", b"\xff\xfe", b'{"pg_config": 1}'])
def test_a_store_that_loses_its_end_while_it_is_read(mark: bytes) -> None:
    class Half:
        size = 4_000_000

        def read_at(self, offset: int, length: int) -> bytes:
            return (mark + b"o\n" * 1_000_000)[offset : min(offset + length, self.size)]

    class Store:
        @contextmanager
        def open(self) -> Iterator[Reader]:
            yield Half()

    source = source_of(Store(), "a", Half.size)
    assert unread([source]) == ["a: became shorter while it was read"]


def test_a_document_that_is_too_large() -> None:
    data = b'{"pg_config": {}, "entries": []}'.ljust(DOCUMENT_LIMIT + 1)
    assert unread(stored(data)) == ["a: only the first 64 MiB were read"]


def test_a_folder_with_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "job"
    (job / "d/e/f").mkdir(parents=True)
    for name in ("a.log", "b.log", "d/e/f/c.log"):
        (job / name).write_text("x\n")
    assert unread(find_sources([job])) == []
    monkeypatch.setattr(find, "MAX_DEPTH", 2)
    assert unread(find_sources([job])) == ["d/e/f: more than 2 folders deep"]
    monkeypatch.setattr(find, "MAX_FILES", 1)
    assert unread(find_sources([job])) == ["job: only the first 1 files were looked at"]
    monkeypatch.setattr(find, "MAX_ENTRIES", 1)
    assert "job: only 1 of its entries were looked at" in unread(find_sources([job]))


def test_what_lies_in_a_folder_and_is_no_log(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "rank_1.log").write_text("x\n")
    for name in ("a.log", "train.py", ".hidden"):
        (job / name).write_text("x\n")
    (job / "core").write_bytes(b"\x7fELF\0\0\0")
    (job / "same.log").symlink_to("a.log")
    (job / "data").symlink_to(tmp_path / "data")
    (job / "latest").symlink_to("gone")
    os.mkfifo(job / "queue")
    assert unread(find_sources([job])) == []
    assert unread(find_sources([job, job / "queue"])) == [
        f"{job}/queue: named pipe: not read; give it as standard input"
    ]
    # But a log that links lead to, and something with no right to read it.
    (job / "rank_1.log.gz").symlink_to(tmp_path / "rank_1.log")
    (job / "rank_2.out").symlink_to("gone")
    assert unread(find_sources([job])) == [
        "rank_1.log.gz: symbolic link that leaves the folder",
        "rank_2.out: symbolic link: no such file or directory",
    ]


def test_what_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.log").write_text("x\n")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert unread(find_sources([tmp_path])) == ["a.log: permission denied"]
    monkeypatch.setattr(os, "scandir", refuse)
    assert unread(find_sources([tmp_path])) == [f"{tmp_path.name}: permission denied"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().read(size)

    assert unread([stdin_source(io.BytesIO(b"one\ntwo\n"))]) == []
    assert unread([stdin_source(Broken(b"one\n"))]) == [
        "<stdin>: reading stopped: input/output error"
    ]
    monkeypatch.setattr(find, "STDIN_LIMIT", 5)
    assert unread([stdin_source(io.BytesIO(b"one\ntwo\n"))]) == [
        "<stdin>: only the first 5 bytes were read: give the file itself"
    ]


def test_archives() -> None:
    def of(data: bytes, **limits: int) -> list[str]:
        return unread(archive_sources(BytesStore(data), "j", Budget(**limits)))

    files = {"a.log": TEXT, "b.log": TEXT, "train.py": b"x\n", ".hidden": b"x\n"}
    for data in (tar(files), gzip.compress(tar(files)), zipped(files)):
        assert of(data) == []
        assert of(data, members=1) == ["j: only the first 1 members were read"]
    for data in (tar(files), zipped(files)):
        assert of(data, total=len(TEXT) + 9) == [
            f"b.log: the archive's members become more than {len(TEXT) + 9} bytes: cut"
        ]
    assert of(gzip.compress(tar({"a.log": NOISE})), memory=9, spool=99) == [
        "j!a.log: the archive's members together are too large: not read"
    ]
    links = b"".join(member(b"l%d" % n, kind=b"2", link=b"x") for n in range(NAMED))
    assert of(links + member(b"/a.log", TEXT) + END) == ["j: 1 more member not read"]
    assert of(links + member(b"/a.py", TEXT) + END) == []


@pytest.mark.slow
def test_a_job_tells_what_of_it_is_unread(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("[rank0]: step 1\n")
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(NOISE)[:-99])
    (tmp_path / "c.log.gz").write_bytes(gzip.compress(NOISE))
    (tmp_path / "d.7z").write_bytes(b"7z\xbc\xaf\x27\x1c....")
    (tmp_path / "nccl_trace_rank_0.json").write_text('{"pg_config": 1')
    wanted = [
        "b.log.gz: truncated gzip data, read up to its end",
        "d.7z: 7z archive: unpack it and give the folder",
        "nccl_trace_rank_0.json: truncated or damaged JSON",
    ]
    job = load(tmp_path)
    assert job.unread == wanted
    assert set(wanted) <= set(job.notes)
    # Scanned in other processes, sources bring it back.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert load(tmp_path, executor=pool).unread == wanted


def test_an_error_while_a_source_is_scanned() -> None:
    def broken() -> Iterator[object]:
        raise ValueError("a bug of a reader")
        yield

    good = source_of(BytesStore(b"x\n"), "a", 2)
    job = read([good, Source("b", "text", 0, broken)])  # type: ignore[arg-type]
    assert job.unread == ["b: reading stopped: a bug of a reader"]
