"""The jobs that the fuzzer starts from are what they claim to be."""

from __future__ import annotations

from random import Random

import pytest

from diagnose.diagnosis import WELL
from tests.fuzz import corpus, oracles
from tests.fuzz.synthetic import FAULTS, LAYOUTS, Run, files_of


def test_all_fixtures_and_all_synthetic_jobs_are_there() -> None:
    names = corpus.names()
    assert len(names) == len(set(names))
    assert {"lab-sigkill", "healthy-lab-ddp", "lab none teed", "lab sigkill by_rank"} <= set(names)
    assert sum(name.startswith("lab ") for name in names) == len(FAULTS) * len(LAYOUTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_synthetic_jobs_are_diagnosed(fault: str) -> None:
    diagnosis = corpus.outcome(f"lab {fault} tagged").diagnosis
    assert diagnosis is not None
    assert (diagnosis.verdict in WELL) == (fault == "none")


def test_what_is_known_of_a_failed_job() -> None:
    case = corpus.case("lab-sigkill")
    assert [file.name for file in case.files] == ["console.log"]
    assert case.tame == frozenset()
    (console,) = case.files
    assert b"[default0]:  Num Epochs = 1" in console.spare
    assert not [line for line in console.spare if b"exitcode" in line or b"'loss'" in line]
    told = {fatal.text for fatal in oracles.fatal_lines(case)}
    assert "exitcode  : -9 (pid: 6745)  (SIGKILL)" in told


def test_what_is_known_of_a_healthy_job() -> None:
    case = corpus.case("healthy-verl-ray")
    assert case.fatal == frozenset()
    assert case.tame
    assert list(oracles.fatal_lines(case)) == []


def test_dumps_are_no_logs() -> None:
    files = corpus.case("flight-recorder-mismatch").files
    assert not any(file.log for file in files)


def test_the_lines_of_a_synthetic_job() -> None:
    run = Run("sigsegv", world=2, culprit=1, steps=3, at=1, further=1, summary=False)
    rank_0 = b"***** Running training *****\n  Total optimization steps = 3\n"
    rank_0 += b"step 1/3 loss 2.4900\nstep 2/3 loss 2.4800\n"
    rank_1 = b"step 1/3 loss 2.4900\nSegmentation fault (core dumped)\n"
    assert files_of(run, "by_rank", Random(0)) == {"rank_0.log": rank_0, "rank_1.log": rank_1}
    (console,) = files_of(run, "tagged", Random(0)).values()
    of_1 = [line for line in console.splitlines() if line.startswith(b"[rank1]: ")]
    assert of_1 == [b"[rank1]: " + line for line in rank_1.splitlines()]
