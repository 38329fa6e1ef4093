"""The oracles see what they are for, and do not cry wolf. The engine has no part in it."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from diagnose.diagnosis import Culprits, Diagnosis, RootCause
from tests import archives
from tests.fuzz import oracles
from tests.fuzz.case import Case, Outcome, job

TRACEBACK = "Traceback (most recent call last):\n"
STEPS = "step 7 loss 2.1\nstep 8 loss 2.0\n"
OF_RANK_4 = "[rank4]: step 7 loss 2.1\n[rank4]: step 8 loss 2.0\n"


def outcome(
    case: Case, verdict: str = "healthy", cause: str = "none", level: str = "medium"
) -> Outcome:
    root = RootCause(cause, "", "", level)  # type: ignore[arg-type]
    return Outcome(case, Diagnosis(verdict, root))  # type: ignore[arg-type]


FATAL = {
    "at the end": STEPS + "torch.OutOfMemoryError: CUDA out of memory.\n",
    "of another rank": "[rank3]: " + TRACEBACK + OF_RANK_4,
    "of another actor": "(Worker pid=41) " + TRACEBACK + "(Worker pid=42) step 7 loss 2.1\n",
    "of the agent": "[default3]: Killed\n[default4]:step 9 loss 2.0\n",
    "cut inside": STEPS + TRACEBACK + '  File "train.py", line 3, in <mod',
    "killed": STEPS + "Killed\n",
    "exit code": STEPS + "ERROR: job failed with exit code 137",
    "exit status": STEPS + "srun: error: g12: task 3: Exited with exit code 1\n",
    "summary": STEPS + "  exitcode  : -9 (pid: 6745)  (SIGKILL)\n",
    "signal": STEPS + "Killed by signal 9.\n",
    "panic": STEPS + "panic: runtime error: index out of range\n",
    "slurm": STEPS + "slurmstepd: error: *** JOB 7 ON g12 CANCELLED AT 2024-08-08T13:01:55 DUE TO",
    "watchdog": STEPS + "[Rank 0] Watchdog caught collective operation timeout",
    "quoted": "> step 7 loss 2.1\n> Killed\n",
    "coloured": STEPS + "\x1b[31mKilled\x1b[0m\n",
    "among NULs": STEPS + "\0\0Kil\0led\0\n",
    "behind a bar": "10%|#   | 1/10\r" + TRACEBACK,
    "ignored one before": "Exception ignored in: <f>\n" + TRACEBACK + STEPS + TRACEBACK,
}  # fmt: skip

NO_FATAL = {
    "steps": STEPS,
    "the same rank goes on": "[rank3]: " + TRACEBACK + "[rank3]: step 9 loss 2.0\n",
    "the process goes on": TRACEBACK + STEPS,
    "restarted": "Killed\nRestarting worker group\n",
    "said to be done": TRACEBACK + "Training completed.\n",
    "ignored": STEPS + "Exception ignored in: <function A.__del__>\n" + TRACEBACK,
    "exit code 0": STEPS + "Process 4711 exited with code 0\n",
    "a word inside": STEPS + "Killed 3 idle workers\nexit codes are kept\n",
}


@pytest.mark.parametrize("name", FATAL)
def test_healthy_over_a_fatal_line_is_seen(name: str) -> None:
    case = job("x", {"rank_0.log": b"step 1 loss 1\n", "train.log": FATAL[name].encode()})
    assert (oracles.not_well(outcome(case)) or "").startswith("train.log:")
    assert oracles.not_well(outcome(case, verdict="running"))
    assert oracles.not_well(outcome(case, verdict="unknown")) is None


@pytest.mark.parametrize("name", NO_FATAL)
def test_healthy_without_a_fatal_line_is_fine(name: str) -> None:
    case = job("x", {"train.log": NO_FATAL[name].encode()})
    assert oracles.not_well(outcome(case)) is None


def test_progress_in_another_file_is_of_another_author() -> None:
    files = {"rank_3.log": TRACEBACK.encode(), "rank_4.log": STEPS.encode()}
    assert oracles.not_well(outcome(job("x", files))) == f"rank_3.log:1: {TRACEBACK.strip()}"


def test_attempts_before_the_last_do_not_count() -> None:
    first = {"l/attempt_0/3/stderr.log": TRACEBACK.encode()}
    last = {"l/attempt_1/3/stderr.log": STEPS.encode()}
    assert oracles.not_well(outcome(job("x", first)))
    assert oracles.not_well(outcome(job("x", first | last))) is None


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"Killed\n"),
        "\ufeffKilled\n".encode(),
        b"\xff\xfe" + "Killed\n".encode("utf-16-le"),
        b"\xfe\xff" + "Killed\n".encode("utf-16-be"),
    ],
    ids=["gzip", "mark", "little", "big"],
)
def test_fatal_lines_are_seen_however_encoded(data: bytes) -> None:
    (found,) = oracles.fatal_lines(job("x", {"a.log": data}))
    assert (found.file, found.line, found.text) == ("a.log", 1, "Killed")


@pytest.mark.parametrize("name", archives.PACK)
def test_fatal_lines_are_seen_in_archives(name: str) -> None:
    case = job("x", {name: archives.PACK[name]({"b/a.log": b"step 1\nKilled\n"})})
    (found,) = oracles.fatal_lines(case)
    assert (found.file, found.line, found.text) == ("b/a.log", 2, "Killed")


def test_only_lines_that_are_whole_are_read_of_packed_files() -> None:
    cut = gzip.compress(b"Killed\n" * 99)[:30]
    assert list(oracles.fatal_lines(job("x", {"a.log.gz": cut}))) == []


def test_numbers_of_lines_count_line_ends_only() -> None:
    (found,) = oracles.fatal_lines(job("x", {"a.log": b"a\rb\r\nKilled\n"}))
    assert found.line == 2


def test_lines_known_from_the_catalog_are_fatal_and_those_of_healthy_jobs_are_not() -> None:
    text = b"step 1 loss 2\nthe disk is gone\n"
    assert oracles.not_well(outcome(job("x", {"a.log": text}))) is None
    known = replace(job("x", {"a.log": text}), fatal=frozenset({"the disk is gone"}))
    assert oracles.not_well(outcome(known)) == "a.log:2: the disk is gone"
    tame = replace(job("x", {"a.log": b"Killed\n"}), tame=frozenset({"Killed"}))
    assert oracles.not_well(outcome(tame)) is None


def test_healthy_though_a_file_is_cut() -> None:
    cut = replace(job("x", {"a.log": b""}), cut=True)
    assert oracles.not_well_unread(outcome(cut)) == "healthy (medium), though a file is cut"
    assert oracles.not_well_unread(outcome(cut, level="low")) is None
    assert oracles.not_well_unread(outcome(cut, "failed", "crash.killed", "high")) is None
    assert oracles.not_well_unread(outcome(job("x", {"a.log": b""}))) is None


def test_exceptions_are_told() -> None:
    case = job("x", {})
    assert oracles.no_exception(Outcome(case, error=KeyError("a"))) == "KeyError: 'a'"
    assert oracles.no_exception(Outcome(case, refused="the input is empty")) is None


def test_changes_of_a_verdict() -> None:
    case = job("x", {})
    high = outcome(case, "failed", "crash.killed", "high")
    medium = outcome(case, "failed", "crash.killed")
    other = outcome(case, "unknown", "unknown", "low")
    refused = Outcome(case, refused="no log")
    assert oracles.steady(medium, high) is None
    lost = "failed crash.killed (high) -> unknown unknown (low)"
    assert oracles.steady(other, high) == oracles.drift(other, high) == lost
    assert oracles.steady(high, other) == "unknown unknown (low) -> failed crash.killed (high)"
    assert oracles.steady(other, medium) is None
    assert oracles.drift(other, medium)
    assert oracles.steady(refused, high) == "failed crash.killed (high) -> refused"
    assert oracles.same(high, high) is None
    assert oracles.same(medium, high) == "high -> medium"
    assert oracles.same(refused, refused) is None
    accused = replace(high, diagnosis=replace(high.diagnosis, culprits=Culprits([3])))  # type: ignore[type-var]
    assert oracles.same(accused, high) == "[] -> [3]"
