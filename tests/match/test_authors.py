"""Who wrote a line, by its bytes."""

from __future__ import annotations

import pytest

from diagnose.match.lines import author_of
from diagnose.match.rows import shape
from diagnose.match.shapes import ShapeTable

LINES = {
    b"step 12 loss 2.1": b"",
    b"step 12: loss 2.1": b"",
    b"iter_120: loss 2.1": b"",
    b"Loss: 2.1": b"",
    b"12:13:14 step 3": b"",
    b"2026-05-06 14:50:12,123 INFO step 3": b"",
    b"[rank3]: step 1": b"[rank3]:",
    b"[1,2]<stdout>:step 1": b"[1,2]<stdout>:",
    b"[default7]:step 1": b"[default7]:",
    b" 7: step 1": b" 7:",
    b"n1:22:33 [0] step": b"n1:22:33 [0]",
    b"(RayTrainWorker pid=12, ip=10.0.0.1) step 1": b"(RayTrainWorker pid=12, ip=10.0.0.1)",
    b"[pod/trainer-3/pytorch] step 1": b"[pod/trainer-3/pytorch]",
    b"[pod/trainer-3/pytorch] 2026-05-06T14:50:12Z step 1": b"[pod/trainer-3/pytorch]",
    b"worker-10  | step 1": b"worker-10  |",
    b"{trainer-3} step 1": b"{trainer-3}",
    b"(worker1, rank=1, pid=12) step 1": b"(worker1, rank=1, pid=12)",
    b"gpu07: step 1": b"gpu07:",
    b"[2026-05-06 14:50:12] [rank 3] step 12/40": b"rank 3",
    b"worker-3   | [2026-05-06 14:50:12] [rank 3] step 1": b"worker-3   |rank 3",
    b'{"ts": "2026-05-06", "rank": 31, "message": "step 1"}': b'rank": 31',
    b"2026-05-06T14:50:12Z gpu1 INFO rank=3 step 1": b"rank=3",
    b"2026-05-06 14:50:12\tgpu1:3\tolmo\tstep 1": b"\tgpu1:3\t",
}


@pytest.mark.parametrize(("line", "author"), LINES.items())
def test_author_is_what_a_line_says_of_itself(line: bytes, author: bytes) -> None:
    assert author_of(line) == author
    assert author_of(b"before\n" + line + b"\nrank 9", 7) == author
    shapes = ShapeTable(lambda _: ())
    assert shapes.author(b"before\n" + line, 7, shape(line)) == author


def test_a_rank_of_the_next_line_is_none_of_this_one() -> None:
    assert author_of(b"step 1\n[rank 3] step 1") == b""
    assert [*map(author_of, [b"7: a", b"c"])] == [b"7:", b""]


@pytest.mark.parametrize("word", [b"a1f", b"1f", b"a.", b"a-1_", b"[1", b"(pid=", b"a1: "])
def test_a_long_word_takes_the_time_of_its_length(word: bytes) -> None:
    """By square this would not come to its end."""
    line = b"a" + word * (1 << 20)
    assert author_of(line) in (b"", b"aa1: " + b"a1: " * 14 + b"a1:")
