"""The table of dumps: columns, groups by name and members, older attempts left out."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from diagnose.infer.collectives.table import Table, table
from diagnose.parse.flight_recorder import COMPLETED, Dump, read_dump
from tests.infer.dump_jobs import Call, Job, tables

SECOND = 10**9
NOW = 1_790_000_000 * SECOND


def small(members: list[int], name: str = "1") -> Job:
    groups = {"0": ("default_pg", members), name: ("TENSOR_GROUP", members)}
    return Job(groups, lambda _: [Call(name, line=7)] * 2)


def dump(rank: int, at: int = NOW, config: dict[str, Any] | None = None, **changes: Any) -> Dump:
    entry = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "profiling_name": "gloo:all_reduce",
        "time_created_ns": at,
        "input_sizes": [[4]],
        "output_sizes": [[4]],
        "state": "scheduled",
        "retired": False,
        "timeout_ms": 60_000,
        **changes,
    }
    content = {"version": "2.10", "pg_config": config or {}, "entries": [entry]}
    return read_dump(pickle.dumps(content, 2), f"_dump_{rank}")


def column(table: Table, name: str) -> list[Any]:
    return table.columns[name].tolist()


def groups(table: Table) -> list[str]:
    keys = [*table.groups]
    return [keys[number] for number in column(table, "group")]


def test_columns() -> None:
    whole = tables(small([0, 1]).files().items())
    row = {name: values[3].item() for name, values in whole.columns.items()}
    assert row.pop("time_created") > 0
    call, site = whole.calls[row.pop("call")], whole.sites[row.pop("site")]
    assert (call.op, call.size_in, call.size_out, call.dtype) == (
        "all_reduce", ((8,),), ((8,),), "Float",
    )  # fmt: skip
    assert site == "/app/train.py:7"
    group = [*whole.groups.values()][row.pop("group")]
    assert (group.key, group.desc, group.members) == ("1", "TENSOR_GROUP", (0, 1))
    assert row == {
        "rank": 1, "peer": -1, "seq": 2, "p2p": False, "state": COMPLETED, "retired": True,
        "record": 1, "timeout_ms": 600_000, "line": 0,
    }  # fmt: skip


def test_lines_of_a_log() -> None:
    log = dump(0)
    log.lines = np.array([17])
    assert table([log, dump(1)]).columns["line"].tolist() == [17, 0]


def test_frontiers_of_the_status() -> None:
    statuses = tables(small([0, 1]).files().items()).statuses
    assert [one for one in statuses if one[1] == "1"] == [(0, "1", 2, -1, 2), (1, "1", 2, -1, 2)]


def test_one_name_with_other_members_is_another_group() -> None:
    def config(ranks: str) -> dict[str, Any]:
        return {"0": {"name": "0", "desc": "split", "ranks": ranks}}

    pairs = [dump(r, config=config("[0, 1]" if r < 2 else "[2, 3]")) for r in range(4)]
    whole = table(pairs)
    assert groups(whole) == ["0[0,1]", "0[0,1]", "0[2,3]", "0[2,3]"]
    assert whole.groups["0[2,3]"].members == (2, 3)


def test_members_without_a_config_are_the_ranks_that_share_it() -> None:
    tensor = ("3", "undefined")
    dumps = [dump(r, process_group=tensor) for r in (1, 2)] + [dump(0)]
    whole = table(dumps, world=4)
    assert whole.groups["3"].members == (1, 2)
    assert not whole.groups["3"].listed
    assert whole.groups["0"].members == (0, 1, 2, 3)  # the default group has all ranks


def test_a_group_missing_in_a_rank_s_own_config_is_told_by_others() -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    whole = table([dump(0, config=config), dump(1)])
    assert groups(whole) == ["0", "0"]
    assert whole.groups["0"].members == (0, 1, 2)
    assert whole.world == 3


def test_peers_are_global_ranks() -> None:
    config = {"0": {"name": "0", "desc": "PIPE", "ranks": "[3, 7]"}}
    whole = table([dump(3, config=config, profiling_name="nccl:send 0->1", is_p2p=True)])
    assert [call.op for call in whole.calls] == ["send"]
    assert column(whole, "peer") == [7]


def test_an_older_attempt_is_left_out() -> None:
    whole = table([dump(0, NOW), dump(1, NOW + SECOND), dump(2, NOW - 400 * SECOND)])
    assert whole.files == {0: "_dump_0", 1: "_dump_1"}
    assert whole.notes == [
        "_dump_2 ignored: written before a restart, it ends 400 s before the others begin"
    ]
    kept = table([dump(0, NOW), dump(1, NOW + SECOND), dump(2, NOW - 50 * SECOND)])
    assert len(kept.files) == 3


def test_the_newest_of_two_dumps_of_a_rank() -> None:
    older, newer = dump(0, NOW), dump(0, NOW + SECOND)
    older.name = "old/_dump_0"
    whole: Table = table([newer, older])
    assert column(whole, "time_created") == [NOW + SECOND]
    assert whole.notes == ["old/_dump_0 ignored: _dump_0 is a newer dump of rank 0"]


def test_a_dump_without_a_rank_is_noted() -> None:
    lost = dump(0)
    lost.rank, lost.name = None, "dump"
    whole = table([lost])
    assert whole.notes == ["dump: the name contains no rank, so the dump is ignored"]
    assert whole.empty


def test_nothing_at_all() -> None:
    whole = table([])
    assert (whole.empty, whole.world, whole.files) == (True, 0, {})
