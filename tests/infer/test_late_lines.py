"""Lines after a wait, or in place of one: who printed them is no culprit by that alone."""

from __future__ import annotations

import pytest

import diagnose
from diagnose.diagnosis import Diagnosis

STEPS = [f"step {number} loss 2.{9 - number}" for number in range(1, 8)]
TIMEOUT = (
    "[rank1]:[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=63, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600017 milliseconds before timing out."
)
SYMBOL = "Can't find nvmlDeviceGetNvLinkRemoteDeviceType: /lib/libnvidia-ml.so.1: undefined symbol"
DEEPEP = "DeepEP timeout for dispatch receivers, rank 3, responsible_channel = 1"
FLAG = "combine: ---Rank 3 timed out waiting for completion flag from rank 5"
SIGNAL = (
    "[FATAL] CUDASymmetricMemory::barrier: rank 3 failed to receive signal from rank 5 on "
    "channel 0 after 60000 microseconds"
)
HEADER = "Traceback (most recent call last):"
RAISED = [HEADER, '  File "/w/t.py", line 2, in <module>', "    main()"]
LAUNCH = "RuntimeError: CUDA error: unspecified launch failure"
HEADING = (
    "Exception raised from ncclCommWatchdog at ../torch/csrc/distributed/c10d/"
    "ProcessGroupNCCL.cpp:1521 (most recent call first):"
)


def judged(*lines: str) -> Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join([*STEPS, *lines]) + "\n"))


def test_no_timeout_brings_about_a_missing_symbol() -> None:
    found = judged(TIMEOUT, SYMBOL)
    assert (found.verdict, found.root_cause.cause) == ("failed", "env.version")
    assert found.root_cause.confidence == "medium"


@pytest.mark.parametrize(
    "lines",
    [
        [DEEPEP, *(f"[rank3]: {line}" for line in (*RAISED, LAUNCH))],
        [f"[rank3]: {line}" for line in (*RAISED, "RuntimeError: DeepEP error: CPU recv timeout")],
        [FLAG, *(f"[rank3]: {line}" for line in (*RAISED, LAUNCH))],
        [SIGNAL, *(f"[rank3]: {line}" for line in (*RAISED, LAUNCH))],
    ],
)
def test_who_lacks_signals_or_tokens_is_a_victim_of_its_peers(lines: list[str]) -> None:
    """Its kernel stops itself, which reads as a failed launch."""
    found = judged(*lines)
    assert found.root_cause.cause == "desync.missing_rank"
    assert (found.culprits.ranks, found.culprits.hosts) == ([], [])


def test_a_failed_launch_alone_is_of_its_rank() -> None:
    found = judged(*(f"[rank3]: {line}" for line in (*RAISED, LAUNCH)))
    assert (found.root_cause.cause, found.culprits.ranks) == ("crash.cuda_error", [3])


def test_a_peer_that_died_is_why_tokens_are_lacking() -> None:
    memory = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    found = judged(memory, DEEPEP, *(f"[rank3]: {line}" for line in (*RAISED, LAUNCH)))
    assert (found.root_cause.cause, found.culprits.ranks) == ("crash.gpu_oom", [5])


def test_a_job_of_which_the_stack_of_a_watchdog_is_left_is_not_at_work() -> None:
    assert judged().verdict == "running"
    found = judged(HEADING, "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96")
    assert (found.verdict, found.root_cause.cause) == ("failed", "unknown")


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Failed to destroy CXI Service ID 5 (cxi0): Device or resource busy",
        "slurmstepd: error: switch_g_job_postfini: Device or resource busy",
        "wandb: Network error (ConnectionError), entering retry loop.",
    ],
)
def test_what_a_job_leaves_behind_fails_no_job(line: str) -> None:
    assert judged("Training completed.", line).verdict == "healthy"
    assert judged(line, *STEPS).verdict == "running"


@pytest.mark.parametrize(
    "warning",
    [
        "libibverbs: Warning: couldn't load driver 'libmlx4.so': libmlx4.so: cannot "
        "open shared object file: No such file or directory",
        "UserWarning: Failed to load image Python extension: '/x/image.so: undefined symbol: _ZN3'",
    ],
)
def test_a_driver_that_nobody_asks_for_is_no_reason_of_a_hang(warning: str) -> None:
    alone = diagnose.diagnose(diagnose.load_text(f"{warning}\n"))
    assert alone.root_cause.cause in ("none", "unknown")
    hung = diagnose.diagnose(diagnose.load_text(f"{warning}\n{TIMEOUT}\n"))
    assert (hung.verdict, hung.root_cause.cause) == ("hung", "desync.missing_rank")


ACCEPTED = "22/05/28 01:20:15 WARN TaskSchedulerImpl: Initial job has not accepted any resources"
ENDED = [
    "22/05/28 01:21:40 INFO BlockManagerMasterEndpoint: Registering block manager node1:41233",
    "22/05/28 01:22:40 INFO DAGScheduler: Job 0 finished: collect at train.py:31, took 100.1 s",
    "epoch 3 loss 0.1",
    "22/05/28 01:25:29 INFO SparkContext: Successfully stopped SparkContext",
]


@pytest.mark.parametrize(("lines", "verdict"), [([], "failed"), (ENDED, "running")])
def test_executors_are_lacking_only_where_none_came(lines: list[str], verdict: str) -> None:
    found = diagnose.diagnose(diagnose.load_text("\n".join([ACCEPTED, *lines]) + "\n"))
    assert found.verdict == verdict


@pytest.mark.parametrize(
    "line", ["DeepEP dispatch receiver timeout: 300 s", "invalid value in the business card of n1"]
)
def test_a_last_line_that_only_sounds_like_a_failed_start_is_none(line: str) -> None:
    assert judged(line).verdict == "running"
