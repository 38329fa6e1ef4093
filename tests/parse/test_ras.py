from __future__ import annotations

import json
import re
from typing import Any

import pytest

from diagnose.infer.collectives.analyze import judge
from diagnose.infer.collectives.from_counters import dumps_of
from diagnose.infer.collectives.table import table
from diagnose.parse import ras_reports
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.parse.ras import RasComm, RasError, RasProcess, RasReport, is_ras, read_ras

HASH = "cf264af53edbe986"
COMM = "0x" + HASH
NODE = "172.16.64.21"

HEAD = """\
NCCL version 2.29.7 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      {nodes}          {each}            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         {nodes}         {each}  {size:>8}  {size:>8}   RUNNING  {errors}

"""
SIX_BEHIND = """\
Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210
  Rank 4 -- GPU 4 managed by process 483076 on node 172.16.64.210
  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210
  Rank 31 -- GPU 7 managed by process 483079 on node 172.16.64.213

"""


def text(body: str, size: int = 32, errors: str = "MISMATCH") -> str:
    nodes, each = (1, size) if size < 8 else (4, 8)
    return HEAD.format(nodes=nodes, each=each, size=size, errors=errors) + body


def behind(*counts: tuple[str, int, int]) -> str:
    """Rank 3 of 4 at its own count of an operation, the others at another."""
    lines = ["Warnings", "========", "", f"#0-0 ({HASH}) MISMATCH"]
    for op, own, others in counts:
        lines += [
            f"  Communicator ranks have different {op} operation counts",
            f"  3 ranks have launched up to operation {others}",
            f"  Rank 3 has launched up to operation {own} -- "
            "GPU 3 managed by process 103 on node a",
        ]
    return text("\n".join([*lines, "", ""]), 4)


def read(said: str | bytes) -> RasReport:
    return read_ras(said if isinstance(said, bytes) else said.encode(), "ras.txt")


def launched(report: RasReport) -> dict[int | None, int | None]:
    return {rank.comm_rank: rank.launched for rank in report.ranks}


def line_of(said: str, needle: str) -> int:
    return 1 + said[: said.index(needle)].count("\n")


def ops(report: RasReport) -> dict[int | None, list[tuple[int, str]]]:
    return {rank.comm_rank: [(c.seq, c.op) for c in rank.calls] for rank in report.ranks}


# Text ------------------------------------------------------------------------------------------


def test_unlisted_ranks_have_the_count_of_the_majority() -> None:
    said = text(SIX_BEHIND)
    report = read(said)
    assert not report.json
    assert report.communicators == [RasComm(COMM, 32)]
    late = {0, 2, 3, 4, 5, 31}
    assert launched(report) == {rank: 6650 - (rank in late) for rank in range(32)}
    first = CommRank(
        "ras.txt",
        line_of(said, "Rank 0 --"),
        COMM,
        0,
        32,
        host=f"{NODE}0",
        pid=483072,
        device=0,
        launched=6649,
        rank=0,
        world=32,
    )
    assert report.ranks[0] == first
    line = line_of(said, "Communicator ranks have")
    call = CollCall(6650, "", -1, "", line)
    assert report.ranks[1] == CommRank(
        "ras.txt", line, COMM, 1, 32, calls=[call], launched=6650, world=32
    )
    assert report.moving is None
    assert report.notes == [
        "only one RAS report: a difference of one may be in passing; take another one 5 s later"
    ]


def test_operations_are_told_where_the_counts_prove_them() -> None:
    report = read(behind(("AllReduce", 98, 100)))
    assert launched(report) == {0: 100, 1: 100, 2: 100, 3: 98}
    two = [(99, "all_reduce"), (100, "all_reduce")]
    assert ops(report) == {0: two, 1: two, 2: two, 3: []}
    assert report.ranks[3].pid == 103


def test_no_operation_where_several_are_lacking() -> None:
    report = read(behind(("AllReduce", 98, 100), ("AllGather", 49, 50)))
    assert launched(report) == {0: 150, 1: 150, 2: 150, 3: 147}
    assert ops(report) == {0: [], 1: [], 2: [], 3: []}


def test_one_operation_called_for_another() -> None:
    report = read(behind(("AllReduce", 99, 100), ("AllGather", 51, 50)))
    assert launched(report) == {0: 150, 1: 150, 2: 150, 3: 150}
    assert ops(report)[0] == [(150, "all_reduce")]
    assert ops(report)[3] == [(150, "all_gather")]
    assert report.notes[0] == (
        f"communicator {COMM}: not the same calls on all ranks: 3 launched more AllGather and less "
        "AllReduce than the others"
    )


def test_two_ranks_are_told_alone() -> None:
    body = f"""\
#0-0 ({HASH}) MISMATCH
  Communicator ranks have different Broadcast operation counts
  Rank 0 has launched up to operation 1 -- GPU 0 managed by process 7 on node a
  Rank 1 has not launched any operations -- GPUs 1,2 (NVML 5,6) managed by process 8 on node b
"""
    report = read(text(body, 2))
    assert launched(report) == {0: 1, 1: -1}
    assert report.ranks[1].device is None  # of several
    assert (report.ranks[1].host, report.ranks[1].pid) == ("b", 8)


def test_ranks_that_nobody_names_stay_unknown() -> None:
    body = f"""\
#0-0 ({HASH}) MISMATCH
  Communicator ranks have different AllReduce operation counts
  500 ranks have launched up to operation 10
  499 ranks have not launched any operations
  Rank 7 has launched up to operation 9 -- [process information not found]
"""
    report = read(text(body, 1000))
    assert launched(report) == {7: 9}
    assert report.notes[0] == (
        f"communicator {COMM}: RAS does not name these ranks: 500 at operation 10, 499 at "
        "operation 0 (ncclras -v names more)"
    )


def test_a_pasted_part_without_the_table() -> None:
    said = "NCCL version 2.25.1 compiled with CUDA 12.2\n" + SIX_BEHIND
    report = read(said)
    assert len(report.ranks) == 32
    assert report.ranks[0].size == 32


DEAD = f"""\
Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node {NODE}3 managing GPU 5

#0-0 ({HASH}) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 3 communication timeouts while gathering communicator data

#0-0 ({HASH}) MISMATCH
  Communicator ranks have different collective operation counts
  31 ranks have launched up to operation 7
"""


def test_dead_process_is_the_missing_rank() -> None:
    said = text(DEAD, errors="INCOMPLETE,MISMATCH")
    report = read(said)
    assert report.dead == [RasProcess(f"{NODE}3", 3487984, (5,))]
    assert report.missing == []
    assert report.communicators == [RasComm(COMM, 32)]
    line = line_of(said, "The missing rank")
    lost = CommRank(
        "ras.txt", line, COMM, 21, 32, host=f"{NODE}3", pid=3487984, device=5, gone=True,
        dead=True, rank=21, world=32,
    )  # fmt: skip
    assert report.ranks[21] == lost
    assert {rank.launched for rank in report.ranks if rank.comm_rank != 21} == {7}
    assert report.errors == [
        (
            line_of(said, "Encountered"),
            "Encountered 3 communication timeouts while gathering communicator data",
        )
    ]


def test_newer_reports_name_the_missing_rank_in_full() -> None:
    body = f"""\
INCOMPLETE
  Missing communicator data from 1 job process
  Process 12 on node {NODE}3 managing GPU 5

#0-0 ({HASH}) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 21 -- GPU 5 managed by process 12 on node {NODE}3
  Rank 22 -- GPU 6 managed by process 13 on node {NODE}3
"""
    report = read(text(body, errors="INCOMPLETE"))
    assert report.missing == [RasProcess(f"{NODE}3", 12, (5,))]
    assert [(rank.comm_rank, rank.pid, rank.gone) for rank in report.ranks] == [
        (21, 12, True),
        (22, 13, False),  # answers, only this communicator is not there
    ]


def test_dead_process_of_no_known_rank_stands_for_itself() -> None:
    report = read(text("DEAD\n  Process 9 on node b managing GPUs 0,2-3\n", errors="OK"))
    assert report.dead == [RasProcess("b", 9, (0, 2, 3))]
    assert report.ranks == [
        CommRank("ras.txt", 1, "", None, None, host="b", pid=9, gone=True, dead=True, world=32)
    ]


def test_errors_and_other_status() -> None:
    body = f"""\
#0-0 ({HASH}) ERROR
  Asynchronous error on 1 rank
  Rank 3 reported Remote process error -- GPU 3 managed by process 103 on node a

#0-0 ({HASH}) MISMATCH
  Communicator ranks have different status
  31 ranks have status RUNNING
  Rank 3 has status ABORT -- GPU 3 managed by process 103 on node a
"""
    said = text(body)
    report = read(said)
    assert report.errors == [
        (line_of(said, "Asynchronous"), "Asynchronous error on 1 rank"),
        (
            line_of(said, "Rank 3 reported"),
            "Rank 3 reported Remote process error -- GPU 3 managed by process 103 on node a",
        ),
        (
            line_of(said, "Rank 3 has"),
            "Rank 3 has status ABORT -- GPU 3 managed by process 103 on node a",
        ),
    ]
    assert report.ranks == []
    assert report.communicators == [RasComm(COMM, 32)]


def test_healthy() -> None:
    report = read(text("", errors="OK"))
    assert report.communicators == [RasComm("", 32)]
    assert (report.ranks, report.errors, report.notes) == ([], [], [])


# Several reports -------------------------------------------------------------------------------


def loop(*reports: tuple[str, str]) -> str:
    return "".join(f"{stamp}\n{report}" for stamp, report in reports)


def test_constant_difference_is_stuck() -> None:
    report = read(
        loop(
            ("Fri Nov 21 16:06:00 UTC 2026", behind(("AllReduce", 99, 100))),
            ("Fri Nov 21 16:06:30 UTC 2026", behind(("AllReduce", 99, 100))),
        )
    )
    assert report.snapshots == 2
    assert report.moving is False
    assert report.timestamp == "Nov 21 16:06:30 UTC 2026"
    assert launched(report) == {0: 100, 1: 100, 2: 100, 3: 99}
    assert report.notes == []


def test_counts_of_ranks_that_nobody_names_tell_whether_any_moved() -> None:
    def half(count: int) -> str:
        body = f"""\
#0-0 ({HASH}) MISMATCH
  Communicator ranks have different AllReduce operation counts
  2 ranks have launched up to operation {count + 1}
  2 ranks have launched up to operation {count}
"""
        return text(body, 4)

    assert read(half(9) + half(9)).moving is False
    assert read(half(9) + half(12)).moving is True
    assert read(half(9)).moving is None


def test_passing_difference_blames_nobody() -> None:
    report = read(
        loop(
            ("2026-11-21 16:06:00", behind(("AllReduce", 99, 100))),
            ("2026-11-21 16:06:30", behind(("AllReduce", 149, 150))),
        )
    )
    assert report.moving is True
    assert launched(report) == dict.fromkeys(range(4), 149)


def test_who_stands_still_while_others_go_on_is_stuck() -> None:
    report = read(behind(("AllReduce", 99, 100)) + behind(("AllReduce", 99, 104)))
    assert report.moving is True
    assert launched(report) == {0: 104, 1: 104, 2: 104, 3: 99}


def test_differences_that_went_away() -> None:
    report = read(behind(("AllReduce", 99, 100)) + text("", 4, "OK"))
    assert report.moving is True
    assert report.ranks == []


def test_reports_too_close_in_time() -> None:
    early = ("2026-11-21 16:05:00", behind(("AllReduce", 98, 100)))
    close = ("2026-11-21 16:06:00", behind(("AllReduce", 99, 100)))
    last = ("2026-11-21 16:06:02", behind(("AllReduce", 99, 100)))
    assert read(loop(close, last)).notes == [
        "the RAS reports lie less than 5 s apart: differences may be in passing"
    ]
    report = read(loop(early, close, last))  # the early one is the one to compare with
    assert report.notes == []
    assert report.moving is True


def test_monitor_lines() -> None:
    said = """\
[2025-12-19 13:07:00] PEER_UNRESPONSIVE: Process 1524346 on node 172.16.64.245 managing GPU 2
[2025-12-19 13:07:07] PEER_DEAD: Process 1524345 on node 172.16.64.245 managing GPU 1 (NVML 3) gone
[2025-12-19 13:07:08] PEER_DEAD: Process 1524346 on node 172.16.64.245 managing GPU 2
[2025-12-19 13:07:09] PEER_RECOVERED: Process 1524346 on node 172.16.64.245 managing GPU 2
"""
    assert is_ras(said.encode())
    report = read(said)
    assert report.dead == [RasProcess("172.16.64.245", 1524345, (1,))]
    assert report.ranks == [
        CommRank(
            "ras.txt",
            2,
            "",
            None,
            None,
            host="172.16.64.245",
            pid=1524345,
            device=1,
            gone=True,
            dead=True,
        )
    ]


def test_a_process_that_died_after_the_report() -> None:
    said = behind(("AllReduce", 99, 100))
    said += "[2025-12-19 13:07:07] PEER_DEAD: Process 103 on node a managing GPU 3\n"
    report = read(said)
    assert [rank.comm_rank for rank in report.ranks if rank.gone] == [3]
    assert len(report.ranks) == 4


# JSON ------------------------------------------------------------------------------------------


def rank_json(rank: int, counts: dict[str, int], **status: Any) -> dict[str, Any]:
    flags = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False}
    return {
        "rank": rank, "host": f"{NODE}0", "pid": 100 + rank, "cuda_dev": rank, "nvml_dev": rank,
        "status": {**flags, "abort_flag": False, **status}, "collective_counts": counts,
    }  # fmt: skip


def missing_json(rank: int, unresponsive: bool, dead: bool) -> dict[str, Any]:
    return {
        "rank": rank, "host": f"{NODE}0", "pid": 100 + rank, "cuda_dev": rank, "nvml_dev": rank,
        "status": {"unresponsive": unresponsive, "considered_dead": dead},
    }  # fmt: skip


def job_json(
    ranks: list[dict[str, Any]], missing: list[dict[str, Any]], stamp: str = "2026-11-21 16:06:00"
) -> str:
    comm = {
        "hash": COMM, "secondary_hash": "0x1:0x2", "size": len(ranks) + len(missing),
        "ranks_count": len(ranks), "missing_ranks_count": len(missing),
        "ranks": ranks, "missing_ranks": missing,
    }  # fmt: skip
    document = {
        "nccl_version": "2.28.9", "cuda_runtime_version": 12090, "cuda_driver_version": 13000,
        "timestamp": stamp, "communicators_count": 1, "communicators": [comm],
        "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"


def counts(reduced: int, gathered: int = 40) -> dict[str, int]:
    return {"Broadcast": 2, "AllGather": gathered, "AllReduce": reduced}


ONE_LATE = [rank_json(0, counts(10)), rank_json(1, counts(10)), rank_json(2, counts(8))]


def test_json() -> None:
    said = job_json(ONE_LATE, [missing_json(3, True, False), missing_json(4, False, True)])
    report = read(said)
    assert report.json
    assert report.timestamp == "2026-11-21 16:06:00"
    assert report.communicators == [RasComm(COMM, 5)]
    line = line_of(said, '"rank": 0')
    two = [CollCall(seq, "all_reduce", -1, "", line) for seq in (51, 52)]
    assert report.ranks[0] == CommRank(
        "ras.txt", line, COMM, 0, 5, host=f"{NODE}0", pid=100, device=0, calls=two, launched=52,
        world=5,
    )  # fmt: skip
    assert launched(report) == {0: 52, 1: 52, 2: 50, 3: None, 4: None}
    assert [rank.gone for rank in report.ranks] == [False, False, False, True, True]
    assert [rank.line for rank in report.ranks] == [
        line_of(said, f'"rank": {rank}') for rank in range(5)
    ]
    assert report.dead == [RasProcess(f"{NODE}0", 104, (4,))]
    assert report.missing == [RasProcess(f"{NODE}0", 103, (3,))]


def test_json_of_2_28_9_lacks_a_comma() -> None:
    whole = job_json(ONE_LATE, [missing_json(3, False, True), missing_json(4, False, True)])
    ranks, missing = whole.split('"missing_ranks"')
    broken = f'{ranks}"missing_ranks"' + re.sub(r'("nvml_dev": \d),', r"\1", missing)
    assert whole.count(",") - broken.count(",") == 2
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken)
    assert read(broken) == read(whole)


def test_json_constant_difference_and_movement() -> None:
    early = job_json(ONE_LATE, [], "2026-11-21 16:05:00")
    assert read(early + job_json(ONE_LATE, [])).moving is False
    assert launched(read(early + job_json(ONE_LATE, []))) == {0: 52, 1: 52, 2: 50}
    later = [rank_json(0, counts(15)), rank_json(1, counts(14)), rank_json(2, counts(8))]
    report = read(early.rstrip() + job_json(later, []))  # without a line between them
    assert report.moving is True
    assert launched(report) == {0: 56, 1: 56, 2: 50}


def test_json_all_launched_and_nothing_moves() -> None:
    same = [rank_json(rank, counts(10)) for rank in range(3)]
    report = read(job_json(same, [], "2026-11-21 16:05:00") + job_json(same, []))
    assert report.moving is False
    assert launched(report) == {0: 52, 1: 52, 2: 52}


def test_json_crossed_calls() -> None:
    ranks = [rank_json(0, counts(10)), rank_json(1, counts(10)), rank_json(2, counts(9, 41))]
    assert ops(read(job_json(ranks, []))) == {
        0: [(52, "all_reduce")],
        1: [(52, "all_reduce")],
        2: [(52, "all_gather")],
    }


def test_json_errors_and_status() -> None:
    ranks = [
        rank_json(0, counts(10)),
        rank_json(1, counts(10), async_error=6),
        rank_json(2, counts(10), abort_flag=True),
    ]
    report = read(job_json(ranks, []))
    assert report.communicators == [RasComm(COMM, 3)]
    assert report.errors == [(report.ranks[1].line, f"rank 1 of {COMM}: async_error 6")]


def test_json_cut_off() -> None:
    whole = job_json(ONE_LATE, [])
    cut = whole[: whole.index('"rank": 2') + 60]
    report = read(cut)
    assert launched(report) == {0: 52, 1: 52}
    assert "the report is cut off: its last ranks are missing" in report.notes
    assert launched(read(whole + cut)) == {0: 52, 1: 52, 2: 50}  # the whole one is preferred


def test_json_of_monitor_mode() -> None:
    peer = {"host": "172.16.64.245", "pid": 9, "cuda_devs": [1, 2], "nvml_devs": [1, 2]}
    event = {
        "timestamp": "2025-12-19 13:07:07", "group": "LIFECYCLE", "event": "PEER_DEAD",
        "peer": peer, "details": "",
    }  # fmt: skip
    said = json.dumps({**event, "event": "PEER_NEW"}) + "\n" + json.dumps(event, indent=2) + "\n"
    assert is_ras(said.encode())
    report = read(said)
    assert report.dead == [RasProcess("172.16.64.245", 9, (1, 2))]
    assert report.ranks[0].line == 2


def test_same_hash_twice() -> None:
    document = json.loads(job_json(ONE_LATE, []))
    document["communicators"].append({**document["communicators"][0], "secondary_hash": "0x3:0x4"})
    report = read(json.dumps(document))
    assert [comm.hash for comm in report.communicators] == [COMM, f"{COMM}/0x3:0x4"]


# Not to be read --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (text(SIX_BEHIND), True),
        (text(SIX_BEHIND).replace("\n", "\r\n"), True),
        ("Every 2.0s: ncclras   login1: Fri Nov 21 16:06:00 2026\n\n" + text(""), True),
        (job_json([], []), True),
        ('{"nccl_version": "2.28.9", "pg_config": {}, "entries": []}', False),
        ("node1:1:2 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n", False),
        ("the tool said: NCCL version 2.29.7 compiled with CUDA 12.9\n", False),
        ("", False),
    ],
)
def test_is_ras(head: str, known: bool) -> None:
    assert is_ras(head.encode()) is known


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nothing of it\n",
        b'{"nccl_version": "2.28.9"',
        b"[" * 100_000,
        b'{"communicators": ' * 100_000,
        b'{\n"communicators":\n' * 1000,
        b"\xff\x00" * 1000,
    ],
)
def test_no_report(data: bytes) -> None:
    with pytest.raises(RasError) as error:
        read(data)
    assert str(error.value).startswith("ras.txt: ")
    assert "\n" not in str(error.value)


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RasError, match="refused: 67,108,865 bytes"):
        read(b" " * (64 * 2**20 + 1))
    with pytest.raises(RasError, match="too many containers"):
        read(b"{" + b"[]" * 1_000_001)
    monkeypatch.setattr(ras_reports, "MAX_RANKS", 1000)
    many = f"#0-0 ({HASH}) INCOMPLETE\n" + "  The missing ranks: 0-999999999\n" * 10
    assert len(read(text(many, 1_000_000_000)).ranks) == 1000
    quiet = text(SIX_BEHIND.replace("26 ranks", "999999994 ranks"), 1_000_000_000)
    assert set(launched(read(quiet))) == {0, 2, 3, 4, 5, 31}
    monkeypatch.setattr(ras_reports, "MAX_RANKS", 2)
    report = read(job_json(ONE_LATE, []))
    assert launched(report) == {0: 52, 1: 52}
    assert "more than 2 ranks: the others are left out" in report.notes


@pytest.mark.parametrize("value", [None, True, -1, 1.5, "1", [], {}, 1 << 70])
@pytest.mark.parametrize("key", ["rank", "host", "pid", "cuda_dev", "status", "collective_counts"])
def test_odd_values(key: str, value: object) -> None:
    ranks = [rank_json(0, counts(10)), {**rank_json(1, counts(9)), key: value}]
    report = read(job_json(ranks, [{**missing_json(2, True, True), key: value}]))
    assert report.ranks[0].launched == 52


@pytest.mark.parametrize("value", [1 << 44, (1 << 62) - 1, 1 << 63, 10**40])
def test_an_absurd_count_is_not_told(value: int) -> None:
    report = read(job_json([*ONE_LATE, rank_json(3, counts(value))], []))
    assert launched(report) == {0: 52, 1: 52, 2: 50, 3: None}
    verdict = judge(table(dumps_of(report.ranks)))
    assert verdict is not None
    assert verdict.ranks == (2,)


@pytest.mark.parametrize("number", [1 << 18, 10**9 - 1, 10**40])
def test_an_absurd_rank_or_size_is_left_out(number: int) -> None:
    ranks = [rank_json(0, counts(10)), rank_json(1, counts(9)), rank_json(number, counts(9))]
    said = job_json(ranks, []).replace('"size": 3', f'"size": {number + 1}')
    report = read(said)
    assert launched(report) == {0: 52, 1: 51}
    assert {rank.size for rank in report.ranks} == {None}
    assert {dump.rank for dump in dumps_of(report.ranks)} <= {0, 1}


def test_absurd_counts_of_text() -> None:
    huge = 10**18 - 1
    report = read(behind(*((f"Op{number}", huge - 1, huge) for number in range(12))))
    assert set(launched(report).values()) == {None}
    assert [len(dump) for dump in dumps_of(report.ranks)] == [0] * 4


# To the verdict --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        (behind(("AllReduce", 98, 100)), ("stuck_host", (3,), "all_reduce", 99)),
        (
            behind(("AllReduce", 99, 100), ("AllGather", 51, 50)),
            ("mismatched", (3,), "all_reduce", 150),
        ),
        (text(DEAD, errors="INCOMPLETE,MISMATCH"), ("missing", (21,), "collective", 7)),
        (job_json(ONE_LATE, []), ("stuck_host", (2,), "all_reduce", 51)),
        (behind(("AllReduce", 99, 100)) + behind(("AllReduce", 149, 150)), None),
        (job_json([rank_json(rank, counts(10)) for rank in range(3)], []), None),
    ],
    ids=["behind", "crossed", "dead", "json", "moving", "equal"],
)
def test_verdict(said: str, blamed: tuple[str, tuple[int, ...], str, int] | None) -> None:
    verdict = judge(table(dumps_of(read(said).ranks)))
    told = verdict and (verdict.kind, verdict.ranks, verdict.op, verdict.seq)
    assert told == blamed
