"""The groups of communicators that began, where no table of calls is needed for them."""

from __future__ import annotations

import pytest

from diagnose.infer.collectives.communicators import groups_of
from diagnose.infer.collectives.from_counters import dumps_of
from diagnose.infer.collectives.table import table
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.parse.nccl_inits import Inits


def inits(size: int, ranks: range, ready: range, comm: str = "0x8d") -> Inits:
    """What the init lines of these ranks tell, of which some completed."""
    read = Inits()
    for rank in ranks:
        line = (
            f"node1:{100 + rank}:7 [0] NCCL INFO ncclCommInitRank comm 0x90{rank} rank {rank} "
            f"nranks {size} cudaDev 0 nvmlDev 0 busId 1a000 commId {comm} - Init "
        )
        read.read(f"{line}START".encode(), rank + 1)
        if rank in ready:
            read.read(f"{line}COMPLETE".encode(), rank + 101)
    return read


class Log:
    name, rank, task = "job.log", None, None
    notes: list[str] = []  # noqa: RUF012


def told(*read: Inits) -> list[CommRank]:
    return [one for inits in read for one in inits.result(Log)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ranks",
    [
        told(inits(8, range(8), range(8))),
        told(inits(8, range(3), range(3))),
        told(inits(8, range(3), range(2))),
        told(inits(4, range(4), range(4)), inits(2, range(2), range(2), "0x9e")),
        told(inits(8, range(2), range(0))),
    ],
    ids=["all", "few", "few-of-them-begin", "two-groups", "none-ready"],
)
def test_the_groups_are_those_of_the_table(ranks: list[CommRank]) -> None:
    whole = table(dumps_of(ranks))
    assert whole.empty
    assert groups_of(ranks) == ([*whole.groups.values()], whole.world)


def test_where_others_wait_for_an_init_the_table_tells() -> None:
    ranks = told(inits(8, range(8), range(7)))
    assert not table(dumps_of(ranks)).empty
    assert groups_of(ranks) is None


def test_where_a_rank_made_a_call_the_table_tells() -> None:
    ranks = told(inits(2, range(2), range(2)))
    ranks[1].calls.append(CollCall(0, "all_reduce", 1, "Float", 9))
    assert groups_of(ranks) is None
