"""Names from strangers, and where their files come to lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.errors import InputError
from diagnose.serve import spool
from diagnose.serve.spool import TooLargeError, Upload, below


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("rank0.log", "rank0.log"),
        ("job/attempt_0/rank0.log", "job/attempt_0/rank0.log"),
        ("../../etc/passwd", "etc/passwd"),
        ("/etc/passwd", "etc/passwd"),
        ("C:\\logs\\a.log", "logs/a.log"),
        ("..", "log"),
        ("", "log"),
        (".hidden/.x", "hidden/x"),
        ("a\x00b\n.log", "a_b_.log"),
        ("a/./b//c", "a/b/c"),
        ("x" * 200 + ".log", "x" * 116 + ".log"),
        ("é" * 100, "é" * 60),
        ("/".join("abcdefghijklmnop"), "/".join("efghijklmnop")),
    ],
)
def test_a_name_is_a_path_below(name: str, path: str) -> None:
    assert below(name).as_posix() == path


def test_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    upload = Upload(tmp_path, 1000)
    for name, data in (("a.log", b"1"), ("a.log", b"2"), ("b", b"3"), ("b/c.log", b"4")):
        upload.begin(name)
        upload.write(data)
        upload.end()
    assert upload.names == ["a.log", "a-2.log", "b", "c-2.log"]
    assert [(tmp_path / name).read_bytes() for name in upload.names] == [b"1", b"2", b"3", b"4"]
    assert (tmp_path / "a.log").stat().st_mode & 0o777 == 0o600


def test_thousands_of_one_name_take_no_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []
    created = spool._created
    monkeypatch.setattr(spool, "_created", lambda path: (tries.append(path), created(path))[1])
    upload = Upload(tmp_path, 1000)
    upload.begin("b")
    for _ in range(100):
        upload.begin("a.log")
        upload.begin("b/c.log")
    upload.end()
    assert len({*upload.names}) == len(tries) == 201


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder = spool.folder_of(tmp_path / "spool", "x")
    (folder / "a.log").symlink_to(outside)
    upload = Upload(folder, 1000)
    upload.begin("a.log")
    upload.write(b"x")
    upload.end()
    assert upload.names == ["a-2.log"]
    assert not outside.exists()
    spool.remove(folder)
    spool.remove(folder)
    assert not folder.exists()


def test_an_upload_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = Upload(tmp_path, 3 << 20)
    upload.begin("a")
    with pytest.raises(TooLargeError, match="more than 3 MiB in one upload"):
        upload.write(b"x" * (4 << 20))
    upload.end()
    monkeypatch.setattr(spool, "MAX_FILES", 2)
    upload.begin("b")
    upload.end()
    with pytest.raises(InputError, match="more than 2 files"):
        upload.begin("c")
