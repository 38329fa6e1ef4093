"""A job that somebody ended from outside while it worked, in its own rhythm, was ended by that."""

from __future__ import annotations

import pytest

import diagnose

DAY = "2026-03-22"


def judged(end: str, *, minute: int) -> diagnose.Diagnosis:
    steps = [f"{DAY} 18:{at:02}:{second} step {at * 2 + half} loss 2.1"
             for at in range(9) for half, second in ((0, "05"), (1, "35"))]  # fmt: skip
    text = "\n".join([*steps, end.format(time=f"18:{minute:02}:50")])
    return diagnose.diagnose(diagnose.load_text(f"{text}\n"))


@pytest.mark.parametrize(
    "end",
    [
        f"{DAY} {{time}} entrypoint.sh: received SIGTERM, stopping children",
        f"slurmstepd: error: *** STEP 33895.0 ON gpu60 CANCELLED AT {DAY}T{{time}} ***\n"
        "srun: error: gpu60: tasks 0-3: Terminated",
    ],
)
def test_whether_it_worked_decides_between_the_end_and_a_hang(end: str) -> None:
    at_work = judged(end, minute=8)
    assert (at_work.verdict, at_work.root_cause.cause) == ("failed", "scheduler.preempted")
    assert (at_work.root_cause.confidence, at_work.culprits.ranks) == ("low", [])
    silent = judged(end, minute=58)
    assert (silent.verdict, silent.root_cause.cause) == ("hung", "unknown")


def test_who_was_stopped_because_another_task_failed_was_not_the_cause() -> None:
    step = f"slurmstepd: error: *** STEP 33895.0 ON gpu60 CANCELLED AT {DAY}T{{time}} ***"
    tasks = "srun: error: gpu60: tasks 0-2: Terminated"
    failed = "srun: error: gpu60: task 3: Exited with exit code 1"
    found = judged(f"{failed}\n{step}\n{tasks}", minute=8)
    assert found.root_cause.cause == "crash.exception"
