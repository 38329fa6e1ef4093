"""Files are written as a whole or not at all; devices and pipes as they are."""

from __future__ import annotations

import errno
import io
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from diagnose.runtime import files
from diagnose.runtime.command import unfinished

DATA = b"<!doctype html>" * 10_000  # more than a pipe holds


@pytest.fixture
def umask() -> Any:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, umask: None) -> None:
    files.write(tmp_path / "a", DATA)
    files.replace(tmp_path / "b", DATA, private=True)
    assert [path.read_bytes() == DATA for path in sorted(tmp_path.iterdir())] == [True, True]
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"] == [0o640, 0o600]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o755])
def test_a_replaced_file_keeps_its_mode(tmp_path: Path, umask: None, mode: int) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(mode)
    before = target.stat().st_ino
    files.write(target, DATA)
    after = target.stat()
    assert (target.read_bytes(), stat.S_IMODE(after.st_mode)) == (DATA, mode)
    assert after.st_ino != before  # who reads the old one reads it to its end


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    os.chown(target, 1234, 5678)
    files.write(target, DATA)
    assert (target.stat().st_uid, target.stat().st_gid) == (1234, 5678)


def test_what_one_group_may_do_is_not_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, uid: int, gid: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(0o664)
    monkeypatch.setattr(os, "fchown", refuse)
    files.write(target, DATA)
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


def test_the_temporary_file_is_new_and_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    guessed = tmp_path / f".{bytes(8).hex()}{files.PARTIAL}"
    guessed.symlink_to(victim)
    with pytest.raises(FileExistsError):
        files.write(tmp_path / "a", DATA)
    assert victim.read_bytes() == b"kept"
    assert not (tmp_path / "a").exists()


def test_links_are_followed_and_stay(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    real = tmp_path / "deep" / "real"
    real.write_bytes(b"old")
    for name, target in (("link", real), ("dangling", tmp_path / "deep" / "new")):
        (tmp_path / name).symlink_to(target)
        files.write(tmp_path / name, DATA)
        assert (tmp_path / name).is_symlink()
        assert target.read_bytes() == DATA
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["new", "real"]


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    files.write(tmp_path / ("x" * 255), DATA)
    assert (tmp_path / ("x" * 255)).read_bytes() == DATA


def test_a_named_pipe_is_written_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    files.write(pipe, DATA)
    reader.join()
    assert got == [DATA]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_written_and_stays(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError:
        pytest.skip("devices are not permitted here")
    files.write(device, DATA)
    assert stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no /dev/fd")
def test_what_is_open_is_written_where_it_stands(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with target.open("wb", buffering=0) as out:
        out.write(b"first ")
        link = tmp_path / "stdout"
        link.symlink_to(f"/proc/self/fd/{out.fileno()}")
        for path in (Path(f"/dev/fd/{out.fileno()}"), link):
            files.write(path, b"page ")
        out.write(b"last")
    assert target.read_bytes() == b"first page page last"
    with pytest.raises(FileNotFoundError):
        files.write(Path(f"/dev/fd/{10**12}"), DATA)


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    files.write(Path(f"/dev/fd/{write}"), DATA)
    os.close(write)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/"), Path()):
        with pytest.raises(IsADirectoryError):
            files.write(path, DATA)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_what_was_there_stays_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")

    class Full(io.FileIO):
        def write(self, data: Any, /) -> int:
            if self.tell():
                raise error
            return super().write(data[:100])

    monkeypatch.setattr(os, "fdopen", lambda fd, mode: io.BufferedWriter(Full(fd, mode)))
    with pytest.raises(type(error)) as raised:
        files.write(target, DATA)
    assert getattr(raised.value, "filename", str(target)) == str(target)  # for who reads of it
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert target.read_bytes() == b"old"
    assert not unfinished


def test_what_is_being_written_is_known(tmp_path: Path) -> None:
    """So that an end at any moment leaves nothing behind."""
    with files.replacing(tmp_path / "a") as file:
        file.write(DATA)
        assert set(unfinished) == {str(path) for path in tmp_path.iterdir()} != set()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert not unfinished
