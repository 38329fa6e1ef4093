"""A log that fell silent long before somebody sent SIGTERM."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose
from diagnose.diagnosis import Diagnosis

STEP = "[2026-11-27 04:25:{:02},451] [INFO] train: step {}/1000 loss 7.0395 lr 1.00e-03 time 0.6s\n"
SAVING = "[2026-11-27 04:25:40,817] [INFO] train: Saving checkpoint to /out/checkpoint-8\n"
EVENT = "W1127 04:{}.943000 458 torch/distributed/elastic/agent/server/api.py:739] "
ENDED = (
    EVENT + "Received 15 death signal, shutting down workers\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 458 got signal: 15\n"
)


def told(folder: Path, *lines: str) -> Diagnosis:
    steps = [STEP.format(33 + number, number) for number in range(8)]
    (folder / "console.log").write_text("".join([*steps, *lines]))
    return diagnose.diagnose(diagnose.load(folder))


def test_what_it_had_begun_is_a_lead(tmp_path: Path) -> None:
    found = told(tmp_path, SAVING, ENDED.format("26:05"))
    assert (found.verdict, found.root_cause.cause) == ("hung", "slow.checkpoint")
    assert found.root_cause.confidence == "low"
    assert "fell silent while it was saving a checkpoint, 25" in found.root_cause.summary


def test_without_a_phase_the_cause_is_unknown(tmp_path: Path) -> None:
    found = told(tmp_path, ENDED.format("26:55"))
    assert (found.verdict, found.root_cause.cause) == ("hung", "unknown")
    assert "who sent the signal" in found.root_cause.summary


@pytest.mark.parametrize(
    "lines",
    [
        (ENDED.format("25:43"),),  # amid the steps
        (*["eval 50/3000\n"] * 5, ENDED.format("26:55")),  # other lines were printed meanwhile
    ],
)
def test_a_job_at_work_that_was_ended_did_not_hang(tmp_path: Path, lines: tuple[str, ...]) -> None:
    found = told(tmp_path, *lines)
    assert (found.verdict, found.root_cause.cause) == ("failed", "scheduler.preempted")
