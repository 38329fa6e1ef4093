"""What is kept between runs: never in the way."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.catalog import load, stored
from diagnose.runtime import files


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "diagnose"


def sections(name: str) -> list[bytes]:
    return [found.section("a").tobytes() for found in stored.find(name)]


def test_what_is_kept_is_read_again_by_its_owner_only(home: Path) -> None:
    stored.keep("thing", {"a": b"data", "b": b"", "c": b"\n"})
    (found,) = stored.find("thing")
    assert [found.section(name).tobytes() for name in "abc"] == [b"data", b"", b"\n"]
    assert (home / "thing").stat().st_mode & 0o777 == 0o600
    assert list(stored.find("other")) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"[]\n", b"{}", b"{}\nx", b'{"a": 1}\n', b'{"a": [1]}\nx', b'{"a": [9, 0]}\n', b"\xff\n"],
)
def test_a_file_that_is_something_else_is_not_there(home: Path, data: bytes) -> None:
    home.mkdir()
    (home / "thing").write_bytes(data)
    assert list(stored.find("thing")) == []


def test_a_damaged_section_shows_when_it_is_asked_for(home: Path) -> None:
    stored.keep("thing", {"a": b"data", "b": b"whole"})
    (home / "thing").write_bytes((home / "thing").read_bytes().replace(b"data", b"date"))
    (found,) = stored.find("thing")
    assert found.section("b") == b"whole"
    for name in "ac":
        with pytest.raises(ValueError, match=f"{name}: damaged"):
            found.section(name)


def test_what_came_with_the_package_is_found_first(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PACKAGE", tmp_path)
    stored.keep("thing", {"a": b"mine"})
    stored.write(tmp_path, "thing", {"a": b"shipped"})
    assert sections("thing") == [b"shipped", b"mine"]


@pytest.mark.parametrize("cache", ["/proc/nobody", None], ids=["not writable", "no home"])
def test_without_a_cache_a_temporary_folder_of_the_user_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str | None
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(stored, "cache", lambda: cache and Path(cache))
    assert list(stored.find("thing")) == list(tmp_path.iterdir()) == []
    stored.keep("thing", {"a": b"data"})
    own = tmp_path / f"diagnose-{os.getuid()}"
    assert (own.stat().st_mode & 0o777, stored.writable()) == (0o700, own)
    assert sections("thing") == [b"data"]


def test_the_temporary_folder_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(stored, "cache", lambda: None)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"diagnose-{os.getuid()}").symlink_to(elsewhere)
    stored.keep("thing", {"a": b"data"})
    assert (list(elsewhere.iterdir()), stored.writable()) == ([], None)


def used(path: Path, seconds_ago: float) -> None:
    then = time.time() - seconds_ago
    os.utime(path, (then, then))


def test_the_files_used_last_are_kept(home: Path) -> None:
    for number in range(stored.MOST):
        stored.keep(f"thing-{number:02}", {})
        used(home / f"thing-{number:02}", 100 - number)
    assert len(list(stored.find("thing-00"))) == 1
    stored.keep("thing-99", {})
    assert {path.name for path in home.iterdir()} == {
        "thing-00", "thing-99", *(f"thing-{number:02}" for number in range(2, stored.MOST)),
    }  # fmt: skip


def test_what_nobody_asked_for_in_a_while_is_removed(home: Path) -> None:
    """As what was made of the catalog of an older version."""
    for number, age in ((1, stored.UNUSED_S + 60), (2, stored.UNUSED_S - 60)):
        stored.keep(f"thing-{number}", {})
        used(home / f"thing-{number}", age)
    stored.keep("thing-3", {})
    assert sorted(path.name for path in home.iterdir()) == ["thing-2", "thing-3"]


def test_a_full_disk_leaves_nothing_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.fdopen

    def full(fd: int, mode: str) -> Any:
        disk = os.open("/dev/full", os.O_WRONLY)
        os.dup2(disk, fd)
        os.close(disk)
        return opened(fd, mode)

    monkeypatch.setattr(os, "fdopen", full)
    stored.keep("thing", {"a": b"data"})
    assert list(home.iterdir()) == []


def test_what_a_killed_process_left_is_removed_later(home: Path) -> None:
    home.mkdir()
    old, new = home / f".old{files.PARTIAL}", home / f".new{files.PARTIAL}"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    stored.keep("thing", {})
    assert sorted(path.name for path in home.iterdir()) == [new.name, "thing"]


def test_a_pipe_or_the_file_of_another_user_is_not_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.keep("thing", {"a": b"data"})
    os.mkfifo(home / "pipe")
    assert list(stored.find("pipe")) == []
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert list(stored.find("thing")) == []


@pytest.mark.parametrize("old", [False, True], ids=["", "older platformdirs"])
def test_without_a_home_there_is_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """As in a container whose user has no entry in the table of users."""

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if old:
        monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"~/.cache/{name}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert stored.cache() is None
    load._base.cache_clear()
    assert load.load_catalog().signatures
    assert {path.name for path in tmp_path.iterdir()} <= {f"diagnose-{os.getuid()}"}
