"""The forms in which simulated jobs are printed, against the templates of real releases."""

from __future__ import annotations

import json
import pickle
import random
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from benchmarks.hangbench.sim.evidence import flight_recorder, nccl, ras, stacks
from benchmarks.hangbench.sim.evidence.c10d import lines
from benchmarks.hangbench.sim.evidence.layouts import KINDS, layout
from benchmarks.hangbench.sim.evidence.names import names, ranges
from benchmarks.hangbench.sim.evidence.releases import TORCHES
from benchmarks.hangbench.sim.outcome import End, Frame, Group, Line, Outcome, Rank, Work

SITE = (Frame("<module>", "/app/train.py", 90), Frame("backward", "/app/train.py", 41))
PLACE = (Frame("<module>", "/app/train.py", 90), Frame("read", "/app/data.py", 17))


def outcome(
    groups: Mapping[str, Group], ranks: list[Rank], per_node: int = 8, **more: Any
) -> Outcome:
    order = list(groups)
    return Outcome(
        program="ddp",
        fault="stuck",
        groups=groups,
        ranks=ranks,
        ranks_per_node=per_node,
        start=datetime(2026, 3, 7, 9, 0, 0),
        timeout_s=600.0,
        fault_at=25.0,
        ids=[order for _ in ranks],
        **more,
    )


def ddp(end: End = "stuck", what: str = "loader", world: int = 8, per_node: int = 8) -> Outcome:
    """All-reduces 1 to 4 of the whole job, of which rank 3 does not come to the last two."""
    groups = {"0": Group("0", "default_pg", tuple(range(world)))}
    ranks = []
    for number in range(world):
        struck = number == 3
        rank = Rank(number, number // per_node, number % per_node, place=SITE)
        for seq in range(1, 3 if struck else 5):
            done = seq < 3
            rank.works.append(
                Work(
                    number,
                    "0",
                    seq,
                    "all_reduce",
                    1000,
                    1000,
                    "Float",
                    10.0 * seq + number / 1000,
                    site=SITE,
                    started=10.0 * seq + 1 if seq < 4 else None,
                    finished=10.0 * seq + 2 if done else None,
                )
            )
        rank.steps = [(12.5, 1), (22.5, 2)]
        if struck:
            rank.end, rank.stuck_in, rank.place = end, what, PLACE
            rank.ended = None if end in ("stuck", "slow", "waiting") else 26.0
        ranks.append(rank)
    return outcome(groups, ranks, per_node, culprits=(3,))


def grid() -> Outcome:
    """Pairs (tensor) and rows (data) of 4 ranks; rank 2 calls another operation in its row."""
    groups = {
        "0": Group("0", "default_pg", (0, 1, 2, 3)),
        "1": Group("1", "TENSOR", (0, 1)),
        "2": Group("2", "TENSOR", (2, 3)),
        "3": Group("3", "undefined", (0, 2)),
        "4": Group("4", "undefined", (1, 3)),
    }
    ranks = []
    for number in range(4):
        pair, row = ("1", "2")[number // 2], ("3", "4")[number % 2]
        works = [
            Work(number, pair, 1, "_allgather_base", 8, 16, "BFloat16", 5.0, site=SITE),
            Work(number, row, 1, "all_reduce", 8, 8, "Float", 6.0, site=SITE),
        ]
        works[0].started, works[0].finished = 5.1, 5.2
        if number == 2:
            works[1].op = "broadcast"
        if number % 2:
            works[1].started, works[1].finished = 6.1, 6.2
            works.append(Work(number, pair, 2, "barrier", 1, 1, "Float", 6.5 + number / 100))
        ranks.append(Rank(number, 0, number, works, [(4.0, 1)]))
    return outcome(groups, ranks, culprits=(2,))


def pipeline() -> Outcome:
    """Rank 0 sends alone, ranks 1 and 2 in a batch; nothing arrives."""
    groups = {"0": Group("0", "default_pg", (0, 1, 2)), "7": Group("7", "PIPE", (0, 1, 2))}
    parts = {
        0: ("send", (("send", 1),)),
        1: ("coalesced", (("recv", 0), ("send", 2))),
        2: ("coalesced", (("recv", 1), ("send", 1))),
    }
    ranks = [
        Rank(n, 0, n, [Work(n, "7", 5, op, 64, 64, "BFloat16", 3.0, True, peers, SITE)])
        for n, (op, peers) in parts.items()
    ]
    return outcome(groups, ranks)


def texts(job: Outcome, torch: str, rank: int | None, **more: Any) -> list[str]:
    return [one.text for one in printed(job, torch, **more) if one.rank == rank]


def printed(job: Outcome, torch: str, **more: Any) -> list[Line]:
    settings = {"statuses": True, "trainer": "plain", "every_rank": True, **more}
    return lines(job, torch, random.Random(7), **settings)


def masked(text: str) -> str:
    """A first line, with the digits of times and addresses masked."""
    first = text.split("\n", maxsplit=1)[0]
    first = re.sub(r"\d\d:\d\d:\d\d\.\d{9}", "TIME", first)
    return re.sub(r"ran for 600\d\d\d", "ran for MS", first)


CAUGHT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE,{} "
    "Timeout(ms)=600000) ran for MS milliseconds before timing out."
)
NUMEL = " NumelIn=1000, NumelOut=1000,"
CORRUPT = (
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
    "kernels, subsequent GPU operations might run on corrupted/incomplete data."
)
DOWN = "To avoid data inconsistency, we are taking the entire process down."
STACK = (
    "Stack trace of the failed collective not found, potentially because FlightRecorder is "
    "disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value."
)
GUID = "[PG ID 0 PG GUID 0(default_pg) Rank 5]"
ENDED = "Process group watchdog thread terminated with exception: [Rank 5] " + CAUGHT.format(NUMEL)
OF_RANK_5 = {
    "1.13": [
        f"[E ProcessGroupNCCL.cpp:821] [Rank 5] {CAUGHT.format('')}",
        f"[E ProcessGroupNCCL.cpp:456] {CORRUPT}",
        f"[E ProcessGroupNCCL.cpp:461] {DOWN}",
        "terminate called after throwing an instance of 'std::runtime_error'",
    ],
    "2.1": [
        f"[E ProcessGroupNCCL.cpp:474] [Rank 5] {CAUGHT.format(NUMEL)}",
        f"[E ProcessGroupNCCL.cpp:488] {CORRUPT}",
        f"[E ProcessGroupNCCL.cpp:494] {DOWN}",
        "[E ProcessGroupNCCL.cpp:915] [Rank 5] NCCL watchdog thread terminated with exception: "
        f"[Rank 5] {CAUGHT.format(NUMEL)}",
        "terminate called after throwing an instance of 'std::runtime_error'",
    ],
    "2.4": [
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:607] [Rank 5] {CAUGHT.format(NUMEL)}",
        "[rank5]:[E307 TIME ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank 5] Exception "
        "(either an error or timeout) detected by watchdog at work: 3, last enqueued NCCL work: 4, "
        "last completed NCCL work: 2.",
        "[rank5]:[E307 TIME ProcessGroupNCCL.cpp:1709] [PG 0 (default_pg) Rank 5] Timeout at NCCL "
        "work: 3, last enqueued NCCL work: 4, last completed NCCL work: 2.",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:621] [Rank 5] {CORRUPT}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:627] [Rank 5] {DOWN}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 5] {ENDED}",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
    ],
    "2.7": [
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:632] [Rank 5] {CAUGHT.format(NUMEL)}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:2271] {GUID}  failure detected by watchdog at "
        "work sequence id: 3 PG status: last enqueued work: 4, last completed work: 2",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:670] {STACK}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:684] [Rank 5] {CORRUPT}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:698] [Rank 5] {DOWN}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:1899] {GUID} {ENDED}",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
    ],
    "2.13": [
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:689] [Rank 5] {CAUGHT.format(NUMEL)}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:2303] {GUID}  failure detected by watchdog at "
        "work sequence id: 3 PG status: last enqueued work: 4, last started work: -1, last "
        "completed work: 2",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:736] {STACK}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:750] [Rank 5] {CORRUPT}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:764] [Rank 5] {DOWN}",
        f"[rank5]:[E307 TIME ProcessGroupNCCL.cpp:2068] {GUID} {ENDED}",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
    ],
}


@pytest.mark.parametrize("torch", TORCHES)
def test_a_watchdog_prints_the_lines_of_its_release_in_order(torch: str) -> None:
    job = ddp()
    own = texts(job, torch, 5, steps=False, start=False, dump_signals=False)
    assert [masked(text) for text in own] == OF_RANK_5[torch]


def test_the_last_started_work_is_stated_only_with_timing() -> None:
    job = ddp()
    job.timing = True
    status = next(one for one in printed(job, "2.13") if one.shows == "status" and one.rank == 5)
    assert "last enqueued work: 4, last started work: 3, last completed work: 2" in status.text


@pytest.mark.parametrize("torch", TORCHES)
def test_only_a_rank_that_waits_has_a_timeout_and_at_its_deadline(torch: str) -> None:
    waits = [one for one in printed(ddp(), torch) if one.shows == "waits" and "caught" in one.text]
    first = {one.rank: one for one in reversed(waits) if one.rank is not None}
    assert sorted(first) == [0, 1, 2, 4, 5, 6, 7]
    for one in first.values():
        assert one.work is not None
        assert one.work.seq == 3
        late = one.time - one.work.created - 600.0
        assert 0.0 < late < 1.1
        ran = re.search(r"ran for (\d+) milliseconds", one.text)
        assert ran is not None
        assert abs(int(ran[1]) / 1000 - (one.time - one.work.created)) < 0.002


def test_a_process_that_has_ended_prints_nothing_more() -> None:
    for end, what in (("killed", "9"), ("raised", "KeyError: 'a'"), ("left", ""), ("lost", "")):
        job = ddp(end, what)  # type: ignore[arg-type]
        for torch in TORCHES:
            assert all(one.time <= 26.0 for one in printed(job, torch) if one.rank == 3)


def test_a_rank_whose_deadline_is_later_than_the_end_of_the_job_has_no_timeout() -> None:
    job = ddp()
    for work in job.ranks[6].works[2:]:
        work.created += 60.0
    found = printed(job, "2.7")
    assert not [one for one in found if one.rank == 6 and one.shows == "waits"]
    alone = printed(job, "2.7", teardown="none")
    assert [one for one in alone if one.rank == 6 and one.shows == "waits"]


def test_ranks_answer_the_signal_to_dump_with_their_own_status() -> None:
    job = ddp()
    for torch, answer in (
        ("2.4", "Received a global dump signal from rank {}, and will start to dump the debug "
         "info. Last enqueued NCCL work: 2, last completed NCCL work: 2."),
        ("2.7", "Received a dump signal due to a collective timeout from  rank {} and we will try "
         "our best to dump the debug info. Last enqueued NCCL work: 2, last completed NCCL "
         "work: 2.This is most likely"),
    ):  # fmt: skip
        found = printed(job, torch)
        signal = next(one for one in found if one.rank == 3 and one.shows == "status")
        sources = {one.rank for one in found if one.shows == "waits" and one.time < signal.time}
        assert any(answer.format(rank) in signal.text for rank in sources)
        assert signal.names_rank
        assert signal.names_group
        assert signal.work is job.ranks[3].works[-1]
    assert not [one for one in printed(job, "2.1") if "dump" in one.text]


def test_a_rank_answers_a_signal_once() -> None:
    job = ddp()
    job.ranks[6].works[2].created += 5.0
    job.ranks[6].works[3].created += 5.0
    for torch in ("2.4", "2.7", "2.13"):
        answers = [one for one in printed(job, torch) if "Last enqueued NCCL" in one.text]
        assert Counter(one.rank for one in answers) == Counter(range(8))


def test_nccl_reports_lost_peers_before_any_timeout() -> None:
    job = ddp("killed", "9", world=8, per_node=4)
    for torch, text in (
        ("1.13", "found async exception when checking for NCCL errors: NCCL error: remote process"),
        ("2.4", "found async exception when checking for NCCL errors: NCCL error: remote process"),
        (
            "2.7",
            "Collective WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, "
            "Timeout(ms)=600000) raised the following async exception: NCCL error: remote process",
        ),
    ):
        found = printed(job, torch, network_errors=True)
        errors = [one for one in found if text in one.text]
        assert errors
        assert 26.0 < errors[0].time < 36.0
        assert not [one for one in found if "milliseconds before timing out" in one.text]
        assert {one.shows for one in errors} == {"waits" if torch == "2.7" else "noise"}
    host = names(job).hosts[0]
    assert f"Connection closed by remote peer {host}<" in errors[0].text


def test_ranks_behind_a_dead_link_report_it() -> None:
    job = ddp("waiting", "", world=8, per_node=4)
    job.link, job.culprits = (0, 1), ()
    for rank in job.ranks[3:4]:
        rank.works += [Work(3, "0", n, "all_reduce", 1000, 1000, "Float", 10.0 * n) for n in (3, 4)]
    found = printed(job, "2.13", network_errors=True)
    linked = [one for one in found if one.shows == "link"]
    assert len({one.rank for one in linked}) == 8
    assert "Got completion from peer 10.4." in linked[0].text
    assert 25.0 + 32.0 < linked[0].time < 25.0 + 40.0


def test_ranks_in_brackets_are_those_in_the_group() -> None:
    job = grid()
    old = [one for one in printed(job, "2.1") if one.shows == "waits" and one.rank == 2]
    assert "[Rank 1] Watchdog caught" in old[0].text  # rank 2 is number 1 of group 3
    assert "OpType=BROADCAST" in old[0].text
    assert not old[0].names_rank
    new = [one for one in printed(job, "2.7") if one.shows == "status" and one.rank == 2]
    assert new[0].text.startswith("[rank2]:")
    assert "[PG ID 3 PG GUID 3 Rank 1]  failure detected" in new[0].text
    assert new[0].names_rank
    barrier = next(one for one in printed(job, "2.7") if one.shows == "waits" and one.rank == 3)
    assert "SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1" in barrier.text
    whole = next(one for one in printed(ddp(), "2.1") if one.shows == "waits")
    assert whole.names_rank  # every group is the whole job in order


def test_sends_and_batches_are_watched_as_each_release_does() -> None:
    found = {torch: printed(pipeline(), torch) for torch in TORCHES}
    waits = {
        torch: {one.rank for one in ones if one.shows == "waits"} for torch, ones in found.items()
    }
    assert waits["1.13"] == set()
    assert waits["2.1"] == {1, 2}
    assert waits["2.4"] == {0, 1, 2}
    text = " ".join(one.text for one in found["2.4"])
    assert "SeqNum=5, OpType=SEND, NumelIn=64, NumelOut=64" in text
    assert "OpType=COALESCED, NumelIn=18446744073709551615" in text


@pytest.mark.parametrize("torch", TORCHES)
def test_torchrun_ends_the_others_and_names_the_first_that_failed(torch: str) -> None:
    job = ddp("killed", "9")
    found = printed(job, torch, teardown="job")
    assert not [one for one in found if one.shows == "waits"]
    failed = next(one for one in found if "failed (exitcode: -9) local_rank: 3" in one.text)
    assert failed.subject == 3
    root = found[-1]
    assert root.text.startswith("[0]:\n  time      : 2026-03-07_09:00:3")
    assert "  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: " in root.text
    assert (root.subject, root.names_rank, root.shows) == (3, True, "exit")
    stopped = [one for one in found if "closing signal SIGTERM" in one.text]
    assert len(stopped) == 7
    assert {
        "1.13": "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process ",
        "2.1": "[2026-03-07 09:00:36,0",
        "2.4": "W0307 09:00:36.0",
        "2.7": "W0307 09:00:36.0",
        "2.13": "W0307 09:00:36.0",
    }[torch] in stopped[0].text


def test_the_agent_of_a_node_ends_its_own_ranks_only() -> None:
    job = ddp("killed", "9", world=8, per_node=4)
    found = printed(job, "2.7", teardown="node")
    assert {one.rank for one in found if one.shows == "waits"} == {4, 5, 6, 7}
    roots = [one for one in found if one.text.startswith("[0]:")]
    assert roots[0].subject == 3
    assert roots[1].subject in (4, 5, 6, 7)


def test_a_traceback_has_the_rank_from_2_4_on() -> None:
    job = ddp("raised", "KeyError: 'labels'")
    new = next(one for one in printed(job, "2.4") if one.shows == "raised")
    assert all(line.startswith("[rank3]: ") for line in new.text.split("\n"))
    assert new.text.endswith("[rank3]: KeyError: 'labels'")
    old = next(one for one in printed(job, "2.1") if one.shows == "raised")
    assert old.text.startswith("Traceback (most recent call last):\n")
    assert '  File "/app/data.py", line 17, in read\n' in old.text
    assert (new.names_rank, old.names_rank) == (True, False)


def test_srun_mpirun_and_the_cluster_say_how_ranks_ended() -> None:
    job = ddp("killed", "9")
    host = names(job).hosts[0]
    srun = [one for one in printed(job, "2.7", launcher="srun") if one.shows == "exit"]
    said = {one.text: one.subjects for one in srun}
    assert said[f"srun: error: {host}: task 3: Killed"] == (3,)
    assert said[f"srun: error: {host}: tasks 0-2,4-7: Aborted (core dumped)"] == (
        0,
        1,
        2,
        4,
        5,
        6,
        7,
    )
    (mpi,) = [one for one in printed(job, "2.7", launcher="mpirun") if one.shows == "exit"]
    assert "process rank 3 with PID" in mpi.text
    assert "exited on signal 9 (Killed)." in mpi.text
    lost = ddp("lost", "", world=8, per_node=4)
    for launcher, text in (
        ("srun", "srun: error: Node failure on "),
        ("kubernetes", "NodeNotReady"),
    ):
        (dead,) = [one for one in printed(lost, "2.7", launcher=launcher) if text in one.text]
        assert dead.subjects == (3,)
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_a_job_that_ended_well_has_no_failure() -> None:
    job = ddp()
    for rank in job.ranks:
        rank.end, rank.ended, rank.stuck_in = "left", 60.0, ""
        rank.works = rank.works[:2]
    for torch in TORCHES:
        found = printed(job, torch)
        assert {one.shows for one in found} == {"world", "noise", "step", "left"}
        warned = [one for one in found if "destroy" in one.text]
        assert len(warned) == (torch not in ("1.13", "2.1"))


def test_nothing_of_the_truth_is_in_any_text() -> None:
    marks = re.compile(r"stuck|fault(?!_at)|culprit|inject|simul|hangbench|oracle", re.IGNORECASE)
    for job in (ddp(), ddp("slow", "evaluation"), ddp("killed", "9"), grid(), pipeline()):
        for torch in TORCHES:
            for one in printed(job, torch):
                assert not marks.search(one.text.replace("default", "")), one.text
        for files in (
            flight_recorder.dumps(job, "2.7", random.Random(1), container="json"),
            ras.reports(job, random.Random(1)),
            stacks.stacks(job, "2.7", random.Random(1)),
        ):
            for name, content in files.items():
                assert not marks.search(name + content.decode().replace("default", ""))


@pytest.mark.parametrize("kind", KINDS)
def test_a_layout_has_every_line_once(kind: str) -> None:
    job = ddp(world=8, per_node=4)
    launcher = "srun" if kind in ("srun", "mpirun") else "torchrun"
    found = printed(job, "2.7", launcher=launcher)
    made = layout(found, job, kind, random.Random(3))  # type: ignore[arg-type]
    strip = re.compile(
        r"^(\[default\d\]:|\s*\d+: |\[pod/\S+\] |\S+Z std(out|err) F |\(\w+ pid=[^)]*\) "
        r"|\[1,\d+\]<std(out|err)>:)"
    )
    shown = Counter(
        strip.sub("", line) if kind not in ("console", "slurm") else line
        for content in made.files.values()
        for line in content.decode().splitlines()
    )
    expected = Counter(line for one in found for line in one.text.split("\n"))
    assert shown == expected


def test_the_same_seed_gives_the_same_bytes() -> None:
    for kind in KINDS:
        first, second = (
            layout(printed(ddp(), "2.7"), ddp(), kind, random.Random(3)).files for _ in range(2)
        )
        assert first == second
    for write in (
        lambda rng: flight_recorder.dumps(grid(), "2.7", rng),
        lambda rng: ras.reports(grid(), rng),
        lambda rng: stacks.stacks(grid(), "2.7", rng),
        lambda rng: [one.text for one in nccl.info_lines(grid(), "2.7", rng)],
    ):
        assert write(random.Random(3)) == write(random.Random(3))


def test_layouts_say_which_authors_are_visible() -> None:
    job, whole = ddp(world=8, per_node=4), ddp()
    rng = random.Random(3)
    found = printed(job, "2.1", launcher="none")
    tee = layout(found, job, "tee", rng)
    assert tee.authors == "local"
    assert layout(printed(whole, "2.1"), whole, "tee", rng).authors == "global"
    (text,) = tee.files.values()
    step = next(one for one in found if one.rank == 6 and one.shows == "step")
    assert f"[default2]:{step.text}\n".encode() in text
    labelled = layout(found, job, "srun", rng)
    assert labelled.authors == "global"
    assert f"6: {step.text}\n".encode() in next(iter(labelled.files.values()))
    nodes = layout(printed(job, "2.1"), job, "srun", rng)
    assert nodes.authors == "node"
    assert b"\n1: [0]:\n1:   time" in next(iter(nodes.files.values()))
    assert layout(found, job, "ray", rng).authors == "process"


def test_files_of_ranks_that_are_missing_are_not_made() -> None:
    job = ddp(world=8, per_node=4)
    found = [one for one in printed(job, "2.7") if one.rank not in (1, 4, 5, 6, 7)]
    by_rank = layout(found, job, "rank_files", random.Random(0), missing={1, 4, 5, 6, 7})
    assert not by_rank.world
    assert len([name for name in by_rank.files if re.search(r"[0-7]\D*$", name)]) >= 3
    by_node = layout(found, job, "cri", random.Random(0), missing={1, 4, 5, 6, 7})
    assert sum("worker-1" in name for name in by_node.files) == 0
    assert layout(printed(job, "2.7"), job, "rank_files", random.Random(0)).world


KEYS_2_4 = {
    "record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "op_id",
    "profiling_name", "time_created_ns", "input_sizes", "input_dtypes", "output_sizes",
    "output_dtypes", "state", "time_discovered_started_ns", "time_discovered_completed_ns",
    "retired", "is_p2p", "frames",
}  # fmt: skip
ENTRY_KEYS = {
    "2.2": {"pg_id", "seq_id", "profiling_name", "time_created_us", "input_sizes", "output_sizes",
            "state", "retired", "frames"},
    "2.3": KEYS_2_4 - {"process_group", "collective_seq_id", "p2p_seq_id", "is_p2p",
                       "input_dtypes", "output_dtypes"} | {"seq_id"},
    "2.4": KEYS_2_4,
    "2.7": KEYS_2_4 | {"timeout_ms"},
    "2.8": KEYS_2_4 | {"timeout_ms", "thread_id", "thread_name"},
    "2.13": KEYS_2_4 | {"timeout_ms", "thread_id", "thread_name"},
}  # fmt: skip
TOP_KEYS = {
    "2.3": {"version", "pg_config", "entries"},
    "2.4": {"version", "pg_config", "entries"},
    "2.7": {"version", "pg_config", "pg_status", "entries"},
    "2.8": {"version", "pg_config", "pg_status", "entries", "nccl_version"},
    "2.13": {"version", "pg_config", "pg_status", "entries", "comm_lib_version"},
}


@pytest.mark.parametrize("torch", ENTRY_KEYS)
def test_dumps_have_the_keys_of_their_version(torch: str) -> None:
    files = flight_recorder.dumps(ddp(), torch, random.Random(2))
    assert len(files) == 8
    content = next(pickle.loads(one) for name, one in files.items() if name.endswith("5"))
    entries = content
    if torch != "2.2":
        assert set(content) == TOP_KEYS[torch]
        assert content["version"] == flight_recorder.VERSIONS[torch]
        assert content["pg_config"]["0"] == {
            "name": "0",
            "desc": "default_pg",
            "ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
        }
        entries = content["entries"]
    assert [entry["state"] for entry in entries] == ["completed"] * 2 + ["scheduled"] * 2
    assert all(set(entry) == ENTRY_KEYS[torch] for entry in entries)
    assert entries[0]["frames"][-1] == {"name": "<module>", "filename": "/app/train.py", "line": 90}
    assert entries[0]["frames"][0]["name"] == "all_reduce"


def test_a_started_state_and_durations_need_timing() -> None:
    job = ddp()
    job.timing = True
    (content,) = flight_recorder.dumps(job, "2.7", random.Random(2), ranks=[5]).values()
    entries = pickle.loads(content)["entries"]
    assert [entry["state"] for entry in entries] == ["completed"] * 2 + ["started", "scheduled"]
    assert entries[0]["duration_ms"] == pytest.approx(1000.0)
    status = pickle.loads(content)["pg_status"]["0"]
    assert status == {
        "last_enqueued_collective": 4,
        "last_started_collective": 3,
        "last_completed_collective": 2,
    }


def test_dumps_can_hold_less() -> None:
    job = ddp("killed", "9")
    rng = random.Random(2)
    files = flight_recorder.dumps(job, "2.7", rng, only_pending=True, frames=False)
    assert len(files) == 7
    for content in files.values():
        entries = pickle.loads(content)["entries"]
        assert [entry["collective_seq_id"] for entry in entries] == [3, 4]
        assert "frames" not in entries[0]
    (ring,) = flight_recorder.dumps(job, "2.7", rng, ring=1, ranks=[0]).values()
    assert [entry["record_id"] for entry in pickle.loads(ring)["entries"]] == [3]
    (text,) = flight_recorder.dumps(job, "2.7", rng, container="json", ranks=[0]).values()
    shown = json.loads(text)
    assert list(shown) == sorted(shown)
    assert shown["pg_status"]["0"]["last_enqueued_collective"] == "4"
    assert shown["entries"][0]["process_group"] == ["0", "default_pg"]
    assert shown["entries"][0]["time_discovered_started_ns"] == 0
    with pytest.raises(ValueError, match="no json dump"):
        flight_recorder.dumps(job, "2.4", rng, container="json")


def test_sends_and_batches_in_dumps() -> None:
    files = flight_recorder.dumps(pipeline(), "2.7", random.Random(2))
    of_rank = {int(name[-1]): pickle.loads(content) for name, content in files.items()}
    named = {
        rank: [entry["profiling_name"] for entry in content["entries"]]
        for rank, content in of_rank.items()
    }
    assert named[0] == ["nccl:send 0->1"]
    assert named[1] == ["nccl:recv 1<-0", "nccl:send 1->2", "nccl:coalesced"]
    last = of_rank[1]["entries"][-1]
    assert (last["input_sizes"], last["p2p_seq_id"], last["is_p2p"]) == ([], 5, True)
    assert last["pg_id"] == 1


def test_nccl_numbers_the_calls_of_each_communicator() -> None:
    job = ddp()
    found = nccl.info_lines(job, "2.7", random.Random(4))
    calls: dict[int | None, list[str]] = {}
    for one in found:
        if one.shows == "call":
            assert one.names_rank
            calls.setdefault(one.rank, []).append(one.text)
    assert [len(calls[rank]) for rank in range(8)] == [4, 4, 4, 2, 4, 4, 4, 4]
    pid, host = names(job).pids[5], names(job).hosts[0]
    assert re.fullmatch(
        rf"{host}:{pid}:\d+ \[5\] NCCL INFO AllReduce: opCount 3 sendbuff 0x\w+ recvbuff 0x\w+ "
        r"count 1000 datatype 7 op 0 root 0 comm 0x\w+ \[nranks=8\] stream 0x\w+",
        calls[5][-1],
    )
    made = [one.text for one in found if one.shows == "world"]
    assert len(made) == 8
    assert re.search(
        r"ncclCommInitRankConfig comm 0x\w+ rank 0 nranks 8 cudaDev 0 nvmlDev 0", made[0]
    )
    identities = {re.search(r"commId (0x\w{16}) ", text)[1] for text in made}  # type: ignore[index]
    assert len(identities) == 1
    old = nccl.info_lines(job, "1.13", random.Random(4))
    assert any(
        re.search(r"comm 0x\w+ rank 5 nranks 8 cudaDev 5 busId 2f000 - Init", o.text) for o in old
    )


def test_a_communicator_that_a_rank_never_creates_is_never_ready() -> None:
    job = ddp()
    job.ranks[3].works = []
    found = nccl.info_lines(job, "2.7", random.Random(4))
    assert sum("Init START" in one.text for one in found) == 7
    assert not [one for one in found if "COMPLETE" in one.text or one.shows == "call"]


def test_both_ends_of_a_dead_link_warn() -> None:
    job = ddp(world=8, per_node=4)
    job.link = (0, 1)
    for torch, text in (
        ("1.13", " with error 12, opcode 0, len 0, vendor err 129"),
        ("2.13", " with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 hca "),
    ):
        warned = nccl.link_lines(job, torch, random.Random(4))
        assert {one.rank for one in warned} == {0, 1, 2, 4, 5, 6, 7}
        assert all(one.shows == "link" and text in one.text for one in warned)
        assert f"from peer {names(job).ips[1]}<" in next(o.text for o in warned if o.rank == 0)


def test_text_of_ras_names_nobody_where_two_counts_go_unnamed() -> None:
    head = "  Communicator ranks have different AllReduce operation counts\n"
    many = "  6 ranks have launched up to operation 2\n"
    few = "  2 ranks have launched up to operation 1\n"
    named = "  Rank 6 -- GPU 6 managed by process 6631 on node 10.4.0.10\n"
    alone = "  Rank 7 has launched up to operation 1 -- GPU 7 managed by process 6 on node a\n"
    assert ras.names_all(head + many + few + named)
    assert ras.names_all(head + many + alone)
    assert ras.names_all(head + many + few + named + head + many)
    assert not ras.names_all(head + many + few)
    assert not ras.names_all(head + many + "  2 ranks have not launched any operations\n")


def test_ras_counts_what_each_rank_launched() -> None:
    files = ras.reports(ddp(), random.Random(4))
    assert len(files) == 4
    (communicator,) = json.loads(files["ncclras-1.json"])["communicators"]
    counts = [one["collective_counts"]["AllReduce"] for one in communicator["ranks"]]
    assert counts == [4, 4, 4, 2, 4, 4, 4, 4]
    text = files["ncclras-2.txt"].decode()
    assert "    0         1         1         8         8         8   RUNNING  MISMATCH\n" in text
    assert "  7 ranks have launched up to operation 4\n" in text
    assert "  Rank 3 has launched up to operation 2 -- GPU 3 managed by process" in text


def test_ras_misses_processes_that_are_gone() -> None:
    files = ras.reports(ddp("killed", "9"), random.Random(4))
    (communicator,) = json.loads(files["ncclras-1.json"])["communicators"]
    (missing,) = communicator["missing_ranks"]
    assert (missing["rank"], missing["status"]["considered_dead"]) == (3, True)
    text = files["ncclras-1.txt"].decode()
    assert (
        "INCOMPLETE\n  Missing communicator data from 1 job process\n  The missing rank: 3" in text
    )


def test_stacks_have_the_innermost_frame_first_and_what_it_waits_in() -> None:
    job = ddp()
    files = stacks.stacks(job, "2.4", random.Random(1))
    texts = [content.decode() for content in files.values()]
    assert len(texts) == 8
    waiter = texts[5].split('"MainThread"\n')[1].splitlines()
    assert [line.strip() for line in waiter[:4]] == [
        "all_reduce (torch/distributed/distributed_c10d.py:2806)",
        "wrapper (torch/distributed/c10d_logger.py:81)",
        "backward (train.py:41)",
        "<module> (train.py:90)",
    ]
    assert texts[5].startswith(f"Process {names(job).pids[5]}: ")
    assert "_try_get_data (torch/utils/data/dataloader.py" in texts[3]
    handler = stacks.stacks(job, "2.4", random.Random(1), form="faulthandler", ranks=[3])
    (text,) = (content.decode() for content in handler.values())
    current = text.split("Current thread ")[1]
    assert current.index("select") < current.index('File "/app/data.py", line 17 in read')
    assert len(stacks.stacks(ddp("killed", "9"), "2.4", random.Random(1))) == 7
