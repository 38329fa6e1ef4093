"""What a command writes, and how wide."""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest
from rich.console import Console

from diagnose.cli import output as console
from diagnose.cli.output import Color
from diagnose.errors import InputError
from diagnose.runtime.command import width
from diagnose.runtime.files import write_text


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> os.terminal_size:
        raise OSError(25, "Inappropriate ioctl for device")

    monkeypatch.setattr(os, "get_terminal_size", refuse)


@pytest.mark.parametrize(
    ("columns", "width"),
    [
        ("0", 80), ("-3", 80), ("", 80), ("wide", 80), ("²", 80), ("9" * 5000, 80),
        ("1", 20), ("72", 72), (" 72 ", 72), ("99999999999", 1000),
    ],
)  # fmt: skip
def test_columns(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    no_terminal: None,
    columns: str,
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "²")
    seen = []

    def draw(screen: Console) -> None:
        seen.append(screen.width)
        screen.print("answer")

    console.show(Color.never, draw)
    assert seen == [width]
    assert capsys.readouterr().out == "answer\n"


def test_the_first_stream_that_is_a_terminal_tells_the_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    sizes = {1: OSError(), 2: os.terminal_size((0, 0)), 0: os.terminal_size((132, 50))}

    def size(fd: int) -> os.terminal_size:
        found = sizes[fd]
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(os, "get_terminal_size", size)
    assert width() == 132


def test_a_file_that_cannot_be_written_is_told_on_one_line(tmp_path: Path) -> None:
    for target, why in (
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "page.html", "no such file or directory"),
        (tmp_path / ("x" * 256), "file name too long"),
    ):
        with pytest.raises(InputError) as caught:
            write_text(target, "page")
        assert str(caught.value) == f"cannot write {target}: {why}"


def test_text_that_utf_8_does_not_know_is_written(tmp_path: Path) -> None:
    write_text(tmp_path / "page.html", "a\udcffb")
    assert (tmp_path / "page.html").read_bytes() == b"a?b"


def test_a_reader_is_gone_only_where_a_pipe_is_closed() -> None:
    kept = os.dup(1)
    try:
        read, write = os.pipe()
        os.dup2(write, 1)
        os.close(write)
        seen = [console.reader_is_gone()]
        os.close(read)
        seen.append(console.reader_is_gone())
        main, other = pty.openpty()
        os.dup2(other, 1)
        seen.append(console.reader_is_gone())
        os.close(1)
        seen.append(console.reader_is_gone())
    finally:
        os.dup2(kept, 1)
        for fd in (kept, main, other):
            os.close(fd)
    assert seen == [False, True, False, False]
