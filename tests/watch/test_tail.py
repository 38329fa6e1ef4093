"""A file is read on, whatever rotation makes of it."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.watch.follow import MAX_UNREAD, READ, Lines, Tail


def all_of(tail: Tail) -> bytes:
    found = b""
    while data := tail.read()[0]:
        found += data
    return found


def test_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"old\n")
    tail = Tail(str(path))
    tail.start(0)
    tail.read()
    assert not tail.grown()
    with path.open("ab") as file:
        file.write(b"new\n")
    assert tail.grown()
    assert tail.read() == (b"new\n", False)
    assert tail.read() == (b"", False)
    tail.close()


def test_rotation_by_rename_reads_the_old_file_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    tail = Tail(str(path))
    assert all_of(tail) == b"one\n"
    with path.open("ab") as file:
        file.write(b"two\n")
    path.rename(tmp_path / "a.log.1")
    path.write_bytes(b"three\n")
    assert tail.grown()
    assert all_of(tail) == b"two\nthree\n"
    tail.close()


def test_rotation_by_truncation(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one two three\n")
    tail = Tail(str(path))
    assert all_of(tail) == b"one two three\n"
    os.truncate(path, 0)
    path.write_bytes(b"four\n")
    assert all_of(tail) == b"four\n"
    tail.close()


def test_a_file_that_grew_past_its_old_size_after_truncation(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    tail = Tail(str(path))
    all_of(tail)
    path.write_bytes(b"two, which is longer\n")
    assert all_of(tail) == b"two, which is longer\n"
    tail.close()


def test_a_hole_is_no_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with path.open("wb", buffering=0) as file:
        file.write(b"one\n" * 20)
        tail = Tail(str(path))
        all_of(tail)
        os.truncate(path, 0)  # the writer does not append: it goes on where it was
        file.write(b"two\n")
    assert all_of(tail) == b"two\n"
    tail.close()


def test_what_grows_too_fast_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x\n")
    tail = Tail(str(path))
    all_of(tail)
    with path.open("ab") as file:
        file.write(b"y" * (MAX_UNREAD + READ))
    data, skipped = tail.read()
    assert (len(data), skipped) == (READ, True)
    assert tail.missed == MAX_UNREAD
    tail.close()


def test_a_file_that_is_not_there_is_silent(tmp_path: Path) -> None:
    tail = Tail(str(tmp_path / "later.log"))
    assert not tail.grown()
    assert tail.read() == (b"", False)
    (tmp_path / "later.log").write_bytes(b"now\n")
    assert all_of(tail) == b"now\n"
    tail.close()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.binary(min_size=1, max_size=6), st.sampled_from(["rename", "truncate"])),
        max_size=20,
    )
)
def test_no_line_is_lost_over_rotations(
    tmp_path_factory: object, actions: list[bytes | str]
) -> None:
    folder = tmp_path_factory.mktemp("rotated")  # type: ignore[attr-defined]
    path = folder / "a.log"
    path.write_bytes(b"")
    tail, lines, written, seen = Tail(str(path)), Lines(), b"", b""
    tail.start(0)
    for number, action in enumerate(actions):
        if isinstance(action, bytes):
            # Distinct, or a truncated file that begins alike would look as if it had not been.
            piece = b"%d:%s" % (number, action.translate(None, b"\0\r\x1b"))
            written += piece
            with path.open("ab") as file:
                file.write(piece)
            continue
        if action == "rename":
            path.rename(folder / f"a.log.{number}")
            path.write_bytes(b"")
            seen += lines.feed(all_of(tail))
        else:
            seen += lines.feed(all_of(tail))  # what is not read yet is gone with it
            os.truncate(path, 0)
            seen += lines.feed(all_of(tail))
    seen += lines.feed(all_of(tail)) + lines.feed(b"\n")
    assert seen == written + b"\n"
    tail.close()
