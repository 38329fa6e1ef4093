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


def name(kind: str, catalog: int) -> str:
    return f"{kind}-1-{catalog:016x}.hs"


def test_the_catalogs_used_last_are_kept(home: Path) -> None:
    for number in range(cache.KEPT + 2):
        cache.keep(name("thing", number), b"")
        used(home / name("thing", number), 100 - number)
    cache.keep(name("thing", 9), b"")
    kept = [name("thing", number) for number in (3, 4, 5, 6, 7, 9)]
    assert sorted(path.name for path in home.iterdir()) == kept


def test_what_is_of_one_catalog_stays_as_long_as_it_is_used(home: Path) -> None:
    """Its examples are asked for seldom, and are slow to make again."""
    for number in range(cache.KEPT):
        for kind in ("catalog", "examples"):
            cache.keep(name(kind, number), b"")
            used(home / name(kind, number), 100 - number)
    cache.read(name("catalog", 0))
    cache.keep(name("catalog", 9), b"")
    kept = {name(kind, number) for number in (0, 2, 3, 4, 5) for kind in ("catalog", "examples")}
    assert {path.name for path in home.iterdir()} == {*kept, name("catalog", 9)}


def test_what_nobody_asked_for_in_a_while_is_removed(home: Path) -> None:
    """As what was made of the catalog of an older version."""
    for number, age in ((1, cache.UNUSED_S + 60), (2, cache.UNUSED_S - 60)):
        cache.keep(name("catalog", number), b"")
        cache.keep(name("examples", number), b"")
        used(home / name("catalog", number), age)
        used(home / name("examples", number), 2 * cache.UNUSED_S)
    cache.keep(name("catalog", 9), b"")
    kept = [name("catalog", 2), name("catalog", 9), name("examples", 2)]
    assert sorted(path.name for path in home.iterdir()) == kept


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
