"""Prefixes that people paste: who wrote a line, read from what stands before it."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.parse.prefix import peel

from .said import said

# The line in front of "step 7", and what it says; `at` where the time is read as this.
FORMS: list[tuple[str, dict[str, Any]]] = [
    # SkyPilot: the rank is that of the node, which launches a process a GPU itself
    ("(head, rank=0, pid=4711) ", {"host": "head", "task": 0, "pid": 4711}),
    ("(worker2, rank=2, pid=4711, ip=10.4.0.9) ", {"host": "worker2", "task": 2, "pid": 4711}),
    ("(finetune, pid=4711) ", {"pid": 4711}),
    # containers and pods
    ("{trainer-3} ", {"host": "trainer-3"}),
    ("trainer-3  | ", {"host": "trainer-3"}),
    ("algo-1-x7k2p  | ", {"host": "algo-1-x7k2p"}),
    ("[pod/llm-worker-3/pytorch] 2031-02-03T04:05:06.789Z ", {"host": "llm-worker-3", "pod": True}),
    ("2031-02-03T04:05:06.789Z [pod/llm-worker-3/pytorch] ", {"host": "llm-worker-3", "pod": True}),
    ("llm-worker-3 pytorch ", {"host": "llm-worker-3", "pod": True}),
    # launchers
    (" 3: ", {"task": 3}),
    ("[1,3]<stderr>:", {"task": 3, "stream": "stderr"}),
    ("[prterun-n7-12@1,3]<stdout>: ", {"task": 3, "stream": "stdout"}),
    ("Mon Feb  3 04:05:06 2031<stdout>:", {"stream": "stdout"}),
    ("Mon Feb  3 04:05:06 2031[1,3]<stdout>:", {"task": 3, "stream": "stdout"}),
    ("node07: ", {"host": "node07"}),
    ("node07 | ", {"host": "node07"}),
    ("node07\t", {"host": "node07"}),
    ("x3006c0s13b0n0.hsn.example.gov: ", {"host": "x3006c0s13b0n0.hsn.example.gov"}),
    ("[default3]:", {"local_rank": 3}),
    ("[actor3]:", {"local_rank": 3}),
    # Ray and vLLM
    ("(RayTrainWorker pid=4711, ip=10.4.0.9) ", {"host": "10.4.0.9", "pid": 4711}),
    ("(RayTrainWorker(rank=3) pid=4711) ", {"rank": 3, "pid": 4711}),
    ("(Worker_TP3_EP3 pid=4711) ", {"group_rank": 3, "pid": 4711}),
    ("[pod/w-5/main] 2031-02-03T04:05:06Z nid000006 INFO ",
     {"host": "w-5", "level": "INFO", "pod": True}),
    # loggers of frameworks and services
    ("2031-02-03 04:05:06,789 - distributed.worker - WARNING - ", {"level": "WARNING"}),
    ("[2031-02-03T04:05:06.789Z] 5f0c9d8a [rank=3] || ", {"rank": 3}),
    ("[rank=3] || ", {"rank": 3}),
    ("2031-02-03 04:05:06,789 INFO    MainThread:4711 [wandb_run.py:_atexit():12] ",
     {"pid": 4711, "level": "INFO"}),
    ("2031/02/03 04:05:06 WARNING ", {"level": "WARNING"}),
    ("[2031-02-03T04:05:06.789] [node-3] ", {"host": "node-3"}),
    ("[2031-02-03 04:05:06] [node-3] [ERROR] ", {"host": "node-3", "level": "ERROR"}),
    ("2031-02-03 04:05:06,789 node07 INFO ", {"host": "node07", "level": "INFO"}),
    ("2031-02-03 04:05:06,789 node07 [rank3] INFO ",
     {"host": "node07", "rank": 3, "level": "INFO"}),
    ("rank3[4711][MainThread]: ERROR: composer.trainer: ",
     {"rank": 3, "pid": 4711, "level": "ERROR"}),
    ("[02/03/31 04:05:06] WARNING  ", {"level": "WARNING"}),
    ("02/03/2031 04:05:06 AM ", {}),
    ("[2031-02-03, 04:05:06 UTC] {task_command.py:12} INFO - ", {"level": "INFO"}),
    ("2031-02-03 04:05:06.789012: E core/platform/x.cc:12] ", {"level": "ERROR"}),
    ("2031:02:03-04:05:06:( 4711) |CCL_ERROR| ", {"pid": 4711, "level": "ERROR"}),
    ("[ModelArts Service Log]2031-02-03 04:05:06,789 - ERROR - ", {"level": "ERROR"}),
    ('time="2031-02-03T04:05:06Z" level=error ', {"level": "ERROR"}),
    ("[GPU3] ", {"dev": 3}),
    # Ascend's own logs, and MindSpore's
    ("[ERROR] HCCL(4711,python3):2031-02-03-04:05:06.789.012 [op_base.cc:12] ",
     {"pid": 4711, "level": "ERROR"}),
    ("[EVENT] HCCP(4711,python3.10):2031-02-03-04:05:06.789.012 [ra_host.c:12]", {"pid": 4711}),
    ("[WARNING] ME(4711:2814,MainProcess):2031-02-03-04:05:06.789.012 [mindspore/a.py:12] ",
     {"pid": 4711, "level": "WARNING"}),
    # the journal
    ("2031-02-03T04:05:06+0000 node07 python[4711]: ", {"host": "node07", "pid": 4711}),
    ("2031-02-03T04:05:06+0000 node07 python: ", {"host": "node07"}),
    ("Mon 2031-02-03 04:05:06 UTC node07 python[4711]: ", {"host": "node07", "pid": 4711}),
    ("[   99.123456] node07 python[4711]: ", {"host": "node07", "pid": 4711}),
    # grep over the files of ranks
    ("logs/rank_3.log:12:", {"rank": 3}),
    ("rank_3.log-12-", {"rank": 3}),
    ("out/node07.out:", {"host": "node07"}),
    ("rank3\t", {"rank": 3}),
]  # fmt: skip
NOT_OF_INTEREST = {"names", "stamp", "actor", "origin"}


@pytest.mark.parametrize(("before", "expected"), FORMS)
def test_what_stands_before_a_line(before: str, expected: dict[str, Any]) -> None:
    prefix = peel(before + "step 7 is done")
    found = {k: v for k, v in said(prefix).items() if k not in NOT_OF_INTEREST}
    assert (found, prefix.message) == (expected, "step 7 is done")


@pytest.mark.parametrize("before", [before for before, _ in FORMS if "04:05:06" in before])
def test_the_time_before_a_line(before: str) -> None:
    found = peel(before + "step 7 is done").stamp
    assert found is not None
    assert found.ns // 1_000_000_000 % 86_400 == 4 * 3600 + 5 * 60 + 6


def test_afternoon() -> None:
    times = [peel(f"02/03/2031 {time} x").stamp for time in ("12:00:01 AM", "12:00:01 PM")]
    assert [time.ns // 1_000_000_000 % 86_400 for time in times if time] == [1, 43_201]


@pytest.mark.parametrize(
    "line",
    [
        "train.py:12: UserWarning: x",  # no log
        "run.log: No such file or directory",  # tells nobody
        "loss   | 0.31",
        "worker-3 finished",
        "[lr-3] x",
        "[gpu0]: 70 C",
        "{'rank': 3} x",
        "(a, b) x",
        "2031-02-03 04:05:06 worker-3 finished",
    ],
)
def test_words_that_are_no_author(line: str) -> None:
    found = said(peel(line))
    assert not found.keys() & {"rank", "local_rank", "task", "host", "pid", "dev"}
