from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose import diagnose
from diagnose.ingest import Source, archive, find_sources
from diagnose.ingest import read as read_module
from diagnose.ingest.archive import archive_form, archive_sources
from diagnose.ingest.compress import decompress
from diagnose.ingest.raw import BytesStore, FileStore, GzipStore, Keeper, SliceStore
from diagnose.ingest.source import Budget
from diagnose.job.load import read
from tests.archives import (
    END,
    GOOD,
    MTIME,
    PACK,
    TEXT,
    Hostile,
    header,
    hostile,
    member,
    tar,
    zipped,
    zstd,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"
HOSTILE = hostile()
# The bad ones of which everything that may be a log is read all the same.
WHOLE = {
    *("symbolic link", "hard link", "link, then a member through it", "link in a zip"),
    *("character device", "block device", "named pipe", "pipe in a zip", "many refused members"),
    *("same name twice", "zip named tar.gz", "tar named zip", "text named tar.gz"),
    *("text named zip, compressed", "nothing named tar", "zeros named tar", "empty tar.gz"),
    *(
        "empty zip",
        "numbers of disks in a zip",
        "empty member",
        "many empty members",
        "name that is not UTF-8",
    ),
    "zeros that compress well",
}
FORMS = pytest.mark.parametrize("file", PACK)


def sources_of(data: bytes, file: str, budget: Budget | None = None) -> list[Source]:
    return archive_sources(BytesStore(data), file, budget)


def data(source: Source) -> bytes:
    return b"".join(chunk.data for chunk in source.chunks())


def summary(sources: list[Source]) -> list[tuple[str, str, str]]:
    return [(source.name, source.kind, source.note) for source in sources]


def notes(sources: list[Source]) -> list[str]:
    """All that there is to say, after everything was read."""
    lines = []
    for source in sources:
        data(source)
        lines += [f"{source.name}: {note}" for note in {source.note, *source.notes} if note]
    return lines


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_gives_a_note_and_its_good_members(kind: str) -> None:
    case: Hostile = HOSTILE[kind]
    found = sources_of(case.data, case.file)
    said = notes(found)
    assert [
        line for line in said if re.search(case.says, line) and case.names in line
    ] or not case.says
    assert bool(said) == bool(case.says)
    assert all("\n" not in line and line.isprintable() and len(line) < 600 for line in said)
    assert len(said) <= 23
    assert any(source.unread for source in found) == (kind not in WHOLE)
    good = [data(source) for source in found if source.name == GOOD]
    if case.good:
        assert good == [TEXT]
    else:
        assert all(TEXT.startswith(bytes_) for bytes_ in good)
    assert len({source.name for source in found if source.kind == "text"}) == len(
        [source for source in found if source.kind == "text"]
    )


def test_there_are_enough_hostile_kinds() -> None:
    assert len(HOSTILE) >= 30


def test_what_is_refused_is_not_read() -> None:
    for kind in (
        "absolute path",
        "parent path",
        "symbolic link",
        "encrypted member",
        "pax sparse file",
    ):
        case = HOSTILE[kind]
        readable = [source.name for source in sources_of(case.data, case.file) if data(source)]
        assert readable == [GOOD]


def test_an_error_of_one_member_is_one_line() -> None:
    case = HOSTILE["hard link"]
    assert notes(sources_of(case.data, "jobs/7.tar")) == [
        "jobs/7.tar!l.log: hard link to /etc/shadow: not followed"
    ]
    case = HOSTILE["truncated gzip"]
    said = notes(sources_of(case.data, "7.tgz"))
    assert said[0] == "7.tgz: truncated gzip data, read up to its end"
    assert said[1:] == [] or said[1].startswith(f"{GOOD}: cut short: ")


NAMES = st.text(st.sampled_from("abr0_1é"), min_size=1, max_size=8).map(lambda name: f"{name}.log")
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
BODIES = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from([b"step 1\n", b"\x1b[31mred\r\n", b"> quoted\n", b"\0", b"long " * 400])
    ).map(b"".join),
    st.sampled_from([gzip.compress(TEXT), TEXT, TEXT.decode().encode("utf-16"), bytes(700) + TEXT]),
).filter(lambda body: not body or body.strip(b"\0"))  # `look` calls packed NULs text
BODIES = BODIES.filter(lambda body: not body.startswith(b"PK"))  # broken archives inside one


def _is_tree(files: dict[str, bytes]) -> bool:
    return not any(f"{name}/" in other for name in files for other in files if other != name)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(PATHS, BODIES, min_size=1, max_size=6).filter(_is_tree))
@pytest.mark.slow
def test_an_archive_is_the_same_as_its_folder(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("job")
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
        os.utime(folder / name, (MTIME, MTIME))
    wanted = find_sources([folder])
    for file, pack in PACK.items():
        found = sources_of(pack(files), file)
        # Fields compare equal but for the readers; these by what they give.
        assert found == wanted
        assert [data(source) for source in found] == [data(source) for source in wanted]


@pytest.mark.parametrize("job", ["lab-key-error", "megatron-xid79", "hf-slow-model-load"])
def test_an_archive_has_the_diagnosis_of_its_folder(job: str, tmp_path: Path) -> None:
    files = {
        str(path.relative_to(FIXTURES / job)): path.read_bytes()
        for path in (FIXTURES / job).rglob("*")
        if path.is_file() and path.name != "expected.yaml"
    }
    for name, body in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(body)
        os.utime(tmp_path / name, (MTIME, MTIME))
    wanted = diagnose(read(find_sources([tmp_path])))
    for file in ("job.tar", "job.tar.gz", "job.zip"):
        assert diagnose(read(sources_of(PACK[file](files), file))) == wanted


@FORMS
def test_sources_can_be_read_again_and_at_the_same_time(file: str) -> None:
    found = sources_of(PACK[file]({"a.log": TEXT, "b.log": TEXT[:999]}), file)
    both = [list(zip(s.chunks(), s.chunks(), strict=True)) for s in found]
    assert all(one == other for pairs in both for one, other in pairs)
    assert [data(source) for source in found] == [TEXT, TEXT[:999]]


@FORMS
def test_members_that_stay_in_memory_or_in_the_archive_can_be_sent(
    file: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(PACK[file]({"a.log": TEXT}))
    found = archive_sources(FileStore(tmp_path / file), file)
    assert [data(source) for source in pickle.loads(pickle.dumps(found))] == [TEXT]


def test_names_tell_who_wrote_a_member() -> None:
    files = {"attempt_1/3/stderr.log": b"x\n", "node07/log_rank_12.out": b"x\n"}
    torchrun, ranked = sources_of(tar(files), "job.tar")
    assert (torchrun.attempt, torchrun.local_rank, torchrun.rank) == (1, 3, None)
    assert (ranked.host, ranked.rank, ranked.mtime) == ("node07", 12, MTIME)
    # An archive of one node inside that of the job.
    inner = {"node07.tar.gz": PACK["job.tar.gz"]({"1/stdout.log": b"x\n"})}
    (nested,) = sources_of(tar(inner), "job.tar")
    assert (nested.name, nested.host) == ("node07.tar.gz!1/stdout.log", "node07")
    assert nested.local_rank == 1


def test_an_archive_among_other_inputs() -> None:
    found = archive_sources(
        BytesStore(tar({"a.log": b"a\n", "b.zip": zipped({"c.log": b"c\n"})})),
        "logs/node07.tar",
        inside="logs/node07.tar!",
    )
    assert [(s.name, s.host, data(s)) for s in found] == [
        ("logs/node07.tar!a.log", "node07", b"a\n"),
        ("logs/node07.tar!b.zip!c.log", "node07", b"c\n"),
    ]


@FORMS
@pytest.mark.parametrize("outer", PACK)
def test_an_archive_inside_is_opened_one_level_deep(file: str, outer: str) -> None:
    inner = PACK[file]({"a.log": TEXT, "deep.tar": tar({"b.log": b"b\n"})})
    found = sources_of(PACK[outer]({file: inner, "c.log": b"c\n"}), "all")
    assert [(s.name, s.kind) for s in found] == sorted(
        [
            (f"all!{file}!deep.tar", "skipped"),
            ("c.log", "text"),
            (f"{file}!a.log", "text"),
        ]
    )
    assert [data(s) for s in found if s.name == f"{file}!a.log"] == [TEXT]


@FORMS
def test_compressed_members(file: str) -> None:
    files = {"a.log.gz": gzip.compress(TEXT), "b.log.bz2": bz2.compress(TEXT), "c.zst": zstd(TEXT)}
    found = sources_of(PACK[file](files), file)
    assert [(s.name, s.kind, data(s) == TEXT) for s in found] == [
        ("a.log.gz", "text", True),
        ("b.log.bz2", "text", True),
        ("c.zst", "text", True),
    ]
    assert notes(found) == []


@FORMS
def test_dumps_are_given_as_a_whole(file: str) -> None:
    dump = json.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": []}).encode()
    (source,) = sources_of(PACK[file]({"nccl_trace_rank_3.json": dump}), file)
    assert (source.kind, source.rank, source.content(), data(source)) == ("fr_dump", 3, dump, b"")


def test_hidden_files_and_files_that_are_no_logs_are_left_out_as_of_a_folder(
    tmp_path: Path,
) -> None:
    names = (".git/x.log", "a/.b/c/y.log", "train.py", "conf.yaml.gz", "a.log", "__MACOSX/._a.log")
    files = dict.fromkeys(names, b"x\n")
    for name, body in files.items():
        (tmp_path / "job" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "job" / name).write_bytes(body)
    wanted = [source.note for source in find_sources([tmp_path / "job"]) if source.note]
    assert summary(sources_of(tar(files), "job.tar")) == [
        ("a.log", "text", ""),
        ("job.tar", "skipped", "; ".join(wanted)),
    ]
    assert wanted == [
        "2 files that are not logs left out: conf.yaml.gz, train.py",
        "3 hidden entries left out: .git, __MACOSX/._a.log, a/.b",
    ]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_of_every_tar(form: int) -> None:
    long = "/".join(["job-name-" + "x" * 60] * 3) + "/rank_7.log"
    (source,) = sources_of(tar({long: TEXT}, format=form), "job.tar")
    assert (source.name, source.rank, data(source)) == (long, 7, TEXT)


def test_the_tar_of_unix_v7() -> None:
    old = header(b"rank_7.log", len(TEXT), b"\0", magic=b"\0") + TEXT + bytes(-len(TEXT) % 512)
    folder = header(b"logs/", 0, b"\0", magic=b"\0")
    (source,) = sources_of(folder + old + END, "job")
    assert (source.name, data(source)) == ("rank_7.log", TEXT)


def test_sizes_of_more_than_eight_gigabytes_in_base_256() -> None:
    odd = header(b"a.log", b"\x80" + bytes(7) + len(TEXT).to_bytes(4, "big"))
    (source,) = sources_of(odd + TEXT + bytes(-len(TEXT) % 512) + END, "job.tar")
    assert (source.size, data(source)) == (len(TEXT), TEXT)


def test_archives_one_after_the_other() -> None:
    one, two = tar({"a.log": b"a\n"}), tar({"b.log": b"b\n"})
    for joined in (one + two, gzip.compress(one) + gzip.compress(two), gzip.compress(one + two)):
        found = sources_of(joined, "job.tar")
        assert [(s.name, data(s), s.note) for s in found] == [
            ("a.log", b"a\n", ""),
            ("b.log", b"b\n", ""),
        ]


def test_a_zip_with_64_bit_fields_and_a_comment() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"nightly" * 100
        with archive.open("a.log", "w", force_zip64=True) as out:
            out.write(TEXT)
    (source,) = sources_of(sink.getvalue(), "job.zip")
    assert (source.name, source.note, data(source)) == ("a.log", "", TEXT)


def test_a_zip_written_to_a_pipe() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.parts: list[bytes] = []

        def writable(self) -> bool:
            return True

        def write(self, block: object, /) -> int:
            self.parts.append(bytes(block))  # type: ignore[call-overload]
            return len(self.parts[-1])

    sink = Pipe()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[call-overload]
        archive.writestr("a.log", TEXT)
        archive.writestr("b.log", TEXT[:500])
    packed = b"".join(sink.parts)
    assert [data(source) for source in sources_of(packed, "job.zip")] == [TEXT, TEXT[:500]]
    # Without the directory nothing tells where its members end.
    assert notes(sources_of(packed[:-60], "job.zip")) == [
        "job.zip: truncated zip archive: no directory at its end, read from its start",
        "job.zip!a.log: size unknown without the missing directory: not read",
    ]


def test_the_last_of_several_members_of_one_name_is_read() -> None:
    twice = member(b"./a.log", b"old\n") + member(b"a.log", b"new\n") + END
    found = sources_of(twice, "job.tar")
    assert [(s.name, data(s)) for s in found if s.kind == "text"] == [("a.log", b"new\n")]


def test_names_that_look_the_same_stay_apart() -> None:
    both = member(b"\xff.log", b"one\n") + member(b"\xfe.log", b"two\n") + END
    found = sources_of(both, "job.tar")
    assert [(s.name, data(s)) for s in found] == [("?.log", b"one\n"), ("?.log (2)", b"two\n")]


@FORMS
def test_the_number_of_members_is_bounded(file: str) -> None:
    packed = PACK[file]({f"{n}.log": b"x\n" for n in range(5)})
    found = sources_of(packed, file, Budget(members=3))
    assert summary(found)[:3] == [(f"{n}.log", "text", "") for n in range(3)]
    assert notes(found) == [f"{file}: only the first 3 members were read"]
    said = notes(sources_of(packed, file, Budget(headers=3)))
    assert len(said) == 1
    assert " 3 " in said[0]


@FORMS
def test_headers_of_all_levels_count(file: str) -> None:
    inner = PACK[file]({f"{n}.log": b"x\n" for n in range(5)})
    found = sources_of(tar({f"{n}.{file}": inner for n in range(9)}), "j.tar", Budget(headers=20))
    assert len([source for source in found if source.kind == "text"]) in (10, 11)
    assert len(notes(found)) == 7


def test_long_names_count_as_several_members() -> None:
    names = [f"{'a' * 200}/{'b' * 200}/{n}.log" for n in range(9)]
    found = sources_of(tar(dict.fromkeys(names, b"x\n")), "j.tar", Budget(members=10))
    assert len([source for source in found if source.kind == "text"]) == 3
    assert notes(found) == ["j.tar: only the first 10 members were read"]


def test_no_part_of_a_path_is_longer_than_file_systems_allow() -> None:
    found = sources_of(tar({"a" * 251 + ".log": b"x\n", "b" * 252 + ".log": b"x\n"}), "j.tar")
    assert [source.kind for source in found] == ["text", "skipped"]
    assert "longer than 255 characters: not read" in notes(found)[0]


def test_members_of_all_levels_count() -> None:
    inner = tar({f"{n}.log": b"x\n" for n in range(5)})
    found = sources_of(tar({"a.tar": inner, "b.tar": inner}), "j.tar", Budget(members=6))
    assert len([source for source in found if source.kind == "text"]) == 4
    assert notes(found) == [
        "j.tar!a.tar: only the first 6 members were read",
        "j.tar!b.tar: only the first 6 members were read",
    ]


def test_large_members_of_a_compressed_tar_go_to_a_temporary_file() -> None:
    files = {"a.log": TEXT, "b.log": TEXT * 2, "c.log": TEXT[:100]}
    packed = PACK["job.tar.gz"](files)
    found = sources_of(packed, "job.tar.gz", Budget(memory=len(TEXT) + 200))
    assert [data(source) for source in found] == list(files.values())
    assert [data(source) for source in reversed(found)] == list(files.values())[::-1]
    assert notes(found) == []
    found = sources_of(packed, "job.tar.gz", Budget(memory=200, spool=len(TEXT) * 2 + 5))
    assert [data(source) for source in found if source.kind == "text"] == [TEXT, TEXT[:100]]
    assert notes(found) == [
        "job.tar.gz!b.log: the archive's members together are too large: not read"
    ]


def test_without_room_for_a_temporary_file_small_members_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    packed = PACK["job.tar.gz"]({"a.log": TEXT * 2, "b.log": TEXT})
    found = sources_of(packed, "job.tar.gz", Budget(memory=len(TEXT) + 1))
    assert [data(source) for source in found if source.kind == "text"] == [TEXT]
    assert notes(found) == [
        "job.tar.gz!a.log: not read: no temporary file for it (no space left on device)"
    ]


def test_what_is_no_log_is_passed_over_in_a_compressed_tar() -> None:
    weights = b"\x89HDF\r\n\x1a\n" + os.urandom(3 << 20)
    packed = PACK["job.tar.gz"]({"weights": weights, "b.log": TEXT})
    found = sources_of(packed, "job.tar.gz", Budget(memory=1 << 20, spool=0))
    assert [(s.name, s.kind, s.note, s.size) for s in found] == [
        ("b.log", "text", "", len(TEXT)),
        ("weights", "binary", "HDF5 file", len(weights)),
    ]


@pytest.mark.parametrize("file", ["job.tar.gz", "job.tar.bz2", "job.tar.xz", "job.tar.zst"])
@pytest.mark.slow
def test_a_bomb_is_stopped_by_its_ratio_in_little_memory(file: str) -> None:
    bomb = PACK[file]({"a.log": TEXT, "z.log": bytes(64 << 20)})
    budget = Budget(ratio=20, ratio_floor=1 << 20, memory=1 << 20)
    tracemalloc.start()
    try:
        found = sources_of(bomb, file, budget)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 90 << 20
    said = notes(found)
    assert f"{file}: decompression stopped: more than 20 times the compressed size" in said
    assert data(found[0]) == TEXT


def test_an_archive_grows_less_than_a_log_may() -> None:
    bomb = PACK["job.zip"]({f"{n}.log": b"a\n" * 500_000 for n in range(4)})
    assert len(gzip.compress(b"a\n" * 500_000)) * 500 < 1_000_000
    found = sources_of(bomb, "job.zip", Budget(ratio_floor=1000))
    assert sum(len(data(source)) for source in found) <= 100 * len(bomb)
    assert found[-1].unread == [
        f"the archive's members become more than {100 * len(bomb)} bytes: cut"
    ]


def test_compressed_members_together_are_bounded() -> None:
    lines = b"step 1 loss 2.0\n" * 65536
    files = {f"{n}.log.gz": gzip.compress(lines) for n in range(4)}
    total = len(lines) * 2 + 99_999  # what is packed twice costs its packed size as well
    budget = Budget(ratio=1, ratio_floor=total)
    for file in ("job.tar", "job.zip", "job.tar.gz"):
        found = sources_of(PACK[file](files), file, budget)
        assert [len(data(source)) for source in found] == [len(lines), len(lines), 0, 0]
        assert [len(data(source)) for source in found] == [len(lines), len(lines), 0, 0]
        assert notes(found) == [
            f"{n}.log.gz: the archive's members become more than {total} bytes: cut" for n in (2, 3)
        ]


def test_reading_errors_become_notes(tmp_path: Path) -> None:
    assert summary(archive_sources(FileStore(tmp_path / "gone.tar"), "gone.tar")) == [
        ("gone.tar", "unreadable", "reading stopped: no such file or directory")
    ]
    path = tmp_path / "job.tar"
    path.write_bytes(tar({"a.log": TEXT}))
    (source,) = archive_sources(FileStore(path), "job.tar")
    path.unlink()
    assert data(source) == b""
    assert source.notes == ["reading stopped: no such file or directory"]


def test_what_is_an_archive() -> None:
    for file, pack in PACK.items():
        form = "zip" if file.endswith(".zip") else "tar"
        assert archive_form(BytesStore(pack({"a.log": TEXT})), "any") == form
    for no_archive in (TEXT, gzip.compress(TEXT), b"", bytes(2000), os.urandom(2000)):
        assert archive_form(BytesStore(no_archive), "x.log") is None
    assert archive_form(BytesStore(zipped({"m/data.pkl": b""})), "x.pt") is None
    assert archive_form(BytesStore(bytes(10240)), "x.tar") == "tar"


def test_a_single_log_is_its_own_source() -> None:
    (source,) = sources_of(gzip.compress(TEXT), "node07/rank_3.log.gz")
    assert (source.name, source.kind, source.note) == ("node07/rank_3.log.gz", "text", "")
    assert (source.host, source.rank, source.size) == ("node07", 3, len(gzip.compress(TEXT)))
    assert data(source) == TEXT


def test_deflate_as_gzip_at_any_offset() -> None:
    packed = zipped({"a": TEXT})
    store = SliceStore(BytesStore(packed), 31, 500)
    with GzipStore(store, b"12345678").open() as reader:
        whole = reader.read_at(0, 1000)
        assert whole == b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + packed[31:531] + b"12345678"
        for start in (0, 3, 9, 10, 11, 509, 510, 511, 517, 518, 600):
            for length in (0, 1, 2, 9, 300, 600):
                assert reader.read_at(start, length) == whole[start : start + length]


def test_keeping_stops_at_its_bounds() -> None:
    keeper = Keeper(Budget(memory=10, spool=20))
    assert [keeper.keep([b"x" * size], size)[1:] for size in (8, 15, 8, 2)] == [
        (8, ""),
        (15, ""),
        (0, "the archive's members together are too large: not read"),
        (2, ""),
    ]
    # More than the archive said: it does not stay in memory.
    store, size, problem = Keeper(Budget(memory=10, spool=20)).keep([b"x" * 8, b"y" * 8], 5)
    assert store is not None
    assert (size, problem) == (16, "")
    with store.open() as reader:
        assert reader.read_at(0, 99) == b"x" * 8 + b"y" * 8


@pytest.mark.slow
def test_memory_of_a_large_archive_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "job.tar.gz"
    line = b"".join(
        b"[rank0]: step %d loss 2.%05d\n" % (n, n * 7919 % 99991) for n in range(40_000)
    )
    block = line * 16
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for rank in range(24):
            info = tarfile.TarInfo(f"rank_{rank}.log")
            info.size = len(block)
            archive.addfile(info, io.BytesIO(block))
    code = f"""
import re
from pathlib import Path
from diagnose.ingest.archive import archive_sources
from diagnose.ingest.raw import FileStore
found = archive_sources(FileStore(Path({str(path)!r})), "job.tar.gz")
print(sum(len(chunk.data) for source in found for chunk in source.chunks()))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    total, peak_kib = map(int, run.stdout.split())
    assert total == 24 * len(block)
    assert peak_kib < 250 << 10  # with all that is imported


@pytest.fixture
def given_out(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all blocks that were decompressed."""
    sizes: list[int] = []

    def counted(*args: Any, **options: Any) -> Iterator[bytes]:
        for block in decompress(*args, **options):
            sizes.append(len(block))
            yield block

    for module in (archive, read_module):
        monkeypatch.setattr(module, "decompress", counted)
    return sizes


def nuls(count: int, size: int) -> dict[str, bytes]:
    return {f"{n}.log.gz": gzip.compress(bytes(size)) for n in range(count)}


@pytest.mark.slow
def test_nuls_count_against_the_quota(given_out: list[int]) -> None:
    budget = Budget(ratio=1, ratio_floor=30 << 20)
    for file in ("job.tar", "job.zip", "job.tar.gz"):
        found = sources_of(PACK[file](nuls(9, 8 << 20)), file, budget)
        assert [data(source) for source in found] == [b""] * 9
        assert [bool(source.unread) for source in found] == [False] * 3 + [True] * 6
        assert sum(given_out) < 40 << 20
        given_out.clear()


@pytest.mark.slow
def test_a_look_at_a_member_costs_little(given_out: list[int]) -> None:
    for pack in (gzip.compress, bz2.compress, zstd):
        found = sources_of(tar({f"{n}.log": pack(bytes(9 << 20)) for n in range(9)}), "job.tar")
        assert len(found) == 9
        assert sum(given_out) < 9 * (3 << 20)
        given_out.clear()


def test_archives_inside_count_against_the_quota(given_out: list[int]) -> None:
    inner = gzip.compress(tar({"no_log.py": bytes(8 << 20), "a.log": TEXT}))
    budget = Budget(ratio=1, ratio_floor=32 << 20)
    found = sources_of(tar({f"{n}.tgz": inner for n in range(9)}), "job.tar", budget)
    assert len([source for source in found if source.kind == "text"]) == 3
    assert sum(given_out) < 40 << 20
    assert notes(found)[-1].startswith("job.tar!8.tgz: the archive's members become more than")


def test_a_quota_that_is_used_in_other_processes() -> None:
    budget = Budget(ratio=1, ratio_floor=10 << 20)
    first, second = sources_of(tar(nuls(2, 8 << 20)), "job.tar", budget)
    sent = pickle.loads(pickle.dumps(first))
    assert data(sent) == b""
    first.take_back(sent)
    first.take_back(sent)  # counts once
    assert data(pickle.loads(pickle.dumps(second))) == b""
    assert not first.unread
    later = pickle.loads(pickle.dumps(second))
    assert data(later) == b""
    second.take_back(later)
    assert second.unread == [f"the archive's members become more than {10 << 20} bytes: cut"]
