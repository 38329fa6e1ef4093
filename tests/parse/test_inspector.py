from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from diagnose.infer.collectives.analyze import judge
from diagnose.infer.collectives.from_counters import dumps_of
from diagnose.infer.collectives.table import table
from diagnose.parse.comm_rank import CommRank
from diagnose.parse.inspector import MAX_COMMS, is_inspector, read_inspector

ID = "0x7f8c496ae9f661"


def record(
    op: str = "AllReduce", sn: int = 1, rank: int = 2, comm: str = ID, **perf: Any
) -> dict[str, Any]:
    return {
        "header": {"id": comm, "rank": rank, "n_ranks": 8, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": 1748030377748202,
            "hostname": "node-1",
            "pid": 1639453,
        },
        "coll_perf": {
            "coll": op,
            "coll_sn": sn,
            "coll_msg_size_bytes": 17179869184,
            "coll_exec_time_us": 61974,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 277.210914,
            "coll_busbw_gbs": 485.119099,
            **perf,
        },
    }


def line(*args: Any, **kwargs: Any) -> bytes:
    return json.dumps(record(*args, **kwargs), separators=(",", ":")).encode() + b"\n"


def done(chunks: Iterable[bytes]) -> list[int | None]:
    return [rank.completed for rank in read_inspector(chunks, "f.log")]


def test_last_number_per_communicator_and_rank() -> None:
    lines = [line(sn=sn) for sn in range(1, 1408)] + [line(sn=9, comm="0x00ab", rank=0)]
    host: dict[str, Any] = {"host": "node-1", "pid": 1639453}
    assert read_inspector(lines, "f.log") == [
        CommRank("f.log", 1407, ID, 2, 8, completed=1407, **host),
        CommRank("f.log", 1408, "0xab", 0, 8, completed=9, **host),
    ]


def test_every_operation_has_its_own_numbers() -> None:
    lines = [
        line(op, sn) for sn in range(1, 101) for op in ("AllGather", "ReduceScatter", "AllReduce")
    ]
    assert done(lines) == [300]
    assert done(lines[:-1]) == [299]


def test_one_counter_for_all_operations() -> None:
    lines = [line(("AllGather", "ReduceScatter")[sn % 2], sn) for sn in range(1, 101)]
    assert done(lines) == [100]


def test_any_pieces_give_the_same() -> None:
    data = b"".join(line(op, sn) for sn in range(1, 20) for op in ("AllGather", "AllReduce"))
    whole = read_inspector([data], "f.log")
    assert whole[0].completed == 38
    for size in (1, 7, 400, 4096):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert read_inspector(pieces, "f.log") == whole
    assert read_inspector(data.splitlines(keepends=True), "f.log") == whole


def test_cut_and_damaged_lines_are_passed_over() -> None:
    last = line(sn=4)
    for cut in range(1, len(last) - 100):
        assert done([line(sn=3), last[:cut]]) == [3]
    damaged = [b"\xff\x00{\n", line(sn=7)[40:], b"{}\n", b"[]\n", b'{"coll_perf":{}}\n']
    assert done([*damaged, line(sn=3), *damaged]) == [3]
    assert read_inspector([], "f.log") == []


def test_sends_are_not_counted() -> None:
    sent = record(sn=1)
    del sent["coll_perf"]
    sent["p2p_perf"] = {"p2p": "Send", "p2p_peer": 1, "p2p_sn": 50, "p2p_msg_size_bytes": 8}
    assert done([line(sn=3), json.dumps(sent).encode() + b"\n"]) == [3]


def test_other_order_of_keys_and_blanks() -> None:
    said = record(sn=5)
    turned = {key: dict(reversed(said[key].items())) for key in reversed(said)}
    ranks = read_inspector([json.dumps(turned).encode() + b"\n"], "f.log")
    assert ranks == read_inspector([line(sn=5)], "f.log")
    assert ranks == read_inspector([json.dumps(said).encode() + b"\n"], "f.log")
    assert ranks[0].host == "node-1"


def test_traces_of_events_do_not_disturb() -> None:
    trace = {"coll_start_sn": 1, "coll_stop_sn": 9, "kernel_events": [{"channel_id": 0}] * 20}
    assert done([line(sn=5, event_trace_sn=trace)]) == [5]


@pytest.mark.parametrize("key", ["coll", "coll_sn"])
@pytest.mark.parametrize("value", [None, True, -1, "x y", [], {}, 10**30, float("nan")])
def test_odd_values(key: str, value: object) -> None:
    ranks = read_inspector([line(sn=3), line(rank=7, **{key: value}), b"\n"], "f.log")
    assert (ranks[0].comm_rank, ranks[0].completed) == (2, 3)


@pytest.mark.parametrize("changed", [{"sn": 1 << 44}, {"sn": 10**18 - 1}, {"rank": 1 << 19}])
@pytest.mark.parametrize("reordered", [False, True])
def test_absurd_numbers_are_passed_over(changed: dict[str, int], reordered: bool) -> None:
    said = record(**changed)  # type: ignore[arg-type]
    if reordered:
        said["header"] = dict(reversed(said["header"].items()))
    lines = [line(sn=3), json.dumps(said).encode() + b"\n", line("AllGather", sn=2)]
    assert [(one.comm_rank, one.completed) for one in read_inspector(lines, "f.log")] == [(2, 5)]


def test_bounds() -> None:
    overlong = b'{"header":' + b" " * (1 << 21) + b"\n"
    pieces = [overlong[at : at + 65_536] for at in range(0, len(overlong), 65_536)]
    ranks = read_inspector([*pieces, line(sn=3)], "f.log")
    assert [(rank.completed, rank.line) for rank in ranks] == [(3, 2)]
    many = (line(comm=f"0x{number:x}") for number in range(MAX_COMMS + 10))
    assert len(read_inspector(many, "f.log")) == MAX_COMMS


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (line(), True),
        (json.dumps(record()).encode(), True),
        (json.dumps(record(), indent=2).encode(), True),
        (b'{"header":{"id":"0x1","rank":2}}', False),
        (b'{"version": "2.10", "entries": []}', False),
        (b"", False),
    ],
)
def test_is_inspector(head: bytes, known: bool) -> None:
    assert is_inspector(head[:4096]) is known


def test_verdict() -> None:
    ranks: list[CommRank] = []
    for rank in range(8):
        lines = [line(sn=sn, rank=rank) for sn in range(1, 99 if rank == 5 else 100)]
        own = b"".join(lines).replace(b"1639453", str(1000 + rank).encode())
        ranks += read_inspector([own], f"process_{rank}.log")
    verdict = judge(table(dumps_of(ranks)))
    assert verdict is not None
    assert (verdict.ranks, verdict.seq) == ((5,), 99)
