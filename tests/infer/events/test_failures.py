"""Errors in words that no entry knows keep a job from being called healthy."""

from __future__ import annotations

import pytest

import diagnose
from diagnose.diagnosis import Diagnosis

STEPS = [f"2026-06-02 08:15:0{n},100 INFO step {n} loss 2.{n}" for n in range(6)]
FURTHER = [f"2026-06-02 08:16:{n},100 INFO step {n} loss 1.{n}" for n in range(10, 20)]
LAST_WORDS = (
    "ERROR: job failed with exit code 137",
    "container exited with code 139",
    "Killed by signal 9.",
    "FATAL: no way on",
    "CRITICAL: the store is gone",
    "F0602 08:15:11.184123    12 trainer.cc:12] Check failed: loss == loss",
    "E0602 08:15:11.184123    12 trainer.cc:12] no way on",
    "2026-06-02 08:15:09,100 ERROR trainer no way on",
    '{"level": "error", "msg": "the trainer is gone"}',
    "[worker] process died unexpectedly, exit code: -11",
    "##[error]Process completed with exit code 137.",
    "panic: runtime error: index out of range",
    "slurmstepd: error: *** JOB 7 ON g12 CANCELLED AT 2024-08-08T13:01:55 DUE TO SOMETHING NEW ***",
    "slurmstepd: error: *** JOB 7 ON g12 CANCELLED AT 2024-08-08T13:01:55 DUE TO PREE",
    "srun: error: No",
    "Received SIGTERM, exiting",
    "loss became NaN, aborting",
    "[Rank 0] Watchdog caught collective operation timeout",
    '    raise ValueError("x',
    "Traceback (most recent call last):",
    "Pod evicted",
    "ray.exceptions.OutOfMemoryError: of a kind not seen before",
)


def verdict(*lines: str) -> Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))


@pytest.mark.parametrize("words", LAST_WORDS)
def test_a_job_that_ends_in_an_error_is_not_healthy(words: str) -> None:
    result = verdict(*STEPS, words)
    assert result.root_cause.cause == "unknown"
    assert [evidence.text for evidence in result.evidence] == [" ".join(words.split())]


@pytest.mark.parametrize("words", LAST_WORDS[:2] + LAST_WORDS[3:9])
def test_an_error_that_was_survived_is_no_alarm(words: str) -> None:
    assert verdict(*STEPS, words, *FURTHER).verdict == "healthy"


def test_the_unknown_error_is_told() -> None:
    result = verdict(*STEPS, "FATAL: no way on")
    assert result.verdict == "unknown"
    assert result.root_cause.summary == (
        "An error that the catalog does not know stands unanswered in the log: FATAL: no way on"
    )


def test_a_death_among_other_ranks_steps_is_not_survived_by_them() -> None:
    lines = [f"[rank{r}]: step {n} loss 1" for n in range(30) for r in range(4) if r != 2 or n < 5]
    lines.insert(40, "[rank2]: worker exited with code 139")
    assert verdict(*lines).verdict == "unknown"


def test_a_line_that_another_entry_knows_is_no_trouble() -> None:
    known = "ERROR:root:Unable to import wandb. falling back to the console"
    assert verdict(*STEPS, known, *FURTHER).verdict == "healthy"


def test_what_was_not_read_to_its_end_is_not_healthy() -> None:
    job = diagnose.load_text("\n".join(STEPS))
    assert diagnose.diagnose(job).verdict == "healthy"
    job.unread.append("a.log.gz: the stream is cut")
    result = diagnose.diagnose(job)
    assert (result.verdict, result.root_cause.confidence) == ("unknown", "low")
    assert result.root_cause.summary == (
        "No sign of a failure, but the input was not read to its end: a.log.gz: the stream is cut."
    )
