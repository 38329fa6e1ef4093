"""Lines are the same for any cuts, and bounded."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from diagnose.watch.follow import LIMIT, Lines

PIECES = st.lists(
    st.sampled_from(
        [b"a", b"step 1", b"\n", b"\r", b"\r\n", b"\x1b[31m", b"\x1b", b"[0m", b"x" * 9]
    ),
    max_size=40,
)


def whole(pieces: list[bytes]) -> list[bytes]:
    lines = Lines()
    data = b"".join(lines.feed(piece) for piece in pieces) + lines.feed(b"\n")
    return [line for line in data.replace(b"\r", b"\n").split(b"\n") if line]


@given(PIECES, st.lists(st.integers(0, 200), max_size=8))
def test_cuts_change_nothing(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    cut = [data[low:high] for low, high in itertools.pairwise(places)]
    assert whole(cut) == whole([data])


def test_what_is_not_ended_is_kept() -> None:
    lines = Lines()
    assert lines.feed(b"step 1") == b""
    assert lines.feed(b"2 loss 3\nstep") == b"step 12 loss 3\n"
    assert lines.feed(b" 13\r") == b"step 13\r"


def test_a_long_line_is_cut_however_it_comes() -> None:
    line = b"y" * (3 * LIMIT)
    at_once, lines = Lines().feed(line + b"\nnext\n"), Lines()
    in_parts = b"".join(lines.feed(line[at : at + 1000]) for at in range(0, len(line), 1000))
    assert len(lines.pending) == LIMIT
    in_parts += lines.feed(b"\nnext\n")
    assert at_once == in_parts == b"y" * LIMIT + b"\nnext\n"


def test_after_a_gap_the_first_line_is_left_out() -> None:
    lines = Lines()
    lines.feed(b"first ha")
    lines.skip()
    assert lines.feed(b"lf of another") == b""
    assert lines.feed(b" one\nwhole\n") == b"\nwhole\n"


def test_escape_codes_go() -> None:
    assert Lines().feed(b"\x1b[31mred\x1b[0m\n") == b"red\n"


def test_large_blocks_take_no_time_to_speak_of() -> None:
    block = (b"x" * 60_000 + b"\n") * 100  # quadratic work would take minutes
    assert Lines().feed(block) == block
