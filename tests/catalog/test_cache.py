"""The user's cache folder: never in the way."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose import files
from diagnose.catalog import cache, load


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "diagnose"


def test_what_is_kept_is_read_again_by_its_owner_only(home: Path) -> None:
    cache.keep("thing-1", b"data")
    assert cache.read("thing-1") == b"data"
    assert (home / "thing-1").stat().st_mode & 0o777 == 0o600
    assert cache.read("thing-2") is None


def used(path: Path, seconds_ago: float) -> None:
    then = time.time() - seconds_ago
    os.utime(path, (then, then))


def test_the_newest_few_of_a_kind_are_kept(home: Path) -> None:
    cache.keep("other-0", b"")
    for number in range(cache.KEPT + 2):
        cache.keep(f"thing-{number}", b"")
        used(home / f"thing-{number}", 100 - number)
    cache.keep("thing-9", b"")
    kept = [f"thing-{number}" for number in (3, 4, 5, 6, 7, 9)]
    assert sorted(path.name for path in home.iterdir()) == ["other-0", *kept]


def test_what_is_read_stays(home: Path) -> None:
    for number in range(cache.KEPT):
        cache.keep(f"thing-{number}", b"")
        used(home / f"thing-{number}", 100 - number)
    cache.read("thing-0")
    cache.keep("thing-9", b"")
    kept = [f"thing-{number}" for number in (0, 2, 3, 4, 5, 9)]
    assert sorted(path.name for path in home.iterdir()) == kept


def test_what_nobody_asked_for_in_a_while_is_removed(home: Path) -> None:
    """As what was made of the catalog of an older version."""
    for name in ("thing-old", "other-old", "thing-new"):
        cache.keep(name, b"")
    used(home / "thing-old", cache.UNUSED_S + 60)
    used(home / "other-old", cache.UNUSED_S + 60)
    used(home / "thing-new", cache.UNUSED_S - 60)
    cache.keep("thing-9", b"")
    assert sorted(path.name for path in home.iterdir()) == ["thing-9", "thing-new"]


def test_a_full_disk_leaves_nothing_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    cache.keep("thing-1", b"data")
    assert list(home.iterdir()) == []


def test_what_a_killed_process_left_is_removed_later(home: Path) -> None:
    home.mkdir()
    old, new = home / f".old{files.PARTIAL}", home / f".new{files.PARTIAL}"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    cache.keep("thing-1", b"data")
    assert sorted(path.name for path in home.iterdir()) == [new.name, "thing-1"]


def test_a_pipe_or_the_file_of_another_user_is_not_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.keep("thing-1", b"data")
    os.mkfifo(home / "thing-2")
    assert cache.read("thing-2") is None
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert cache.read("thing-1") is None


@pytest.mark.parametrize("old", [False, True], ids=["", "older platformdirs"])
def test_without_a_home_nothing_is_kept(
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
    monkeypatch.chdir(tmp_path)
    assert cache.folder() is None
    load._base.cache_clear()
    assert load.load_catalog().signatures
    assert list(tmp_path.iterdir()) == []
