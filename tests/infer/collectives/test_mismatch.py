"""Alignment of one rank's calls with those of the others, and what may differ."""

from __future__ import annotations

import pytest

from diagnose.infer.collectives.mismatch import align, comparable, shown
from diagnose.parse.flight_recorder import Call


@pytest.mark.parametrize(
    ("mine", "others", "extra", "left", "agree"),
    [
        ("XABC", "ABC", 1, 0, 3),
        ("BCA", "ABCA", 0, 1, 3),
        ("XBC", "ABC", 1, 1, 2),
        ("XYABAB", "ABAB", 2, 0, 4),
        ("XAAA", "AAA", 1, 0, 3),
        ("XAA", "AAA", 1, 1, 2),  # as good as an extra call, but in step
        ("X", "A", 0, 0, 0),
        ("", "A", 0, 0, 0),
    ],
)
def testalign(mine: str, others: str, extra: int, left: int, agree: int) -> None:
    a, b = ([(letter,) for letter in text] for text in (mine, others))
    assert align(a, b) == (extra, left, agree)


def call(op: str, size_in: int, size_out: int, dtype: str = "Float") -> Call:
    return Call(op, "nccl", ((size_in,),), ((size_out,),), dtype)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (call("all_reduce", 4, 4), call("all_reduce", 4, 4), True),
        (call("all_reduce", 4, 4), call("all_reduce", 5, 5), False),
        (call("all_reduce", 4, 4), call("all_reduce", 4, 4, "Half"), False),
        (call("all_to_all", 4, 9), call("all_to_all", 5, 2), True),
        (call("alltoall_base", 4, 9), call("alltoall_base", 5, 2), True),
        (call("all_gather", 4, 9), call("all_gather", 5, 9), True),
        (call("all_gather", 4, 9), call("all_gather", 4, 8), False),
        (call("reduce_scatter", 4, 9), call("reduce_scatter", 4, 8), True),
        (call("_all_gather_base", 4, 8), call("_all_gather_base", 5, 10), False),
        (call("gather", 4, 8), call("gather", 4, 0), True),
        (call("broadcast", 4, 4), call("all_reduce", 4, 4), False),
    ],
)
def test_what_must_be_equal(first: Call, second: Call, same: bool) -> None:
    assert (comparable(first) == comparable(second)) is same


def test_shown() -> None:
    assert shown(call("all_reduce", 4, 4)) == "all_reduce [4] Float"
    assert shown(Call("barrier", "gloo", (), (), "")) == "barrier"
    many = Call("x", "nccl", ((1, 2), (3,), (4,), (5,)), (), "")
    assert shown(many) == "x [1, 2] [3] and 2 more"
