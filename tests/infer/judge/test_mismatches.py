"""Which rank a stated mismatch accuses, where the lines tell it."""

from __future__ import annotations

import pytest

from diagnose.infer.judge.by_lines import stated_mismatches
from diagnose.timeline.event import Event
from tests.timeline.told import event


def line(mine: int, call: str, other: int, other_call: str) -> Event:
    """Rank `mine` compares itself with `other`; a call is "seq op shape"."""
    fields = {"rank": str(mine), "other_rank": str(other)}
    for prefix, said in (("", call), ("other_", other_call)):
        fields |= dict(
            zip((f"{prefix}seq", f"{prefix}op", f"{prefix}shape"), said.split(), strict=False)
        )
    return event(signal="mismatch", fields=fields)


GRADIENT, OBJECT, SMALL = "7 ALLREDUCE 1000", "7 BROADCAST 1", "7 ALLREDUCE 900"


@pytest.mark.parametrize(
    ("lines", "odd"),
    [
        ([line(0, GRADIENT, 3, SMALL), line(1, GRADIENT, 3, SMALL)], (3,)),
        ([line(rank, GRADIENT, odd, SMALL) for rank, odd in ((0, 3), (1, 4), (2, 3))], (3, 4)),
        ([line(1, GRADIENT, 0, OBJECT)], (0,)),
        ([line(0, GRADIENT, 1, OBJECT)], ()),
        ([line(1, GRADIENT, 0, SMALL)], ()),
        ([line(1, GRADIENT, 2, OBJECT)], ()),
        ([line(1, "101 ALLGATHER 1", 7, "0 REDUCE")], (7,)),
        ([line(1, "101 ALLGATHER 1", 7, "100 REDUCE 1")], ()),
    ],
    ids=[
        "the one in every complaint", "the minority", "rank 0 left the gradients",
        "another rank left them", "only the sizes differ", "without rank 0",
        "a rank that is not in the sequence", "a rank one call behind",
    ],
)  # fmt: skip
def test_the_odd_rank(lines: list[Event], odd: tuple[int, ...]) -> None:
    (stall,) = stated_mismatches(lines)
    assert (stall.kind, stall.ranks) == ("mismatched", odd)


def test_a_barrier_against_something_else_is_a_branch() -> None:
    (stall,) = stated_mismatches([line(1, GRADIENT, 2, "7 BARRIER 1")])
    assert (stall.kind, stall.sure) == ("conditional", True)


def test_nothing_told_is_no_stall() -> None:
    assert stated_mismatches([]) == []
