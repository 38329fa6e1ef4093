from __future__ import annotations

import os
from pathlib import Path

import pytest

from diagnose.batch.jobs import JobRef, find_jobs
from diagnose.errors import InputError
from tests.archives import PACK, TEXT


def tree(folder: Path, *names: str) -> str:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(TEXT)
    return str(folder)


def found(*given: str, **options: object) -> list[tuple[str, str]]:
    return [(ref.id, ref.kind) for ref in find_jobs(given, **options)]  # type: ignore[arg-type]


def test_archives_in_a_folder_are_jobs_and_what_is_no_log_is_not(tmp_path: Path) -> None:
    tree(tmp_path, "7.tar.gz", "8.zip", "a/9.tar", "truth.json", "truth.csv", "README", ".x.tar")
    assert found(str(tmp_path)) == [("7", "archive"), ("8", "archive"), ("a/9", "archive")]


def test_a_folder_with_logs_is_a_job_with_all_below(tmp_path: Path) -> None:
    tree(tmp_path, "a/slurm-1.out", "a/gpu001/rank_0.log", "b/c/train.log", "b/c/more.tar.gz")
    assert found(str(tmp_path)) == [("a", "folder"), ("b/c", "folder")]
    assert found(str(tmp_path / "a")) == [("a", "folder")]


@pytest.mark.parametrize(
    "name", ["gpu001/x.log", "rank_3/out.log", "attempt_0/0/stdout.log", "logs/x.log", "node_1/y"]
)
def test_folders_of_parts_make_their_folder_one_job(tmp_path: Path, name: str) -> None:
    tree(tmp_path, f"j1/{name}", f"j2/{name}")
    assert found(str(tmp_path)) == [("j1", "folder"), ("j2", "folder")]


def test_logs_of_several_job_ids_are_several_jobs(tmp_path: Path) -> None:
    tree(tmp_path, "slurm-4100.out", "slurm-4107.out", "slurm-4107.err", "x-4200_3.log.gz")
    refs = list(find_jobs([str(tmp_path)]))
    assert [(ref.id, ref.kind, len(ref.files)) for ref in refs] == [
        ("slurm-4100.out", "log", 0),
        ("slurm-4107.err", "logs", 2),
        ("x-4200_3.log", "log", 0),
    ]
    assert [ref.labels for ref in refs] == [
        {"job_id": "4100"}, {"job_id": "4107"}, {"job_id": "4200"},
    ]  # fmt: skip
    assert refs[1].size == 2 * len(TEXT)


def test_logs_of_one_job_id_are_one_job(tmp_path: Path) -> None:
    tree(tmp_path, "slurm-4107.out", "slurm-4107.err")
    assert [ref.kind for ref in find_jobs([str(tmp_path)])] == ["folder"]


def test_job_glob_says_what_is_a_job(tmp_path: Path) -> None:
    tree(tmp_path, "u1/j1/n1.tar.gz", "u1/j1/n2.tar.gz", "u2/j2/a.log", "u2/j2/b.log")
    assert found(str(tmp_path), job_glob="*/*") == [("u1/j1", "folder"), ("u2/j2", "folder")]
    assert found(str(tmp_path), job_glob="**/*.log") == [
        ("u2/j2/a.log", "log"),
        ("u2/j2/b.log", "log"),
    ]


def test_labels_come_from_the_path(tmp_path: Path) -> None:
    tree(tmp_path, "ann/410007_llm.tar.gz", "ann/20250601_x.tar.gz")
    pattern = r"/(?P<user>[a-z]+)/(?P<job>\d+)_(?P<name>\w+)"
    refs = list(find_jobs([str(tmp_path)], labels=[pattern]))
    assert [(ref.id, ref.labels) for ref in refs] == [
        ("20250601", {"user": "ann", "name": "x"}),
        ("410007", {"user": "ann", "name": "llm", "job_id": "410007"}),
    ]


def test_a_change_shows(tmp_path: Path) -> None:
    path = tmp_path / "j.tar.gz"
    path.write_bytes(PACK["job.tar.gz"]({"a.log": b"1\n"}))
    os.utime(path, (5, 5))
    first = next(find_jobs([str(path)]))
    assert (first.size, first.mtime) == (path.stat().st_size, 5.0)
    assert next(find_jobs([str(path)])) == first
    path.write_bytes(PACK["job.tar.gz"]({"a.log": b"2\n"}))
    os.utime(path, (5, 5))
    second = next(find_jobs([str(path)]))
    assert (second.size, second.mtime) == (first.size, 5.0)
    assert second.tag != first.tag
    tree(tmp_path, "f/a.log", "f/n/b.log")
    before = next(find_jobs([str(tmp_path / "f")]))
    (tmp_path / "f/n/b.log").write_bytes(b"more\n")
    after = next(find_jobs([str(tmp_path / "f")]))
    assert before.tag != after.tag
    assert after.size == len(TEXT) + 5


def test_since_leaves_out_what_is_older(tmp_path: Path) -> None:
    tree(tmp_path, "old.tar", "new.tar")
    os.utime(tmp_path / "old.tar", (1000, 1000))
    assert found(str(tmp_path), since=2000.0) == [("new", "archive")]


def test_each_job_once(tmp_path: Path) -> None:
    tree(tmp_path, "j.tar")
    assert found(str(tmp_path), str(tmp_path / "j.tar"), str(tmp_path)) == [("j", "archive")]


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("/nowhere/at/all", {}, "/nowhere/at/all: no such file or directory"),
        ("", {}, "one of the paths is empty"),
        ("nope://x/y", {}, r"nope://x/y: no reader for nope://"),
        ("zip::s3://x/y", {}, "chained URLs are not read"),
        ("/", {"labels": ["("]}, "label pattern '\\('"),
        ("/", {"labels": ["x"]}, "no named group"),
    ],
)
def test_what_cannot_be_used_is_said(given: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(find_jobs([given], **options))  # type: ignore[arg-type]


def test_a_ref_is_plain_data() -> None:
    import pickle

    ref = JobRef("a", "log", "/a.log", 1, 2.0, "t", (), {"k": "v"})
    assert pickle.loads(pickle.dumps(ref)) == ref
