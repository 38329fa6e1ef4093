"""Jobs that left more than logs: every kind of document, alone and beside a log, end to end."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

import diagnose
from diagnose.diagnosis import Diagnosis
from diagnose.errors import InputError

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
STUCK = FIXTURES / "flight-recorder-stuck-rank" / "fr"


def verdict(folder: Path) -> Diagnosis:
    return diagnose.diagnose(diagnose.load(folder))


def call(rank: int, count: int, op: str = "AllReduce") -> str:
    return (
        f"node{rank // 2}:{100 + rank}:{100 + rank} [{rank % 2}] NCCL INFO {op}: opCount {count:x} "
        "sendbuff 0x7f00 recvbuff 0x7f00 count 1024 datatype 7 op 0 root 0 "
        f"comm 0x55{rank}0 [nranks=4] stream 0x5500"
    )


def calls(*last: int) -> str:
    """NCCL's lines of four ranks, each up to its last call."""
    begun = [
        f"node{r // 2}:{100 + r}:{100 + r} [{r % 2}] NCCL INFO ncclCommInitRank comm 0x55{r}0 "
        f"rank {r} nranks 4 cudaDev {r % 2} nvmlDev {r % 2} busId 1{r}000 commId 0xabc "
        f"- Init {what}"
        for what in ("START", "COMPLETE")
        for r in range(4)
    ]
    made = [call(r, count) for count in range(max(last) + 1) for r in range(4) if count <= last[r]]
    return "\n".join([*begun, *made, ""])


RAS = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 6650
  1 ranks have launched up to operation 6600
  Rank 2 -- GPU 2 managed by process 102 on node 10.0.0.1
"""


def test_call_lines_name_the_rank_that_stopped_calling(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(calls(30, 30, 29, 30))
    found = verdict(tmp_path)
    assert (found.verdict, found.root_cause.cause) == ("hung", "desync.missing_rank")
    # One look at a log that may still grow: ranks are never quite at the same call.
    assert found.root_cause.confidence == "low"
    assert (found.culprits.ranks, found.culprits.hosts) == ([2], ["node1"])
    assert found.collective is not None
    assert (found.collective.op, found.collective.seq) == ("all_reduce", 30)
    assert (found.collective.joined, found.collective.missing) == ([0, 1, 3], [2])


def test_call_lines_of_a_job_that_works_are_no_failure(tmp_path: Path) -> None:
    steps = "".join(f"[rank0]: step {n}/100 | loss 2.0\n" for n in range(50))
    (tmp_path / "train.log").write_text(calls(30, 30, 29, 30) + steps)
    assert verdict(tmp_path).verdict == "running"


def test_a_ras_report_names_the_rank_behind(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(RAS)
    found = verdict(tmp_path)
    assert (found.verdict, found.culprits.ranks) == ("hung", [2])
    assert found.root_cause.confidence == "low"
    assert any("only one RAS report" in note for note in found.notes)


def test_the_table_is_of_one_kind_of_evidence(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(RAS)
    shutil.copytree(STUCK, tmp_path / "fr")
    job = diagnose.load(tmp_path)
    assert job.collectives is not None
    assert set(job.collectives.files.values()) == {f"fr/nccl_trace_rank_{n}" for n in range(8)}
    assert diagnose.diagnose(job).culprits.ranks == [3]


def test_a_single_dump_gives_way_to_counters_of_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(RAS)
    (tmp_path / "fr").mkdir()
    shutil.copy(STUCK / "nccl_trace_rank_0", tmp_path / "fr")
    job = diagnose.load(tmp_path)
    assert job.collectives is not None
    assert set(job.collectives.files.values()) == {"ras.txt"}
    assert diagnose.diagnose(job).culprits.ranks == [2]


def test_dumps_and_stacks_that_agree_are_surer(tmp_path: Path) -> None:
    shutil.copytree(STUCK, tmp_path / "fr")
    waits = "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    step (train.py:9)\n"
    sleeps = "    _try_get_data (torch/utils/data/dataloader.py:1132)\n    step (train.py:7)\n"
    for rank in range(8):
        frames = sleeps if rank == 3 else waits
        head = f"Process 10{rank}: python train.py\nPython v3.11.7 (/usr/bin/python)\n\n"
        thread = f'Thread 10{rank} (idle): "MainThread"\n'
        (tmp_path / f"pyspy_rank{rank}.txt").write_text(head + thread + frames)
    found = verdict(tmp_path)
    assert (found.root_cause.cause, found.culprits.ranks) == ("data.loader", [3])
    assert [(group.label, group.state) for group in found.places] == [
        ("3", "data_loading"),
        ("0-2, 4-7", "collective_wait"),
    ]
    assert "stall.host" not in [other.cause for other in found.alternatives]


def test_a_malicious_or_broken_dump_is_one_note(tmp_path: Path) -> None:
    shutil.copytree(STUCK, tmp_path / "fr")
    target = tmp_path / "owned"

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (target,))

    evil = pickle.dumps({"pg_config": Evil(), "entries": []}, 2)
    (tmp_path / "fr" / "nccl_trace_rank_8").write_bytes(evil)
    (tmp_path / "fr" / "nccl_trace_rank_9").write_bytes(b"")
    cut = (STUCK / "nccl_trace_rank_0").read_bytes()[:400]
    (tmp_path / "fr" / "nccl_trace_rank_10").write_bytes(cut)
    found = verdict(tmp_path)
    assert not target.exists()
    assert found.culprits.ranks == [3]
    assert sum("nccl_trace_rank_8" in note and "refused" in note for note in found.notes) == 1
    assert sum("nccl_trace_rank_10" in note for note in found.notes) == 1


def test_only_broken_dumps_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_text('{"pg_config": {}, "entries": [')
    with pytest.raises(InputError, match="truncated or damaged JSON"):
        diagnose.load(tmp_path)


def test_a_dump_of_a_job_that_finished_is_no_failure(tmp_path: Path) -> None:
    shutil.copytree(STUCK, tmp_path / "fr")
    (tmp_path / "train.log").write_text(
        "[rank0]: step 1/2 | loss 2.0\n[rank0]: step 2/2 | loss 1.9\nTraining completed.\n"
    )
    assert verdict(tmp_path).verdict == "healthy"


def test_the_json_tells_who_waits_for_whom(tmp_path: Path) -> None:
    found = verdict(STUCK)
    assert found.graph is not None
    data = json.loads(found.to_json())
    assert data["graph"]["state"] == {str(r): "culprit" if r == 3 else "waiting" for r in range(8)}
    assert [edge[:2] for edge in data["graph"]["edges"] if edge[1] == 3] == [
        [1, 3],
        [2, 3],
        [5, 3],
        [7, 3],
    ]
    assert "places" not in data
    assert data["collective"]["site"].endswith("train.py:138")
