"""Streams in lines: they come out of a launcher mixed, prefixed, twice, or not at all."""

from __future__ import annotations

import io
import os
import pty
import random
import threading
from pathlib import Path

import pytest

from diagnose.collect.reach import frames
from diagnose.collect.reach.frames import PIECE, send, split

DATA = random.Random(7).randbytes(20 * PIECE + 5)


def lines_of(data: bytes, tmp_path: Path) -> list[bytes]:
    path = tmp_path / "lines"
    with path.open("wb") as out:
        send(out.fileno(), io.BytesIO(data))
    return path.read_bytes().splitlines(keepends=True)


def parts_of(lines: list[bytes]) -> tuple[list[tuple[bytes, int]], list[str]]:
    """What each stream came to, and how many of its pieces are missing."""
    text = io.BytesIO(b"".join(lines))
    parts, others = split(text)
    found = []
    for part in parts:
        out = io.BytesIO()
        part.copy(text, out)
        found.append((out.getvalue(), part.missing))
    return found, others


def test_a_line_is_what_it_says(tmp_path: Path) -> None:
    lines = lines_of(b"one piece", tmp_path)
    name = lines[0].split()[1]
    assert lines == [
        b"~D1 %b 0 %08x b25lIHBpZWNl~\r\n" % (name, frames._sum(name, 0, b"b25lIHBpZWNl")),
        b"~D1 %b 1 %08x #~\r\n" % (name, frames._sum(name, 1, b"#")),
    ]
    assert max(map(len, lines_of(DATA, tmp_path))) < 1000


@pytest.mark.parametrize("data", [b"", b"x", DATA, DATA[: 3 * PIECE]])
def test_what_is_sent_comes(data: bytes, tmp_path: Path) -> None:
    assert parts_of(lines_of(data, tmp_path)) == ([(data, 0)], [])


def test_mixed_prefixed_repeated_and_in_any_order(tmp_path: Path) -> None:
    one, two = lines_of(DATA, tmp_path), lines_of(DATA[::-1], tmp_path)
    mixed = [b"node%d: " % (n % 2) + line for n, line in enumerate([*one, *two, *one[:9]])]
    random.Random(3).shuffle(mixed)
    mixed.insert(4, b"Warning: Permanently added 'node1'\n")
    found, others = parts_of(mixed)
    assert sorted(found) == sorted([(DATA, 0), (DATA[::-1], 0)])
    assert others == ["Warning: Permanently added 'node1'"]


def test_a_line_cut_in_two_is_replaced_by_its_copy(tmp_path: Path) -> None:
    lines = lines_of(DATA, tmp_path)
    other = lines_of(b"other", tmp_path)
    cut = [*lines[:5], lines[5][:256], other[0], lines[5][256:], *lines[6:], *other[1:]]
    found, others = parts_of(cut)
    assert found == [(DATA[: 5 * PIECE], 1), (b"other", 0)]
    assert others == []
    assert parts_of([*cut, *lines]) == ([(DATA, 0), (b"other", 0)], [])


def test_lost_lines_are_counted_and_what_is_before_them_is_kept(tmp_path: Path) -> None:
    lines = lines_of(DATA, tmp_path)
    assert parts_of(lines[:3] + lines[5:]) == ([(DATA[: 3 * PIECE], 2)], [])
    # Without the last line nobody knows how many there are: one at least.
    assert parts_of(lines[:-1])[0] == [(DATA, 1)]
    assert parts_of(lines[-1:]) == ([(b"", 21)], [])


def test_a_line_that_was_changed_does_not_count(tmp_path: Path) -> None:
    lines = lines_of(DATA, tmp_path)
    lines[2] = lines[2].replace(lines[2][40:44], b"AAAA", 1)
    assert parts_of(lines)[0] == [(DATA[: 2 * PIECE], 1)]


def test_no_number_makes_a_huge_file() -> None:
    text = b"AAAA"
    name, number = b"00000000", frames.MAX_PIECES + 1
    line = b"~D1 %b %d %08x %b~\n" % (name, number, frames._sum(name, number, text), text)
    (part,), _ = split(io.BytesIO(line))
    assert (len(part.places), part.count, part.missing) == (0, None, 1)


def test_so_many_streams_and_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(frames, "MAX_STREAMS", 2)
    lines = [line for _ in range(3) for line in lines_of(b"x", tmp_path)]
    assert len(parts_of(lines)[0]) == 2


def test_pieces_of_a_line_are_no_message(tmp_path: Path) -> None:
    line = lines_of(DATA, tmp_path)[0]
    pieces = [line[:99] + b"\n", line[99:300] + b"\n", line[300:], b"mpirun: error\n", b"\n"]
    assert parts_of(pieces) == ([], ["mpirun: error"])


def read_all(fd: int, size: int, out: list[int]) -> bytes:
    """Read as a launcher does; the length of each read goes to `out`."""
    data = b""
    while True:
        try:
            piece = os.read(fd, size)
        except OSError:  # the other end of a terminal is closed
            break
        if not piece:
            break
        out.append(len(piece))
        data += piece
    return data


def test_through_a_pipe_each_line_is_taken_alone() -> None:
    mine, its = os.pipe()
    lengths: list[int] = []
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(read_all(mine, 65536, lengths)))
    reader.start()
    send(its, io.BytesIO(DATA))
    os.close(its)
    reader.join(10)
    os.close(mine)
    lines = found[0].splitlines(keepends=True)
    assert lengths == [len(line) for line in lines]
    assert parts_of(lines) == ([(DATA, 0)], [])


def test_a_reader_that_does_not_take_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "_PATIENCE_S", 0.01)
    mine, its = os.pipe()
    send(its, io.BytesIO(b"x" * PIECE * 3))
    os.close(its)
    assert parts_of([read_all(mine, 65536, [])])[0] == [(b"x" * PIECE * 3, 0)]
    os.close(mine)


def test_on_a_terminal_everything_comes_three_times_and_unchanged() -> None:
    mine, its = pty.openpty()
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(read_all(mine, 4096, [])))
    reader.start()
    send(its, io.BytesIO(DATA[: 3 * PIECE]))
    os.close(its)
    reader.join(10)
    os.close(mine)
    lines = found[0].splitlines(keepends=True)
    assert len(lines) == 3 * 4
    assert parts_of(lines) == ([(DATA[: 3 * PIECE], 0)], [])
