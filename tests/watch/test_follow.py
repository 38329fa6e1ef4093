"""Which files are followed, and what is read of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.watch import follow as following
from diagnose.watch import run as waking
from diagnose.watch.follow import Follow, logs
from diagnose.watch.run import Stop, Wake


class Clock:
    """Looks of a Follow at times that pass."""

    def __init__(self, *paths: Path) -> None:
        self.follow = Follow([str(path) for path in paths])
        self.now = 1000.0

    def history(self) -> dict[str, bytes]:
        return self.told(self.follow.history(self.now))

    def look(self, seconds: float = 10.0, *changed: Path) -> dict[str, bytes]:
        self.now += seconds
        return self.told(self.follow.look(self.now, {str(path) for path in changed}))

    def told(self, found: object) -> dict[str, bytes]:
        blocks: dict[str, bytes] = {}
        for stream, block in found:  # type: ignore[attr-defined]
            blocks[stream.memory.name] = blocks.get(stream.memory.name, b"") + block
        return blocks


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_files_grow_and_new_ones_appear(tmp_path: Path) -> None:
    add(tmp_path / "rank_0.log", b"old\n")
    clock = Clock(tmp_path)
    assert clock.history() == {"rank_0.log": b"old\n"}
    assert clock.look() == {}
    add(tmp_path / "rank_0.log", b"new\nhal")
    (tmp_path / "attempt_1").mkdir()
    add(tmp_path / "attempt_1" / "rank_1.log", b"hello\n")
    assert clock.look() == {"rank_0.log": b"new\n", "attempt_1/rank_1.log": b"hello\n"}
    add(tmp_path / "rank_0.log", b"f\n")
    assert clock.look(0.25) == {"rank_0.log": b"half\n"}
    clock.follow.close()


def test_a_new_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    clock.history()
    add(tmp_path / "a.log", b"one\n")
    found = clock.look() | clock.look()
    assert found == {"a.log": b"one\n"}
    clock.follow.close()


def test_what_is_no_log_is_left_out(tmp_path: Path) -> None:
    for name in ("train.py", ".hidden.log", "old.log.gz", "a.log", "weights.bin", "core"):
        add(tmp_path / name, b"\x7fELF\0\1\2\3" * 50 if name == "core" else b"text\n")
    (tmp_path / "link.log").symlink_to(tmp_path / "a.log")
    os.mkfifo(tmp_path / "pipe.log")
    clock = Clock(tmp_path)
    assert clock.history() == {"a.log": b"text\n"}
    assert len(clock.follow) == 1
    clock.look()
    assert len(clock.follow) == 1
    clock.follow.close()


def test_a_file_that_is_named_is_followed_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    clock = Clock(path)
    assert clock.history() == {}
    add(path, b"step 1\n")
    clock.look()
    add(path, b"step 2\n")
    assert clock.look() == {"notes.md": b"step 2\n"}
    clock.follow.close()


def test_of_a_large_file_the_end_is_read(tmp_path: Path) -> None:
    add(tmp_path / "a.log", b"x" * 99 + b"\n" + b"0123456789\n" * 400_000)
    clock = Clock(tmp_path)
    found = clock.history()["a.log"]
    assert 0 < len(found) <= following.MOST
    assert found.lstrip(b"\n").startswith(b"0123456789\n")
    clock.follow.close()


def test_rotation_by_rename(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    add(path, b"one\n")
    clock = Clock(tmp_path)
    clock.history()
    path.rename(tmp_path / "a.log.1")
    add(tmp_path / "a.log.1", b"two\n")
    add(path, b"three\n")
    assert [clock.look() for _ in range(4)] == [
        {"a.log": b"two\n"}, {"a.log": b"three\n"}, {}, {},
    ]  # fmt: skip
    add(tmp_path / "a.log.1", b"of a writer that has not noticed\n")
    assert clock.look() == {"a.log.1": b"of a writer that has not noticed\n"}
    clock.follow.close()


def test_the_copy_that_rotation_leaves_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    add(path, b"step 1\nstep 2\n")
    clock = Clock(tmp_path)
    clock.history()
    (tmp_path / "a.log.1").write_bytes(path.read_bytes())
    os.truncate(path, 0)
    found = clock.look()
    add(path, b"step 3\n")
    for _ in range(3):
        found |= clock.look()
    assert found == {"a.log": b"step 3\n"}
    clock.follow.close()


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    add(tmp_path / "a.log", b"one\n")
    clock = Clock(tmp_path)
    clock.history()
    (tmp_path / "a.log").unlink()
    for _ in range(8):
        clock.look(20)
    assert len(clock.follow) == 0


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_FILES", 3)
    for number in range(5):
        add(tmp_path / f"{number}.log", b"one\n")
    clock = Clock(tmp_path)
    clock.history()
    assert len(clock.follow) == 3
    assert clock.follow.notes == ["more than 3 files: those that grew least lately are left out"]
    clock.follow.close()


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(["b", "a", "c"]))
def test_the_order_of_files_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, order: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("order")
    clock = Clock(folder)
    clock.history()
    for name in order:
        add(folder / f"{name}.log", f"of {name}\n".encode())
    found = clock.look() | clock.look()
    assert list(found) == ["a.log", "b.log", "c.log"]
    clock.follow.close()


def test_names_are_relative_to_what_paths_share(tmp_path: Path) -> None:
    for name in ("one/a.log", "two/a.log"):
        (tmp_path / name).parent.mkdir()
        add(tmp_path / name, b"x\n")
    found = logs([str(tmp_path / "one"), str(tmp_path / "two" / "a.log")])
    assert [one.name for one in found] == ["one/a.log", "two/a.log"]


def waited(wake: Wake, seconds: float, act: Callable[[], object]) -> tuple[set[str], float]:
    timer = threading.Timer(0.1, act)
    timer.start()
    begin = time.monotonic()
    found = wake.wait(seconds)
    timer.join()
    return found, time.monotonic() - begin


def test_events_wake(tmp_path: Path) -> None:
    wake = Wake([str(tmp_path)], Stop())
    wake.wait(0.05)
    found: set[str] = set()
    for number in range(20):
        found, _ = waited(wake, 1.0, lambda number=number: add(tmp_path / f"{number}.log", b"x"))
        if found:
            break
    assert [Path(path).suffix for path in found] == [".log"]


def test_without_events_time_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "_changes", lambda *_given: None)
    wake = Wake([str(tmp_path)], Stop())
    found, seconds = waited(wake, 0.3, lambda: add(tmp_path / "a.log", b"x"))
    assert found == set()
    assert seconds >= 0.29


def test_a_stop_ends_all_waiting(tmp_path: Path) -> None:
    stop = Stop()
    _, seconds = waited(Wake([], stop), 30.0, stop.set)
    assert seconds < 10
    assert stop.is_set()
    assert stop.wait(30.0)
    stop.close()
