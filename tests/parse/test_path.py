from __future__ import annotations

import time
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.parse.path import PathHints, read_path

RAY_WORKER = "worker-" + "0123456789abcdef" * 3 + "01234567-01000000-4242"
UUID = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # torchrun: the folder is the LOCAL rank
        ("none_8ha5c7u_/attempt_0/3/stderr.log", {"local_rank": 3, "attempt": 0}),
        ("none_8ha5c7u_/attempt_0/3/stderr.log.gz", {"local_rank": 3, "attempt": 0}),
        ("1/rank.3/stdout.zst", {"task": 3}),
        (
            "node7/logs/none_x/attempt_2/1/error.json",
            {"local_rank": 1, "attempt": 2, "host": "node7"},
        ),
        ("attempt_1\\0\\stdout.log", {"local_rank": 0, "attempt": 1}),
        ("job.tar.gz!/attempt_1/0/stdout.log", {"local_rank": 0, "attempt": 1}),
        # ranks
        ("rank_3.log", {"rank": 3}),
        ("rank3.txt", {"rank": 3}),
        ("log_rank_12.out", {"rank": 12}),
        ("logs/global_rank_3.err", {"rank": 3}),
        ("RANK-7.log.gz", {"rank": 7}),
        ("20240501_rank7.log", {"rank": 7}),  # DeepSpeed --enable_each_rank_log
        ("nccl_trace_rank_31", {"rank": 31}),
        ("rank_5/stdout.txt", {"rank": 5}),
        ("local_rank_3.log", {"local_rank": 3}),
        ("node_rank_1_local_rank_3.log", {"node": 1, "local_rank": 3}),
        ("rank_2/rank_3.log", {"rank": 3}),
        # hosts and tasks
        ("Node01.log", {"host": "Node01"}),
        ("train-worker-2.log", {"host": "train-worker-2"}),
        ("worker-0/train.log", {"host": "worker-0"}),
        ("gpu12.example.org.log", {"host": "gpu12.example.org"}),
        ("job.node01.3.log", {"host": "node01", "task": 3}),
        ("train_node01_3.out", {"host": "node01", "task": 3}),
        ("train-123-node01-3.out", {"host": "node01", "task": 3}),
        ("train.node01.log", {"host": "node01"}),
        ("node01_rank3.log", {"host": "node01", "rank": 3}),
        ("node_1.log", {"node": 1}),
        ("task_3.log", {"task": 3}),
        ("worker_3.log", {"task": 3}),
        # what a machine's own log is called is no part of its name
        ("dmesg-node-b.txt", {"host": "node-b"}),
        ("dmesg-node-3.log", {"host": "node-3"}),
        ("journal-dgx-12.log.gz", {"host": "dgx-12"}),
        ("dmesg-old.log", {}),
        ("messages-20260101", {}),
        # tools
        ("log/workerlog.3", {"local_rank": 3}),
        ("node01/log/workerlog.3.gz", {"host": "node01", "local_rank": 3}),
        ("old_workerlog.3x", {}),
        ("nccl.node1.4242.log", {"host": "node1", "pid": 4242}),
        (RAY_WORKER + ".out", {"pid": 4242}),
        ("py-spy-rank3-pid99.txt", {"rank": 3, "pid": 99}),
        ("1/rank.3/stdout", {"task": 3}),
        (f"ns_train-worker-2_{UUID}/pytorch/1.log", {"host": "train-worker-2", "attempt": 1,
         "pod": True}),
        (f"train-worker-2_ns_pytorch-{'0123456789abcdef' * 4}.log",
         {"host": "train-worker-2", "pod": True}),
        # nothing for certain
        ("m06_hf429.log", {}),
        ("job-hf429.log", {}),
        ("hf429_lora.log", {}),
        ("slurm-123.out", {}),
        ("slurm-123_4.out", {}),
        ("job-1234-5.out", {}),
        ("train.err", {}),
        ("stderr.log", {}),
        ("train.log.1", {}),
        ("frank3.log", {}),
        ("tp_rank_3.log", {}),
        ("multi-node-a.log", {}),
        ("gpu3.log", {}),
        ("checkpoint-500/trainer.log", {}),
        ("my-run-2024-05-01/train.log", {}),
        ("<stdin>", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_says(path: str, expected: dict[str, object]) -> None:
    stated = asdict(read_path(path)).items()
    found = {field: value for field, value in stated if value is not None and value is not False}

    assert found == expected


@given(
    st.lists(st.sampled_from(["rank_", "3", "/", "node", "-", ".", "attempt_", "x"])).map("".join)
)
def test_never_raises(path: str) -> None:
    assert isinstance(read_path(path), PathHints)


def test_a_hostile_name_takes_no_time() -> None:
    start = time.process_time()
    for number in range(50):
        read_path("-1" * 2040 + str(number))
    assert time.process_time() - start < 2  # seconds; it was 7
