from __future__ import annotations

from typing import Any

import pytest

from diagnose.parse.launcher_prefixes import node_like, repeated
from diagnose.parse.prefix import peel

from .said import MS, NS, said, stamp


@pytest.mark.parametrize(
    ("line", "message", "expected"),
    [
        # pdsh
        ("worker-0: x: y", "x: y", {"host": "worker-0", "names": ["pdsh"]}),
        ("c000002:   File", "  File", {"host": "c000002", "names": ["pdsh"]}),
        ("10.0.0.7: x", "x", {"host": "10.0.0.7", "names": ["pdsh"]}),
        ("localhost: [rank0]: x", "x", {"host": "localhost", "rank": 0, "names": ["pdsh", "rank"]}),
        ("node01:", "", {"host": "node01", "names": ["pdsh"]}),
        ("hal9k: [rank3]: x", "x", {"host": "hal9k", "rank": 3, "names": ["pdsh", "rank"]}),
        ("node01: slurmstepd: error: *** STEP 1.0", "slurmstepd: error: *** STEP 1.0",
         {"host": "node01", "names": ["pdsh"]}),
        # srun --label
        (" 3: [rank3]: Traceback", "Traceback", {"task": 3, "rank": 3, "names": ["srun", "rank"]}),
        ("11: x", "x", {"task": 11, "names": ["srun"]}),
        ("0: [Gloo] Rank 0 is connected", "[Gloo] Rank 0 is connected",
         {"task": 0, "names": ["srun"]}),
        ("3:", "", {"task": 3, "names": ["srun"]}),
        ("P1 3: x", "x", {"names": ["srun"]}),  # a task of component 1, not of the job
        # Open MPI, PRRTE, SageMaker, horovodrun
        ("[1,3]<stderr>:text", "text", {"task": 3, "stream": "stderr", "names": ["mpi"]}),
        ("[1,3]<stdout>:  File", "  File", {"task": 3, "stream": "stdout", "names": ["mpi"]}),
        ("[prterun-n1-9@1,3]<stdout>: text", "text",
         {"task": 3, "stream": "stdout", "names": ["mpi"]}),
        ("[prterun-n1-9@1,3][n1:77]<stderr>: text", "text",
         {"task": 3, "host": "n1", "pid": 77, "stream": "stderr", "names": ["mpi"]}),
        ("[1,mpirank:3,algo-2]<stderr>:text", "text",
         {"task": 3, "host": "algo-2", "stream": "stderr", "names": ["mpi"]}),
        ("[0]<stderr>:Missing ranks:", "Missing ranks:",
         {"task": 0, "rank": 0, "stream": "stderr", "names": ["horovodrun"]}),
        ("[0]<stderr>:0: [broadcast.bool.sz]", "0: [broadcast.bool.sz]",
         {"task": 0, "rank": 0, "stream": "stderr", "names": ["horovodrun"]}),
        ("Thu Oct 10 03:06:53 2024<stdout>:x", "x",
         {"stamp": stamp("2024-10-10 03:06:53"), "stream": "stdout", "names": ["ctime", "mpi"]}),
        ("Thu Oct 10 03:06:53 2024[1,3]<stdout>:x", "x",
         {"stamp": stamp("2024-10-10 03:06:53"), "task": 3, "stream": "stdout",
          "names": ["ctime", "mpi"]}),
        ("[2024-10-10T03:06:53]<stdout>: x", "x",
         {"stamp": stamp("2024-10-10 03:06:53"), "stream": "stdout", "names": ["mpi"]}),
        ('<stdout rank="3">a &lt;b&gt; &amp;lt;</stdout>', "a <b> &lt;",
         {"task": 3, "stream": "stdout", "names": ["mpi-xml"]}),
        # Hydra
        ("[3] text", "text", {"task": 3, "names": ["hydra"]}),
        # signal handlers
        ("[gpu-033:3039 :0:2438] Caught signal 7", "Caught signal 7",
         {"host": "gpu-033", "pid": 3039, "names": ["ucx"]}),
        ("[abc:12345] *** Process received signal ***", "*** Process received signal ***",
         {"host": "abc", "pid": 12345, "names": ["ucx"]}),
        ("[node01:12345] [ 0] /lib/libc.so", "[ 0] /lib/libc.so",
         {"host": "node01", "pid": 12345, "names": ["ucx"]}),
        # Kubernetes
        ("2024-05-01T10:00:00.123456789Z stderr F x", "x",
         {"stamp": stamp("2024-05-01 10:00:00.123456789", NS, 0), "stream": "stderr",
          "names": ["cri"]}),
        ("2024-05-01T10:00:00.1+02:00 stdout P half of", "half of",
         {"stamp": stamp("2024-05-01 10:00:00.1", 100 * MS, 7200), "stream": "stdout",
          "names": ["cri-partial"]}),
        ("[pod/train-worker-2/pytorch] x", "x",
         {"host": "train-worker-2", "pod": True, "names": ["kubectl"]}),
        ("train-worker-2 pytorch x", "x",
         {"host": "train-worker-2", "pod": True, "names": ["stern"]}),
        ("web-5d4f8c7b9-x2x4z proxy 2024-05-01T10:00:00Z x", "x",
         {"host": "web-5d4f8c7b9-x2x4z", "stamp": stamp("2024-05-01 10:00:00", offset=0),
          "pod": True, "names": ["stern", "iso"]}),
        ("train-worker-1  | [rank3]: x", "x",
         {"host": "train-worker-1", "rank": 3, "names": ["compose", "rank"]}),
        ("worker_2   | x", "x", {"host": "worker_2", "names": ["compose"]}),
        ("loss_2 | x", "loss_2 | x", {}),
        # Ray and vLLM
        ("(WorkerDict pid=6902, ip=10.0.0.2) x [repeated 7x across cluster]", "x",
         {"actor": "WorkerDict", "pid": 6902, "host": "10.0.0.2", "repeated": 7,
          "names": ["ray"]}),
        ("(f(a, b) pid=7) x", "x", {"actor": "f(a, b)", "pid": 7, "names": ["ray"]}),
        ("(pid=7) x", "x", {"pid": 7, "names": ["ray"]}),
        ("(raylet, ip=10.0.0.1) x", "x",
         {"actor": "raylet", "host": "10.0.0.1", "names": ["ray"]}),
        ("(raylet)", "", {"actor": "raylet", "names": ["ray"]}),
        ("(autoscaler +1m2s) Error", "Error", {"actor": "autoscaler", "names": ["ray"]}),
        ("(VllmWorkerProcess pid=123) x", "x",
         {"actor": "VllmWorkerProcess", "pid": 123, "names": ["ray"]}),
        ("(VllmWorker rank=3 pid=123) x", "x",
         {"actor": "VllmWorker", "rank": 3, "pid": 123, "names": ["ray"]}),
        ("(Worker_TP3 pid=123) x", "x",
         {"actor": "Worker_TP3", "group_rank": 3, "pid": 123, "names": ["ray"]}),
        ("(VllmWorker PP1 pid=123) x", "x",
         {"actor": "VllmWorker PP1", "group_rank": 1, "pid": 123, "names": ["ray"]}),
        ("(Worker_TP2_EP2 pid=123) x", "x",
         {"actor": "Worker_TP2_EP2", "group_rank": 2, "pid": 123, "names": ["ray"]}),
        # of two kinds of group neither number is that of all
        ("(Worker_DP1_TP0 pid=123) x", "x",
         {"actor": "Worker_DP1_TP0", "pid": 123, "names": ["ray"]}),
        # no worker, and number 0 where nothing is parallel
        ("(EngineCore_DP0 pid=123) x", "x",
         {"actor": "EngineCore_DP0", "pid": 123, "names": ["ray"]}),
        # a node's rank (SkyPilot), not the process's
        ("(worker1, rank=1, pid=9, ip=10.0.0.3) x", "x",
         {"actor": "worker1", "task": 1, "pid": 9, "host": "worker1", "names": ["ray"]}),
    ],
)  # fmt: skip
def test_says(line: str, message: str, expected: dict[str, Any]) -> None:
    prefix = peel(line)

    assert said(prefix) == expected
    assert prefix.message == message


@pytest.mark.parametrize(
    "line",
    [
        "Error: x",
        "File: x",
        "RuntimeError: x",
        "slurmstepd: error: *** STEP 123.0 ON node01 CANCELLED",
        "srun: error: node01: task 1: Exited with exit code 1",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028",
        "step100: x",
        "cuda-12.1: x",
        "gpu0: 70 C",
        "eth0: link down",
        "model.layers.12.weight: missing",
        "pdsh@node01: worker-1: ssh exited with exit code 255",
        "6: [horovod_allreduce.0, horovod_allreduce.1",
        "0: [broadcast.bool.sz]",
        "0: [1, 2, 3]",
        "[0]:",
        "[0/3] x",
        "[1] finished collective #2, but didn't join collective #3 (count from 1)",
        "[main.py:12] x",
        "[Gloo] Rank 0 is connected",
        "job-worker-3 exited with code 1",
        "(base) user@host:~$ python train.py",
        "10:20: x",
    ],
)
def test_leaves_alone(line: str) -> None:
    prefix = peel(line)

    assert prefix.message == line
    assert said(prefix) == {}


def test_hosts_of_the_job_are_recognised_whatever_their_names() -> None:
    prefix = peel("trinity: x", hosts={"trinity"})

    assert (prefix.host, prefix.message) == ("trinity", "x")
    assert peel("neo: x", hosts={"trinity"}).host is None


@pytest.mark.parametrize(
    "token",
    ["node01", "worker-0", "ip-10-0-5-7", "c000001", "trn123", "dgx39", "192.168.0.1", "host2",
     "compute-0-1", "train-job-worker-2", "mycluster-gpu-12", "nid001234", "gpu12.example.org",
     "ip-10-0-5-7.ec2.internal", "algo-1", "v100x16-2", "a100-01", "h100-sxm-3"],
)  # fmt: skip
def test_node_like(token: str) -> None:
    assert node_like(token)


@pytest.mark.parametrize(
    "token",
    ["gpu0", "step-100", "checkpoint-500", "cu118", "torch-2.1", "libnccl.so.2", "python3.10",
     "layer.0.weight", "fp16", "H100", "bert-base-12", "md0", "nvme0n1", "mlx5_0", "Error", "",
     "node", "seed1234", "llama-3", "a100-40gb"],
)  # fmt: skip
def test_not_node_like(token: str) -> None:
    assert not node_like(token)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("x [repeated 7x across cluster]", ("x", 7)),
        (
            "x [repeated 2x across cluster] (Ray deduplicates logs by default. Set "
            "RAY_DEDUP_LOGS=0 to disable log deduplication, or see https://docs.ray.io)",
            ("x", 2),
        ),
        ("x [repeated 7x across cluster] more", ("x [repeated 7x across cluster] more", 1)),
        ("x [repeated many]", ("x [repeated many]", 1)),
    ],
)
def test_repeated(message: str, expected: tuple[str, int]) -> None:
    assert repeated(message) == expected
    prefix = peel("(A pid=1) " + message)
    assert (prefix.message, prefix.repeated) == expected
