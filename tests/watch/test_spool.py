"""What is kept of standard input."""

from __future__ import annotations

from pathlib import Path

from diagnose.watch.follow import Spool


def kept(pieces: list[bytes], head: int = 10, tail: int = 20) -> bytes:
    spool = Spool(head, tail)
    for piece in pieces:
        spool.add(piece)
    found = Path(spool.file()).read_bytes()
    folder = Path(spool.path).parent
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 2 * (head + tail) + 7
    spool.close()
    assert not folder.exists()
    return found


def test_a_short_stream_is_kept_whole() -> None:
    assert kept([b"0123456", b"789ab", b"cdefgh"]) == b"0123456789abcdefgh"


def test_of_a_long_one_the_start_and_the_end() -> None:
    assert kept([b"%04d\n" % number for number in range(100)]) == (
        b"0000\n0001\n\n[...]\n0096\n0097\n0098\n0099\n"
    )


def test_nothing() -> None:
    assert kept([]) == b""
