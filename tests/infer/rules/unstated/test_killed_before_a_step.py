"""Processes that were killed before their first step."""

from __future__ import annotations

import pytest

import diagnose

LOADING = "Loading checkpoint shards:  50%|█████     | 1/2 [00:10<00:10, 10.00s/it]\n"
STEP = "{'loss': 2.0, 'epoch': 0.1}\n"
KILLED = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 "
    "(pid: 22) of binary: /usr/bin/python\n"
)


def told(text: str) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text(text))


def test_before_the_first_step_it_was_the_hosts_memory() -> None:
    result = told(LOADING + KILLED)
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.host_oom")
    assert (result.root_cause.confidence, result.culprits.ranks) == ("medium", [3])
    proposed = [(one.rule, one.subject) for one in result.reasons if one.step == "proposal"]
    assert ("killed_before_a_step", "crash.host_oom") in proposed
    assert result.root_cause.summary == (
        "Rank 3 was killed by SIGKILL while it was loading the model; nothing says by whom. Most "
        "often it is the kernel, because the host ran out of memory."
    )


FRAMES = """\
  traceback : Traceback (most recent call last):
    File "/w/train.py", line 136, in train
      loss.backward()
    File "/opt/site-packages/torch/autograd/graph.py", line 979, in _engine_run_backward
      return Variable._execution_engine.run_backward(
  RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:10434.
"""


@pytest.mark.parametrize("above", ["", FRAMES], ids=["nothing above it", "below a training step"])
def test_how_far_a_job_was_shows_no_part_of_a_log(above: str) -> None:
    """Who pastes the last lines has cut off the steps."""
    result = told(above + KILLED)
    assert (result.root_cause.cause, result.culprits.ranks) == ("crash.killed", [3])
    assert result.root_cause.summary == "Rank 3 was killed by SIGKILL."
    assert told("> loading model\n" + KILLED).root_cause.cause == "crash.host_oom"


def test_what_the_kill_explains_is_no_other_reason() -> None:
    late = "[W socket.cpp:1] The client socket has timed out after 600s while trying to connect\n"
    assert told(LOADING + late + KILLED).root_cause.cause == "crash.host_oom"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (STEP + KILLED, "crash.killed"),  # anybody may have sent it
        (LOADING + KILLED.replace("-9", "-11"), "crash.native"),
        (LOADING + "".join(KILLED.replace("k: 3", f"k: {n}") for n in range(4)), "crash.killed"),
        (
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME "
            "LIMIT ***\n" + KILLED,
            "scheduler.limit",
        ),
    ],
    ids=["after a step", "another signal", "all of a node", "the scheduler says so"],
)
def test_where_more_is_known(text: str, cause: str) -> None:
    assert told(text).root_cause.cause == cause


def test_an_end_of_which_nobody_saw_the_signal_is_no_kill() -> None:
    left = "mpirun has exited due to process rank 0 with PID 0 on\nnode n1 exiting improperly.\n"
    result = told("hello\n" + left)
    assert (result.verdict, result.root_cause.cause) == ("failed", "unknown")
    assert not [one for one in result.reasons if one.rule == "killed_before_a_step"]
