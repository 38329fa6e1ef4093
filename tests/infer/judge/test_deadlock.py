"""Deadlocks between process groups, by what each rank says of its own."""

from __future__ import annotations

from typing import Any

import pytest

import diagnose
from diagnose.infer.judge.deadlock import crossing
from diagnose.infer.judge.verdict import Op

from .test_parallel import first, in_group

WATCHDOG = (
    "[rank{rank}]:[E203 04:15:00.1 ProcessGroupNCCL.cpp:685] [PG ID {id} PG GUID {id}({group}) "
    "Rank {place}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
    "OpType={op}, NumelIn=1000, NumelOut={out}, Timeout(ms)=600000) ran for 600010 "
    "milliseconds before timing out.\n"
)


def test_groups_ranks_and_calls_are_named_and_nobody_is_to_blame(make: Any) -> None:
    rows = [in_group(r, "0", r, "default_pg", seq=2) for r in (0, 1)]
    rows += [in_group(r, "dp", r, "dp", seq=9, op="ALLGATHER", size_out=4000) for r in (2, 3)]
    stall = first(make, 4, *rows)
    assert (stall.kind, stall.ranks, stall.suspects) == ("deadlock", (), (0, 1, 2, 3))
    assert stall.why == (
        "ranks 0-1 wait in ALLREDUCE of 1,000 elements (SeqNum 2) of group default_pg for ranks "
        "2-3, which wait in ALLGATHER of 1,000 elements (SeqNum 9) of group dp for ranks 0-1: "
        "they entered these groups in different orders, or one of them left a call out"
    )


def test_the_verdict_says_how_it_comes_to_an_end() -> None:
    log = "world_size: 4\n"
    for rank in (0, 1):
        log += WATCHDOG.format(
            rank=rank, id=0, group="default_pg", place=rank, seq=2, op="ALLREDUCE", out=1000
        )
    for rank in (2, 3):
        log += WATCHDOG.format(
            rank=rank, id=1, group="ep", place=rank, seq=9, op="_ALLGATHER_BASE", out=4000
        )
    result = diagnose.diagnose(diagnose.load_text(log))
    cause = result.root_cause
    assert (result.verdict, cause.cause, cause.confidence) == ("hung", "desync.deadlock", "medium")
    assert result.culprits.ranks == []
    why = "they entered these groups in different orders, or one of them left a call out"
    assert why in cause.summary
    assert any("in one order on every rank" in step.do for step in result.remedies)
    assert result.longer_timeout_helps == "no"


@pytest.mark.parametrize(
    "changed",
    [{"group": None}, {"p2p": True}, {"group": "a"}],
    ids=["no name", "a send", "one group"],
)
def test_a_circle_in_one_group_or_of_sends_is_no_deadlock_between_groups(
    changed: dict[str, Any],
) -> None:
    ops = {0: Op(0, 3, "ALLREDUCE", group="a"), 1: Op(1, 5, "ALLREDUCE", group="b")}
    found = crossing({rank: [op] for rank, op in ops.items()}, (0, 1))
    assert found is not None
    assert found.ranks == (0, 1)
    ops[1] = ops[1]._replace(**changed)
    assert crossing({rank: [op] for rank, op in ops.items()}, (0, 1)) is None
    assert crossing({0: [ops[0]]}, (0, 1)) is None


def test_of_many_groups_the_first_are_shown() -> None:
    heads = {rank: [Op(rank, 1, "BARRIER", group=str(rank))] for rank in range(5)}
    found = crossing(heads, range(5))
    assert found is not None
    assert found.in_words(lambda op: f"group {op.group}") == (
        "rank 0 waits in group 0, rank 1 waits in group 1, rank 2 waits in group 2 and others in "
        "2 more groups, each for another one: they entered these groups in different orders, "
        "or one of them left a call out"
    )
