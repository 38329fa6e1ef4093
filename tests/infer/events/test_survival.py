"""What a job outlived is no failure of it; a crash that others outlive for a moment is one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import diagnose
from diagnose.diagnosis import WELL, Diagnosis

OOM = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 34.00 MiB "
    "(GPU 0; 39.42 GiB total capacity; 34.82 GiB already allocated; 15.00 MiB free)"
)
CRASH = [
    "Traceback (most recent call last):",
    '  File "/home/me/eval.py", line 9, in <module>',
    OOM,
]
EXITS = (
    "E0101 12:00:00.000 torch/distributed/elastic/multiprocessing/api.py:833] failed "
    "(exitcode: 1) local_rank: 3 (pid: 12) of binary: /usr/bin/python"
)
NVML = (
    "node1:500:512 [0] misc/nvmlwrap.cc:100 NCCL WARN nvmlInit_v2() failed: "
    "Driver/library version mismatch"
)
INIT = (
    "node1:{pid}:{pid} [{rank}] NCCL INFO comm 0x5581 rank {rank} nranks {size} cudaDev {rank} "
    "busId {rank}b000 commId 0x77 - Init COMPLETE"
)


def bar(step: int, clock: str, total: int = 5153) -> str:
    """A state of a bar without a name."""
    return f" {100 * step // total}%|###   | {step}/{total} [{clock}<3:26:07,  4.38s/it]"


def steps(numbers: Iterable[int], rank: int | None = None) -> list[str]:
    """Lines of a training, of a rank or signed by nobody."""
    whose = "" if rank is None else f"[rank{rank}]: "
    return [f"{whose}iteration {number}/ 500 | loss: 1.0" for number in numbers]


def told(*lines: str) -> Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))


def verdict(*lines: str) -> str:
    return told(*lines).verdict


CAUGHT = [bar(2000, "2:30:00"), *CRASH, bar(2184, "2:45:27"), *CRASH]


@pytest.mark.parametrize(
    ("step", "clock"),
    [(2184, "2:45:30"), (2186, "2:45:30"), (2186, "2:55:30"), (2332, "2:45:37"), (2332, "2:56:01")],
)
def test_an_uncaught_exception_is_the_end_whatever_bars_do(step: int, clock: str) -> None:
    result = told(*CAUGHT, bar(step, clock))
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.gpu_oom")


def test_two_bars_that_are_closed_below_a_crash_count_nothing() -> None:
    before = [bar(2, "2:40:00", total=10), bar(2180, "2:45:26")]
    for closed in (
        [bar(2, "2:45:30", total=10), bar(2184, "2:45:30")],
        [bar(2184, "2:45:30"), bar(2, "2:45:30", total=10)],
    ):
        assert verdict(*before, *CRASH, *closed) == "failed"


def test_an_error_in_the_last_step_ends_the_job() -> None:
    assert verdict(*steps(range(1, 501)), *CRASH) == "failed"


def test_a_few_steps_of_others_behind_a_crash_are_no_survival() -> None:
    before = [line for n in range(1, 30) for rank in range(4) for line in steps([n], rank)]
    died = [f"[rank3]: {line}" for line in CRASH]
    after = [line for n in range(30, 33) for rank in range(3) for line in steps([n], rank)]
    result = told(*before, *died, *after)
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.gpu_oom")


def test_a_rank_that_signs_no_steps_lives_while_the_training_goes_on() -> None:
    joined = [INIT.format(pid=500 + rank, rank=rank, size=4) for rank in range(4)]
    died = [f"[rank3]: {line}" for line in CRASH]
    raised = [f"[rank3]: {OOM}"]
    before = steps(range(1, 30))
    assert verdict(*joined, *before, *raised, *steps(range(30, 61))) == "running"
    assert verdict(*joined, *before, *died, *steps(range(30, 61))) == "failed"
    assert verdict(*joined, *before, *raised, *steps(range(30, 33))) == "failed"
    assert verdict(*joined, *before, *raised, *steps(range(30, 61)), EXITS) == "failed"


def test_an_error_of_rank_0_at_its_start_is_survived_by_the_steps_that_nobody_signs() -> None:
    joined = INIT.format(pid=500, rank=0, size=1)
    assert verdict(NVML, joined, *steps(range(1, 60))) == "running"
    assert verdict(NVML, joined) == "failed"
    assert verdict(*steps(range(1, 60)), NVML) == "failed"


def test_a_crash_behind_a_restart_is_no_survival() -> None:
    again = [*steps(range(1, 200)), *CRASH]
    assert verdict(*again, *again) == "failed"
    assert verdict(*again, EXITS, *again, EXITS) == "failed"


def test_the_exit_report_of_the_launcher_outweighs_steps() -> None:
    assert verdict(*CRASH, *steps(range(1, 200)), EXITS) == "failed"


def test_a_hang_behind_a_survived_error_is_a_hang() -> None:
    watchdog = (
        "[rank1]:[E602 08:25:11.1234567 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1000, "
        "NumelOut=1000, Timeout(ms)=600000) ran for 601000 milliseconds before timing out."
    )
    result = told(*CRASH, *steps(range(1, 200)), watchdog)
    assert result.verdict not in WELL


def test_a_dead_actor_of_ray_is_not_outlived_by_the_others() -> None:
    died = "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task."
    others = [f"(Worker pid=7{n % 3}) iteration {n}/ 500 | loss: 1.0" for n in range(30, 33)]
    assert verdict(*steps(range(1, 30)), "Traceback (most recent call last):", died) == "failed"
    assert verdict(*others, died) == "failed"


CLOSES = "node1:50{0}:53{0} [{0}] NCCL INFO [Service thread] Connection closed by localRank {1}"
ABORTS = (
    "node1:50{0}:54{0} [0] NCCL INFO comm 0x5581 rank {0} nranks 4 cudaDev {0} - Abort COMPLETE"
)
LEAVING = [form.format(rank, rank) for rank in range(4) for form in (CLOSES, ABORTS)]


def test_communicators_that_close_behind_the_last_step_are_no_failure() -> None:
    assert verdict(*steps(range(1, 500)), *LEAVING) == "running"
    assert verdict(*steps(range(1, 500)), "Training completed.", *LEAVING) == "healthy"


@pytest.mark.parametrize(
    "lines",
    [
        [*steps(range(1, 100)), *LEAVING],  # amid the work
        [*steps(range(1, 500)), *[CLOSES.format(rank, 3) for rank in range(3)]],  # another's
        [*steps(range(1, 500)), *CRASH, *LEAVING],
        [*steps(range(1, 500)), *LEAVING, EXITS],
    ],
)
def test_communicators_that_close_otherwise_are_no_end_in_order(lines: list[str]) -> None:
    assert verdict(*lines) not in WELL


def test_an_exception_that_was_survived_loses_to_who_cancelled_the_job() -> None:
    raised = ["Traceback (most recent call last):", "ValueError: no statistics were found"]
    cancelled = "slurmstepd: error: *** JOB 334949 ON node1 CANCELLED AT 2026-01-06T04:52:18 ***"
    assert told(*raised, *steps(range(1, 400)), cancelled).root_cause.cause == "user.interrupt"
    assert told(*steps(range(1, 400)), *raised, cancelled).root_cause.cause == "crash.exception"


SERVED = 'INFO:     127.0.0.1:4{} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
RAISED = [
    "ERROR 06-16 14:16:20 [serving_chat.py:251] Traceback (most recent call last):",
    "ERROR 06-16 14:16:20 [serving_chat.py:251]     raise ValueError(",
]
REFUSED = (
    "ERROR 06-16 14:16:20 [serving_chat.py:251] ValueError: This model's maximum context length "
    "is 6144 tokens. However, your request has 6290 input tokens."
)


def test_the_code_that_refused_a_request_is_no_error_of_the_server() -> None:
    served = [f"(APIServer pid=7) {SERVED.format(n)}" for n in range(100, 180)]
    refused = [f"(APIServer pid=7) {line}" for line in (*RAISED, REFUSED)]
    assert verdict(*served, *refused, *served * 2) == "running"
    assert verdict(*served, *refused[:-1], *served * 2) == "running"
    assert verdict(*served, *refused[:-1], *served[:40]) == "running", "the same process answers"
    other = [f"(APIServer pid=7) {line}" for line in (*RAISED, "RuntimeError: nobody knows this")]
    assert verdict(*served, *other) != "running"


def test_what_is_skipped_on_the_line_that_reports_it_is_survived_by_the_next_phase() -> None:
    ordinal = (
        "Failed to load b.ckpt: Attempting to deserialize object on CUDA device 7 "
        "but torch.cuda.device_count() is 6."
    )
    saved = "Saved summary results to: out/summary.csv"
    before = steps(range(1, 30))
    assert verdict(*before, f"[skip] {ordinal}", saved) == "running"
    assert verdict(*before, ordinal, saved) == "failed"
    assert verdict(*before, saved, f"[skip] {ordinal}") == "failed"


RUN = ["params: test", "Loading checkpoint shards: 100%|####| 4/4 [00:09<00:00,  2.4s/it]"]
ANSWERS = "Running loglikelihood requests: 100%|####| 300/300 [16:30<00:00,  3.3s/it]"


def test_a_crash_is_not_sure_where_a_run_begins_below_it_and_works() -> None:
    # Two runs write into one file at the same time, then a third one; nothing shows who died.
    both = [*RUN, *RUN, OOM]
    assert told(*both).root_cause.confidence == "high"
    assert told(*both, *RUN[:1]).root_cause.confidence == "high"
    assert told(*both, *RUN, ANSWERS).root_cause.confidence == "medium"


DEAD = [
    "[rank0]: Segmentation fault (core dumped)",
    EXITS.replace("local_rank: 3", "local_rank: 0").replace("exitcode: 1", "exitcode: -11"),
]
LEFT = (
    "[rank0]:[W304 09:31:44.077 ProcessGroupNCCL.cpp:1496] Warning: WARNING: "
    "destroy_process_group() was not called before program exit, which can leak resources."
)


def test_a_rank_that_exited_does_not_end_well_later() -> None:
    assert verdict(*steps(range(9)), *DEAD, *steps(range(9, 40)), LEFT) == "failed"


def test_what_is_fatal_does_not_pass_by_one_step_of_the_others() -> None:
    steps = [f"2026-08-14T03:0{n}:59Z INFO rank=0 step {n}00/2330 | loss 2.4{n}" for n in range(8)]
    fatal = "FATAL: cannot allocate optimizer state"
    found = diagnose.diagnose(diagnose.load_text("\n".join([*steps[:7], fatal, steps[7]]) + "\n"))
    assert found.verdict not in ("healthy", "running")


def test_a_weak_word_of_a_death_counts_where_its_rank_makes_no_more_steps() -> None:
    lines = [f"{rank}: Step [{n}00/9000], Loss: 1.4" for n in range(40) for rank in range(4)]
    found = diagnose.diagnose(
        diagnose.load_text(
            "\n".join([*lines[:40], "2: Bus error (core dumped)"])
            + "\n"
            + "\n".join(line for line in lines[40:] if not line.startswith("2:"))
            + "\n"
        )
    )
    assert found.verdict == "failed"


def test_a_pod_in_error_is_no_symptom_of_an_end(tmp_path: Path) -> None:
    stamp = "[pod/w-0/pytorch] 2026-03-27T17:0{}:05.1Z {{'loss': 8.{}, 'epoch': 0.{}}}"
    log = [stamp.format(n, n, n) for n in range(9)]
    log.append("[pod/w-0/pytorch] 2026-03-27T17:14:48.5Z {'train_runtime': 355.6, 'epoch': 1.0}")
    (tmp_path / "pods.log").write_text("\n".join(log) + "\n")
    pods = "w-{}    1/1     {}     0          2m"
    states = ["NAME    READY   STATUS   RESTARTS   AGE", pods.format(0, "Running")]
    for state, healthy in (("Running", True), ("Error", False)):
        (tmp_path / "kubectl.txt").write_text("\n".join([*states, pods.format(3, state)]) + "\n")
        assert (diagnose.diagnose(diagnose.load(tmp_path)).verdict == "healthy") is healthy
