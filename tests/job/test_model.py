"""A job: what follows from its sources, worked out when it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import diagnose
from diagnose.job.model import Job
from diagnose.timeline.frame import frame_of

LOG = """\
[rank0]: ***** Running training *****
[rank0]:[E602 08:25:12.1234567 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, \
Timeout(ms)=600000) ran for 600001 milliseconds before timing out.
[rank0]:[E602 08:25:12.1234567 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 0] \
Exception (either an error or timeout) detected by watchdog at work: 7, last enqueued NCCL work: \
9, last completed NCCL work: 6.
[rank1]: ValueError: bad batch
"""


def test_the_rank_table() -> None:
    progress = "2026-06-02 08:0{0}:00 [rank{1}]: iteration {2}/ 100 | loss: 1.0\n"
    log = progress.format(0, 0, 5) + progress.format(1, 0, 6) + LOG
    log += (
        "  host      : node1\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 4242)\n"
    )  # fmt: skip
    table = diagnose.load_text(log).ranks
    assert list(table.columns) == [
        "host", "pid", "first_time", "last_time", "last_step", "last_phase", "enqueued",
        "completed", "exit", "log_present",
    ]  # fmt: skip
    assert table.index.name == "rank"
    assert table.index.tolist() == [0, 1]
    assert table.loc[0, ["last_step", "enqueued", "completed"]].tolist() == [6, 9, 6]
    assert table.loc[0, "first_time"] == pd.Timestamp("2026-06-02 08:00:00")
    assert table.loc[0, "last_time"] == pd.Timestamp("2026-06-02 08:25:12")
    assert (pd.isna(table.loc[0, "exit"]), table.loc[1, "exit"]) == (True, 1)
    assert table.loc[1, "pid"] == 4242


def test_events_are_made_once_and_the_frame_of_them() -> None:
    job = diagnose.load_text(LOG)
    assert job.events is job.events
    assert job.timeline is job.timeline
    assert job.ranks is job.ranks
    pd.testing.assert_frame_equal(job.timeline, frame_of(job.events))


def test_the_verdict_needs_no_frame() -> None:
    job = diagnose.load_text(LOG)
    diagnose.diagnose(job)
    assert "events" in vars(job)
    assert not {"timeline", "ranks"} & set(vars(job))


INIT = (
    "n1:10{0}:7 [{0}] NCCL INFO ncclCommInitRank comm 0x9{0} rank {0} nranks 2 cudaDev {0} "
    "nvmlDev {0} busId 1a000 commId 0xee - Init COMPLETE\n"
)
CALL = (
    "n1:10{0}:7 [{0}] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f00 recvbuff 0x7f10 count 9 "
    "datatype 7 op 0 root 0 comm 0x9{0} [nranks=2] stream 0x5500\n"
)


@pytest.mark.parametrize("calls", ["", CALL.format(0)])
def test_communicators_make_groups_and_their_calls_a_table(calls: str) -> None:
    job = diagnose.load_text("starting\n" + INIT.format(0) + INIT.format(1) + calls)
    groups, world = job.groups
    assert [group.members for group in groups] == [(0, 1)]
    assert world == 2
    assert (job.collectives is not None) == bool(calls)
    assert job.scans[0].comm_ranks[0].line == (4 if calls else 2)


@pytest.mark.slow
def test_a_paste_in_which_communicators_begin_needs_no_numpy() -> None:
    code = (
        "import sys, diagnose; diagnose.diagnose(diagnose.load_text(sys.argv[1])); "
        "print('numpy' in sys.modules)"
    )
    for text, needed in ((LOG + INIT.format(0), "False\n"), (LOG + CALL.format(0), "True\n")):
        done = subprocess.run(
            [sys.executable, "-c", code, text], capture_output=True, text=True, check=True
        )
        assert done.stdout == needed


def test_a_log_alone_tells_of_no_table_no_clocks_and_no_stacks() -> None:
    job = diagnose.load_text(LOG)
    assert (job.collectives, job.clocks, job.places, job.checkpoints) == (None, None, [], None)


# --------------------------------------------------------------------------- documents


STACK = """\
Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    step (train.py:41)
"""


def stacked(folder: Path, log: str) -> Job:
    (folder / "stacks.txt").write_text(STACK.format(pid=500) + STACK.format(pid=501))
    (folder / "train.log").write_text(log)
    return diagnose.load(folder)


@pytest.mark.parametrize(
    ("log", "label"),
    [
        ("node1:500:9 [0] NCCL INFO x\n", None),
        ("[rank3]: node1:500:9 [0] NCCL INFO x\n[rank1]: node1:501:9 [0] NCCL INFO x\n", "1, 3"),
        ("[rank3]: node1:500:9 [0] NCCL INFO x\n", "3"),
        # Two nodes may give the same number to processes of different ranks.
        ("[rank3]: node1:500:9 [0] NCCL INFO x\n[rank4]: node2:500:9 [0] NCCL INFO x\n", None),
    ],
)
def test_stacks_of_processes_are_given_to_their_ranks(
    tmp_path: Path, log: str, label: str | None
) -> None:
    job = stacked(tmp_path, log)
    assert [group.label for group in job.places] == ([label] if label else [])
    told = sorted(event.rank for event in job.events.signalling("stands") if event.rank is not None)
    assert told == [int(rank) for rank in (label or "").split(",") if rank]


NOON = 1_741_435_200 * 10**9


def dump(folder: Path, rank: int, host: str, ahead: int) -> None:
    """A Flight Recorder dump of 20 operations, on a host whose clock is ahead by so many ns."""
    entries = [
        {
            "record_id": seq, "process_group": ["0", "default_pg"], "collective_seq_id": seq,
            "profiling_name": "nccl:all_reduce", "time_created_ns": NOON + seq * 10**9 + ahead,
            "input_sizes": [[4]], "output_sizes": [[4]], "input_dtypes": ["Float"],
            "output_dtypes": ["Float"], "state": "completed" if seq < 19 else "scheduled",
            "retired": seq < 19, "timeout_ms": 600_000, "is_p2p": False,
        }
        for seq in range(20)
    ]  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    content = {"version": "2.10", "pg_config": config, "entries": entries}
    (folder / f"fr_rank_{rank}").write_text(json.dumps(content))
    (folder / f"rank_{rank}.log").write_text(f"[rank{rank}]: {host}:5:5 [0] NCCL INFO x\n")


def test_clocks_of_hosts_are_compared_by_the_collectives_they_share(tmp_path: Path) -> None:
    dump(tmp_path, 0, "node1", 0)
    dump(tmp_path, 1, "node2", 90 * 10**9)
    job = diagnose.load(tmp_path)
    assert job.clocks is not None
    assert job.clocks.certain() == {"node2": 90 * 10**9}
    assert [event.rank for event in job.events.signalling("pending")] == [0, 1]


def test_one_host_has_one_clock(tmp_path: Path) -> None:
    for rank in (0, 1):
        dump(tmp_path, rank, "node1", 0)
    job = diagnose.load(tmp_path)
    assert job.collectives is not None
    assert job.clocks is None


def test_lines_are_held_once() -> None:
    job = diagnose.load_text("[rank1]: ValueError: bad batch\n")
    assert [line.line for line in job.scans[0].lines] == [1]
    texts = [event.text for event in job.events]
    assert (job.scans[0].lines, set(texts)) == ([], {"[rank1]: ValueError: bad batch"})
    assert [event.text for event in job.events] == texts
