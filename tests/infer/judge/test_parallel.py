"""Who is to blame in jobs with several process groups, by what each rank says of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.infer.judge.lines import stalls
from diagnose.infer.judge.standing import Members, members_of
from diagnose.infer.judge.verdict import Op, Verdict
from diagnose.timeline.event import Timeline

from ..rows import step
from .test_lines import frontier, wait

SHARD, REPLICATE = 4, 2


def in_group(rank: int, group: str, place: int, desc: str = "", **more: Any) -> dict[str, Any]:
    fields = {"group_rank": str(place)} | ({"group_desc": desc} if desc else {})
    return wait(rank, group=group, fields=fields, **more)


def hsdp(culprit: int) -> list[dict[str, Any]]:
    """Two shard groups of four: one lacks the culprit, all others wait in the job's all-reduce."""
    rows = []
    for rank in range(SHARD * REPLICATE):
        shard = rank // SHARD
        if rank == culprit:
            continue
        if shard == culprit // SHARD:
            call = {"op": "_ALLGATHER_BASE", "size": 8, "size_out": 32, "seq": 771}
            rows.append(in_group(rank, str(1 + shard), rank % SHARD, "mesh_shard", **call))
        else:
            rows.append(in_group(rank, "0", rank, "default_pg", seq=771))
    return rows


def first(make: Any, world: int | None, *rows: dict[str, Any]) -> Verdict:
    return stalls(make(*rows), world)[0]


@pytest.mark.parametrize("culprit", [0, 3, 5, 7])
@pytest.mark.parametrize("world", [8, None])
def test_who_waits_in_another_group_is_a_victim(make: Any, culprit: int, world: int | None) -> None:
    if world is None and culprit == 7:
        return  # nothing shows that there is such a rank
    stall = first(make, world, *hsdp(culprit))
    assert (stall.kind, stall.missing, stall.ranks) == ("missing", (culprit,), (culprit,))
    shard = culprit // SHARD
    others = tuple(r for r in range(shard * SHARD, (shard + 1) * SHARD) if r != culprit)
    found = (stall.op, stall.seq, stall.group, stall.joined)
    assert found == ("_ALLGATHER_BASE", 771, str(1 + shard), others)


def test_who_never_came_and_waits_only_where_all_have_come_is_to_blame(make: Any) -> None:
    """Rank 1 left out a call of its group and went on to the next one of the job."""
    lacking = [in_group(r, "1", r, "ep", op="REDUCE", seq=12) for r in (0, 2, 3)]
    everybody = [in_group(r, "0", r, "default_pg", seq=3) for r in range(8)]
    stall = first(make, 8, *lacking, *everybody)
    assert (stall.kind, stall.ranks) == ("mismatched", (1,))
    assert stall.why == (
        "rank 1 waits in ALLREDUCE of 1,000 elements (SeqNum 3), and others wait for it elsewhere"
    )


def test_a_circle_of_waits_is_broken_by_the_one_rank_that_all_need(make: Any) -> None:
    """Rank 3 is at the end of its data, the others are in a group of all but the default one."""
    rows = [in_group(r, "1", r, "dp", seq=9) for r in range(3)]
    rows += [in_group(3, "0", 3, "default_pg", op="ALLGATHER", size=4, seq=2)]
    rows += [{"rank": 3, "kind": "progress", "step": 5}]
    stall = first(make, 4, *rows)
    assert (stall.missing or stall.ranks) == (3,)


def test_two_pairs_that_wait_for_each_other_accuse_nobody(make: Any) -> None:
    rows = [in_group(r, "1", r, "dp", seq=9) for r in (0, 1)]
    rows += [in_group(r, "0", r, "default_pg", seq=2) for r in (2, 3)]
    stall = first(make, 4, *rows)
    assert (stall.missing, stall.ranks) == ((), ())


def test_equal_numbers_of_different_groups_prove_nothing(make: Any) -> None:
    rows = [in_group(r, "1", r, "tp", seq=7) for r in (0, 1)]
    rows += [in_group(r, "2", r - 2, "tp", seq=7, op="BROADCAST") for r in (2, 3)]
    stall = first(make, 4, *rows)
    assert (stall.kind, stall.ranks) == ("unclear", ())


def test_a_whole_silent_node_is_named_and_a_part_of_one_is_not(make: Any) -> None:
    hosts = {"host": "a"}
    rows = [wait(rank, host=f"n{rank // 4}") for rank in range(16) if rank // 4 != 2]
    node = first(make, 16, *rows)
    assert (node.missing, node.sure) == ((8, 9, 10, 11), True)
    part = first(make, 16, *[row for row in rows if row["rank"] != 12])
    assert (part.missing, part.sure) == ((8, 9, 10, 11, 12), False), hosts


def test_a_block_of_silent_ranks_is_a_node_where_nothing_tells_how_large_nodes_are(
    make: Any,
) -> None:
    block = first(make, 64, *[wait(rank) for rank in range(64) if rank // 4 != 10])
    assert (block.missing, block.sure) == ((40, 41, 42, 43), True)
    across = first(make, 64, *[wait(rank) for rank in range(64) if (rank - 2) // 4 != 10])
    assert (across.missing, across.sure) == ((42, 43, 44, 45), False), "of two nodes"
    pair = first(make, 8, *[wait(rank) for rank in range(8) if rank // 2 != 1])
    assert (pair.missing, pair.sure) == ((2, 3), False), "two left out at random, as likely"


def test_half_of_a_job_is_a_node_if_it_had_a_log(make: Any) -> None:
    waits = [wait(rank) for rank in range(8, 16)]
    assert first(make, 16, *waits).kind == "unclear", "the log of the other node may be lost"
    there = first(make, 16, step(3) | {"rank": 0}, *waits)
    assert (there.missing, there.sure) == (tuple(range(8)), True)
    small = first(make, 4, step(3) | {"rank": 2}, wait(0), wait(1))
    assert not small.sure, "two of four are left out at random as well"


def test_a_node_without_any_file_where_each_has_its_own_may_not_have_been_collected(
    make: Any,
) -> None:
    """Whether the node is gone or nobody fetched its logs, nothing tells."""
    waits = [wait(rank, source=f"rank{rank}.log") for rank in range(32) if rank // 8 != 2]
    lost = first(make, 32, *waits)
    assert (lost.missing, lost.sure) == (tuple(range(16, 24)), False)
    wrote = step(1) | {"rank": 16, "source": "rank16.log"}
    assert first(make, 32, wrote, *waits).sure
    empty = Timeline(make(*waits).events, silent={f"rank{rank}.log" for rank in range(16, 24)})
    assert stalls(empty, 32)[0].sure, "its files are there, without a line"


def test_of_the_silent_ranks_who_ended_by_itself_is_missing(make: Any) -> None:
    """A launcher stops the neighbours of a killed rank before they can say that they wait."""
    waits = [wait(rank) for rank in range(4)]
    ends = [
        {
            "kind": "exit",
            "signal": "exit",
            "role": "effect",
            "rank": rank,
            "fields": {"exitcode": c},
        }
        for rank, c in ((4, "-15"), (5, "-9"), (6, "-15"))
    ]
    stall = first(make, 8, *waits, *ends)
    assert (stall.missing, stall.sure) == ((5,), True)
    named = {"kind": "exit", "signal": "exit", "role": "effect", "rank": 6}
    code = {"kind": "exit", "signal": "exit", "role": "effect", "fields": {"exitcode": "1"}}
    stall = first(make, 8, *waits, named, code)
    assert (stall.missing, stall.sure) == ((6,), True), "mpirun tells the code a line below"


def test_a_status_line_names_the_group_of_the_wait_before_it(make: Any) -> None:
    """Two waits of one number: the status lines behind them come in any order."""

    def status(rank: int, group: str, desc: str) -> dict[str, Any]:
        more = {"group": group, "seq": 7}
        row = frontier(rank, 7, 6, **more)
        return row | {"fields": row["fields"] | {"group_desc": desc, "group_rank": "0"}}

    told = [wait(0, size=5), status(0, "4", "dp")]
    both = [wait(1, size=5), wait(1, size=9), status(1, "0", "default_pg"), status(1, "5", "dp")]
    (stall,) = stalls(make(*told, *both), 2)
    waits = {(w.rank, w.group, w.size_in) for w in stall.waits.values()}
    assert waits <= {(0, "4", 5), (1, "5", 5), (1, "0", 9)}


def test_the_status_line_that_is_left_is_that_of_the_call_that_nobody_else_makes(
    make: Any,
) -> None:
    """One rank calls another size in its group: no other rank tells in which group that is."""

    def status(rank: int, group: str) -> dict[str, Any]:
        return frontier(rank, 7, 6, group=group, seq=7)

    rows = [row for r in (0, 1, 2) for row in (wait(r, size=5), status(r, "4"))]
    rows += [wait(4, size=1), status(4, "0")]
    odd = [wait(3, size=9), wait(3, size=1), status(3, "0"), status(3, "4")]
    stall = first(make, 5, *rows, *odd)
    assert (stall.kind, stall.ranks, stall.sure) == ("mismatched", (3,), True)


def test_a_rank_whose_device_has_not_started_is_who_the_others_wait_for(make: Any) -> None:
    """Only where torch records times does the status tell what the devices have begun."""

    def waiting(rank: int, started: int) -> list[dict[str, Any]]:
        row = frontier(rank, 7, 6, group="0", seq=7)
        return [wait(rank, group="0"), row | {"fields": row["fields"] | {"started": str(started)}}]

    rows = [row for r in range(4) for row in waiting(r, 6 if r == 2 else 7)]
    stall = first(make, 4, *rows)
    assert (stall.kind, stall.ranks) == ("mismatched", (2,))
    untimed = first(make, 4, *[row for r in range(4) for row in waiting(r, -1)])
    assert (untimed.kind, untimed.ranks) == ("all_joined", ())


def test_who_is_alone_at_the_number_of_a_gather_that_lacks_one_is_odd(make: Any) -> None:
    """Old torch names no groups; a gather tells by its sizes how many ranks take part."""
    rows = [wait(r, seq=4, size=1) for r in range(8)]
    rows += [wait(r, seq=8, op="_ALLGATHER_BASE", size=8, size_out=32) for r in (8, 9, 11)]
    stall = first(make, None, *rows, wait(10, seq=8, size=4096))
    assert (stall.kind, stall.ranks, stall.sure) == ("mismatched", (10,), False)
    assert stall.why == (
        "rank 10 alone waits in ALLREDUCE where a group lacks one of its members in another call "
        "of SeqNum 8"
    )
    two = [wait(10, seq=8, size=4096), wait(12, seq=8, size=64)]
    assert first(make, None, *rows, *two).ranks == (), "either of them may be the one"
    elsewhere = wait(10, seq=9, size=4096)
    assert first(make, None, *rows, elsewhere).ranks == (), "a number of another group"


def test_the_lone_rank_with_another_count_of_calls_called_one_more(make: Any) -> None:
    rows = [row for r in range(4) for row in (wait(r, group="0"), frontier(r, 7, 6, group="0"))]
    rows[-1] = frontier(3, 8, 6, group="0")
    stall = first(make, 4, *rows)
    assert (stall.kind, stall.ranks) == ("mismatched", (3,))
    assert stall.why == "rank 3 had enqueued 8 calls of the group, all others 7"


# --------------------------------------------------------------------------- members of groups


def waits_of(*places: tuple[int, int], op: str = "ALLREDUCE", out: int = 4) -> list[Op]:
    return [
        Op(rank, 1, op, 4, out, None, None, rank, "g", place, None, "dp") for place, rank in places
    ]


def members(groups: dict[str, list[Op]], world: int | None) -> dict[str, Members]:
    waits = [wait._replace(group=name) for name, own in groups.items() for wait in own]
    return members_of(waits, world)


@pytest.mark.parametrize(
    ("groups", "world", "sizes"),
    [
        ({"a": waits_of((0, 4), (3, 7)), "b": waits_of((0, 0), (2, 2))}, 8, {"a": 4, "b": 4}),
        ({"a": waits_of((0, 1), (2, 33))}, 64, {"a": 4}),
        ({"a": waits_of((0, 0), (1, 2)), "b": waits_of((0, 1), (1, 3))}, None, {"a": None}),
        ({"a": waits_of((0, 0), (1, 2), op="_ALLGATHER_BASE", out=12)}, None, {"a": 3}),
        ({"a": waits_of((0, 0)), "b": waits_of((0, 1))}, 6, {"a": 3, "b": 3}),
        ({"a": waits_of((0, 5), (1, 3))}, 8, {"a": None}),
    ],
    ids=["next block", "whole job", "unknown", "gather", "firsts", "no grid"],
)  # fmt: skip
def test_members_follow_from_numbers_at_equal_distances(
    groups: dict[str, list[Op]], world: int | None, sizes: dict[str, int | None]
) -> None:
    found = members(groups, world)
    assert {name: found[name].size for name in sizes} == sizes
    assert all(len(found[name].ranks) == size for name, size in sizes.items() if size)


def test_a_size_that_could_be_another_is_no_certain_one() -> None:
    """Blocks that begin at 8 and 24 may be of four or eight ranks."""
    groups = {"a": waits_of((0, 8), (3, 11)), "b": waits_of((1, 25), (2, 26))}
    found = members(groups, 32)
    assert (found["a"].size, found["a"].certain) == (4, False)


def test_a_number_in_the_logs_of_two_nodes_is_that_inside_groups(tmp_path: Path) -> None:
    """torch 1.13 prints the number of a rank in its group: whose is missing may be printed as 0."""
    line = (
        "[E ProcessGroupNCCL.cpp:821] [Rank {}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={}, OpType=ALLREDUCE, Timeout(ms)=600000) ran for {} milliseconds before "
        "timing out."
    )
    first = [line.format(rank, 3, 600_100 + rank) for rank in range(8)]
    second = [line.format(rank, 3, 600_100 + rank) for rank in range(9, 16)]
    for number, named in ((8, [8]), (0, [])):
        own = [line.format(number, 4, 600_950)]
        for name, lines in (("node_0.log", first), ("node_1.log", [*own, *second])):
            (tmp_path / name).write_text("\n".join(["world_size: 16", *lines]) + "\n")
        found = diagnose.diagnose(diagnose.load(tmp_path))
        assert found.culprits.ranks == named


def described(rank: int, group: str, desc: str) -> dict[str, Any]:
    row = frontier(rank, 7, 6, group=group, seq=7)
    return row | {"fields": row["fields"] | {"group_desc": desc, "group_rank": "0"}}


def test_a_status_line_of_which_the_wait_was_lost_is_not_that_of_another_wait(make: Any) -> None:
    rows = [
        row
        for rank in range(6)
        for row in (
            wait(rank, size=1), described(rank, "0", "default_pg"),
            wait(rank, size=9), described(rank, str(4 + rank // 2), "dp"),
        )
    ]  # fmt: skip
    lost = [wait(6, size=1), described(6, "7", "dp")]
    whole = [
        wait(7, size=1), described(7, "0", "default_pg"), wait(7, size=9), described(7, "7", "dp"),
    ]  # fmt: skip
    (stall,) = stalls(make(*rows, *lost, *whole), 8)
    groups = {rank: waits.group for rank, waits in stall.waits.items()}
    assert groups == {rank: None if rank == 6 else "0" for rank in range(8)}


def test_a_group_of_which_a_rank_states_its_call_is_none_of_its_other_calls(make: Any) -> None:
    rows = [row for r in range(3) for row in (wait(r, size=1), described(r, "0", "default_pg"))]
    lost = [described(3, "0", "default_pg"), wait(3, size=9), wait(3, size=1, group="0")]
    (stall,) = stalls(make(*rows, *lost), 4)
    assert not stall.ranks
