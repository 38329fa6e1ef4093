"""Archives given as a path, or lying in a job's folder, are read as part of the job."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose import diagnose
from diagnose.ingest import Source, find_sources
from diagnose.job.load import load
from tests.archives import END, MTIME, PACK, TEXT, member, tar, zipped


def data(source: Source) -> bytes:
    return b"".join(chunk.data for chunk in source.chunks())


def summary(sources: list[Source]) -> list[tuple[str, str, str]]:
    return [(source.name, source.kind, source.note) for source in sources]


@pytest.mark.parametrize("file", PACK)
def test_the_only_path_gives_its_members_as_if_unpacked(tmp_path: Path, file: str) -> None:
    files = {"gpu001/rank_3.log": TEXT, "slurm-7.out": b"one\n"}
    (tmp_path / file).write_bytes(PACK[file](files))
    (tmp_path / "unpacked" / "gpu001").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "unpacked" / name).write_bytes(text)
    packed, loose = find_sources([tmp_path / file]), find_sources([tmp_path / "unpacked"])
    assert summary(packed) == summary(loose)
    assert [data(source) for source in packed] == [TEXT, b"one\n"]
    assert [(s.rank, s.host) for s in packed] == [(3, "gpu001"), (None, None)]
    assert [(s.rank, s.host) for s in packed] == [(s.rank, s.host) for s in loose]
    assert packed[0].mtime == MTIME


def test_an_archive_in_a_folder_is_part_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_bytes(TEXT)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "node_1.tgz").write_bytes(gzip.compress(tar({"rank_1.log": b"one\n"})))
    found = find_sources([tmp_path])
    assert summary(found) == [
        ("more/node_1.tgz!rank_1.log", "text", ""),
        ("rank_0.log", "text", ""),
    ]
    assert [(s.rank, s.node) for s in found] == [(1, 1), (0, None)]
    assert [data(source) for source in found] == [b"one\n", TEXT]


def test_an_archive_among_other_paths_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"x.log": b"x\n"}))
    (tmp_path / "b.log").write_bytes(b"b\n")
    found = find_sources([tmp_path / "b.log", tmp_path / "a.zip"])
    assert [source.name for source in found] == ["a.zip!x.log", "b.log"]


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    (tmp_path / "noname").write_bytes(PACK["job.tar.gz"]({"x.log": b"x\n"}))
    (tmp_path / "text.tar").write_bytes(TEXT)
    assert [(s.name, data(s)) for s in find_sources([tmp_path])] == [
        ("noname!x.log", b"x\n"),
        ("text.tar", TEXT),
    ]
    assert find_sources([tmp_path])[1].mtime == (tmp_path / "text.tar").stat().st_mtime


def test_a_refused_member_is_named_with_its_archive(tmp_path: Path) -> None:
    (tmp_path / "ok.log").write_bytes(b"ok\n")
    (tmp_path / "bad.tar").write_bytes(member(b"../../x.log", b"x\n") + END)
    assert summary(find_sources([tmp_path])) == [
        ("bad.tar!../../x.log", "skipped", "path leads out of the archive: not read"),
        ("ok.log", "text", ""),
    ]


def test_a_packed_fixture_gives_the_same_diagnosis(tmp_path: Path) -> None:
    fixture = next((Path(__file__).parents[2] / "fixtures").glob("*/rank_0.log")).parent
    files = {path.name: path.read_bytes() for path in fixture.glob("*.log")}
    (tmp_path / "job.tar.gz").write_bytes(PACK["job.tar.gz"](files))
    packed = diagnose(load(tmp_path / "job.tar.gz"))
    loose = diagnose(load(sorted(fixture.glob("*.log"))))
    assert packed.to_json() == loose.to_json()


def test_without_archives_their_reader_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"a\n")
    code = (
        "import sys; from pathlib import Path; from diagnose.ingest import find_sources;"
        "find_sources([Path(sys.argv[1])]); print('diagnose.ingest.archive' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, check=True)
    assert ran.stdout == b"False\n"
