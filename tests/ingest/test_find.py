from __future__ import annotations

import gzip
import os
import pickle
import socket
from pathlib import Path

import pytest

from diagnose.errors import InputError
from diagnose.ingest import Source, find, find_sources
from diagnose.job.load import load


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_log", ".log")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def summary(sources: list[Source]) -> list[tuple[str, str, str]]:
    return [(source.name, source.kind, source.note) for source in sources]


def data(source: Source) -> bytes:
    return b"".join(chunk.data for chunk in source.chunks())


def test_a_folder_gives_its_files_in_order(tmp_path: Path) -> None:
    write(tmp_path, b_log="b\n", a__z_log="z\n", a__a_log="a\n", empty_log="")
    sources = find_sources([tmp_path])
    assert summary(sources) == [
        ("a/a.log", "text", ""),
        ("a/z.log", "text", ""),
        ("b.log", "text", ""),
        ("empty.log", "empty", ""),
    ]
    assert [data(source) for source in sources] == [b"a\n", b"z\n", b"b\n", b""]
    assert [source.size for source in sources] == [2, 2, 2, 0]
    assert sources[2].mtime == (tmp_path / "b.log").stat().st_mtime


def test_names_are_relative_to_what_the_paths_have_in_common(tmp_path: Path) -> None:
    write(tmp_path, one__a_log="a\n", two__b_log="b\n", two__c_log="c\n")
    one, two = tmp_path / "one", tmp_path / "two"
    assert [s.name for s in find_sources([two / "b.log"])] == ["b.log"]
    assert [s.name for s in find_sources([two / "c.log", two / "b.log"])] == ["b.log", "c.log"]
    assert [s.name for s in find_sources([two, one])] == ["one/a.log", "two/b.log", "two/c.log"]
    assert [s.name for s in find_sources([one / "a.log", two])] == [
        "one/a.log",
        "two/b.log",
        "two/c.log",
    ]


def test_a_file_given_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, a_log="a\n")
    paths = [tmp_path / "a.log", tmp_path, tmp_path / "." / "a.log"]
    assert summary(find_sources(paths)) == [("a.log", "text", "")]


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, job__a_log="a\n")
    monkeypatch.chdir(tmp_path / "job")
    assert [s.name for s in find_sources([Path()])] == ["a.log"]
    assert [s.name for s in find_sources([Path("../job/a.log")])] == ["a.log"]


def test_what_names_say(tmp_path: Path) -> None:
    write(tmp_path, run__attempt_1__3__stderr_log="x\n", log_rank_12_log="y\n")
    (tmp_path / "log_rank_12.out").write_text("y\n")
    torchrun = find_sources([tmp_path / "run"])[0]
    assert (torchrun.attempt, torchrun.local_rank, torchrun.rank) == (1, 3, None)
    assert next(s for s in find_sources([tmp_path]) if s.name == "log_rank_12.out").rank == 12


def test_a_folder_inside_an_attempt_keeps_the_attempt(tmp_path: Path) -> None:
    write(tmp_path, attempt_2__0__stderr_log="x\n")
    for path in ("attempt_2", "attempt_2/0", "attempt_2/0/stderr.log"):
        (source,) = find_sources([tmp_path / path])
        assert (source.attempt, source.local_rank) == (2, 0)


def test_hidden_entries_are_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path, a_log="a\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.log").write_text("x\n")
    (tmp_path / ".swp").write_text("x\n")
    assert summary(find_sources([tmp_path])) == [
        ("a.log", "text", ""),
        (tmp_path.name, "skipped", "2 hidden entries left out: .git, .swp"),
    ]
    assert summary(find_sources([tmp_path / ".swp"])) == [(".swp", "text", "")]


def test_links_inside_the_folder_are_not_read_twice(tmp_path: Path) -> None:
    write(tmp_path, run1__a_log="a\n")
    (tmp_path / "latest").symlink_to("run1")
    (tmp_path / "0.log").symlink_to("run1/a.log")
    (tmp_path / "run1" / "loop").symlink_to("..")
    (tmp_path / "self").symlink_to("self")
    assert summary(find_sources([tmp_path])) == [
        ("run1/a.log", "text", ""),
        ("self", "unreadable", "symbolic link: too many levels of symbolic links"),
    ]


def test_a_link_is_followed_to_what_was_left_out(tmp_path: Path) -> None:
    write(tmp_path, **{".data__x_log": "x\n", ".data__y_log": "y\n"})
    (tmp_path / "x.log").symlink_to(".data/x.log")
    names = [(s.name, s.kind) for s in find_sources([tmp_path])]
    assert names == [(tmp_path.name, "skipped"), ("x.log", "text")]
    (tmp_path / "folder").symlink_to(".data")
    names = [(s.name, s.kind) for s in find_sources([tmp_path])]
    assert names == [
        ("folder/x.log", "text"),
        ("folder/y.log", "text"),
        (tmp_path.name, "skipped"),
    ]


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path, job__a_log="a\n", other__b_log="b\n")
    (tmp_path / "job" / "b.log").symlink_to(tmp_path / "other" / "b.log")
    (tmp_path / "job" / "other").symlink_to(tmp_path / "other")
    (tmp_path / "job" / "gone").symlink_to("nowhere")
    assert summary(find_sources([tmp_path / "job"])) == [
        ("a.log", "text", ""),
        ("b.log", "skipped", "symbolic link that leaves the folder"),
        ("gone", "unreadable", "symbolic link: no such file or directory"),
        ("other", "skipped", "symbolic link that leaves the folder"),
    ]
    (tmp_path / "link").symlink_to("job/a.log")
    assert summary(find_sources([tmp_path / "link"])) == [("link", "text", "")]


def test_pipes_sockets_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert summary(find_sources([tmp_path])) == [
            ("pipe", "skipped", "named pipe: not read; give it as standard input"),
            ("s", "skipped", "socket: not read"),
        ]
    assert summary(find_sources([Path("/dev/null")])) == [
        ("/dev/null", "skipped", "device: not read")
    ]


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, a_log="a\n")
    (tmp_path / "nothing").mkdir()
    assert summary(find_sources([tmp_path / "gone.log"])) == [
        (f"{tmp_path}/gone.log", "unreadable", "no such file or directory")
    ]
    assert summary(find_sources([tmp_path / "nothing"])) == [
        (f"{tmp_path}/nothing", "empty", "no files in this folder")
    ]

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    (source,) = find_sources([tmp_path / "a.log"])
    assert summary([source]) == [("a.log", "unreadable", "permission denied")]
    assert data(source) == b""
    monkeypatch.setattr(os, "scandir", refuse)
    assert summary(find_sources([tmp_path])) == [
        (tmp_path.name, "unreadable", "permission denied"),
    ]


def test_the_number_of_files_and_the_depth_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, a_log="a\n", b_log="b\n", c__d__e__f_log="f\n")
    monkeypatch.setattr(find, "MAX_DEPTH", 2)
    assert summary(find_sources([tmp_path]))[2:] == [
        ("c/d/e", "skipped", "more than 2 folders deep")
    ]
    monkeypatch.setattr(find, "MAX_FILES", 1)
    assert summary(find_sources([tmp_path])) == [
        ("a.log", "text", ""),
        (tmp_path.name, "skipped", "only the first 1 files were looked at"),
    ]
    monkeypatch.setattr(find, "MAX_ENTRIES", 1)
    assert (tmp_path.name, "skipped", "only 1 of its entries were looked at") in summary(
        find_sources([tmp_path])
    )


def test_names_are_printable(tmp_path: Path) -> None:
    for name in (b"\xff.log", b"a\x1b[31m\n.log"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x\n")
    assert sorted(s.name for s in find_sources([tmp_path])) == ["?.log", "a?[31m?.log"]


def test_a_source_of_a_file_can_be_sent_to_another_process(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"one\n" * 99)[:-9])
    (source,) = find_sources([tmp_path])
    sent = pickle.loads(pickle.dumps(source))
    assert data(sent).startswith(b"one\n")
    assert sent.notes == ["truncated gzip data, read up to its end"]
    assert source.notes == []


NO_LOGS = [
    *("train.py", "conf/a.YAML", "b.yml", "c.toml", "d.ini", "e.cfg", "README.md", "n.ipynb"),
    *("run.sh", "plot.png", "t.csv", "model.safetensors", "rng.pt", "p.bin", "x.pyc", "r.html"),
    *("train.py.gz", "ckpt/tokenizer.json"),
]
LOGS = ["a.json", "a.jsonl", "a.txt", "a.log", "a.log.1", "a.out", "a.err", "a.o812", "syslog"]


def test_of_a_folder_files_that_are_no_logs_are_left_out_with_one_note(tmp_path: Path) -> None:
    for name in (*NO_LOGS, *LOGS):
        path = tmp_path / "job" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    (tmp_path / "job" / "last.py").symlink_to("train.py")
    found = find_sources([tmp_path / "job"])
    assert [source.name for source in found if source.kind == "text"] == sorted(LOGS)
    assert [source.note for source in found if source.kind != "text"] == [
        f"{len(NO_LOGS) + 1} files that are not logs left out: README.md, b.yml, c.toml, …"
    ]


def test_a_file_that_is_named_is_read_whatever_its_suffix(tmp_path: Path) -> None:
    write(tmp_path, **{"a_log": "a\n", "b.py": "b\n", "c.md": "c\n"})
    assert summary(find_sources([tmp_path, tmp_path / "b.py"])) == [
        ("a.log", "text", ""),
        ("b.py", "text", ""),
        (tmp_path.name, "skipped", "1 file that is not a log left out: c.md"),
    ]


def test_the_results_of_a_scan_are_no_logs(tmp_path: Path) -> None:
    for name in (
        "results/diagnose.sqlite", "old/jobs.parquet/part-00000.parquet",
        "old/diagnoses/part-00000.jsonl.zst", "old/manifest.json",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Traceback")
    (tmp_path / "train.log").write_text("step 1\n")
    assert [(one.name, one.kind) for one in find_sources([tmp_path])] == [
        ("old", "skipped"),
        ("results", "skipped"),
        ("train.log", "text"),
    ]
    with pytest.raises(InputError, match=r"results: results of diagnose scan .* diagnose fleet"):
        load(tmp_path / "results")
