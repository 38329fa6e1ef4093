"""Who ends a job of which a process had died is no cause of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose
from diagnose.diagnosis import Diagnosis

STEPS = [f"step {number} loss 2.{9 - number}" for number in range(1, 8)]
HEADER = "Traceback (most recent call last):"
MAIN = ['  File "/w/t.py", line 2, in <module>', "    main()"]
LIMIT = "=>> PBS: job killed: walltime 2900 exceeded limit 2880"
LATER = [f"step {number} loss 1.{99 - number}" for number in range(8, 60)]


def judged(*lines: str) -> Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join([*STEPS, *lines]) + "\n"))


@pytest.mark.parametrize(
    "death",
    [
        [HEADER, *MAIN, "ValueError: expected 2 columns, got 3"],
        [HEADER, *MAIN, "DatasetExhausted"],  # no entry knows it, but it ended the process
    ],
)
def test_an_exception_before_the_limit_is_the_cause(death: list[str]) -> None:
    found = judged(*death, "[rank1] waiting", LIMIT)
    assert found.root_cause.cause == "crash.exception"
    (lost,) = [one for one in found.reasons if one.step == "rival" and one.outcome == "lost"]
    assert (lost.subject, lost.beaten_by, lost.predicate) == (
        "scheduler.limit", "crash.exception", "ended_after_a_death",
    )  # fmt: skip


def test_a_limit_alone_is_the_cause() -> None:
    found = judged(LIMIT)
    assert (found.root_cause.cause, found.root_cause.confidence) == ("scheduler.limit", "high")


def test_an_exception_that_the_job_survived_is_none() -> None:
    found = judged("ValueError: expected 2 columns, got 3", *LATER, LIMIT)
    assert found.root_cause.cause == "scheduler.limit"


def test_an_exception_of_the_program_needs_no_order(tmp_path: Path) -> None:
    (tmp_path / "sft-7-0.out").write_text("\n".join([*STEPS, HEADER, *MAIN, "KeyError: 'x'\n"]))
    (tmp_path / "sft-7-1.out").write_text("\n".join(STEPS))
    (tmp_path / "slurm-7.out").write_text(
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-05-03T22:07:50 DUE TO TIME LIMIT "
        "***\n"
    )
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert found.root_cause.cause == "crash.exception"


def test_an_error_without_a_known_form_makes_the_limit_less_sure() -> None:
    found = judged("shardio.errors.ShardMismatch: shard 654 holds 4095 samples", LIMIT)
    assert found.root_cause.confidence != "high"


def test_who_reports_that_a_rank_died_is_not_the_one_that_died() -> None:
    lines = [
        *(f"[rank{rank}] step {step} loss 2.0" for step in (1, 2, 3) for rank in (0, 1)),
        "[rank0] ERROR: rank 2 died unexpectedly (exit code 1)",
    ]
    found = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (found.verdict, found.culprits.ranks) == ("failed", [2])
