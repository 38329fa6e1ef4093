"""Runs that one file holds one below the other: the last one counts."""

from __future__ import annotations

from typing import Any

import pytest

import diagnose
from diagnose.infer.events.runs import last_run

from ..rows import Row, ended, marker, matched, signature, step

CANCELLED = signature("t.cancelled", "scheduler.preempted", strength="decisive")
STOPPED = signature("t.stopped", "user.interrupt", strength="weak")
OOM = signature("t.oom", "crash.gpu_oom", strength="decisive")
BEGIN = marker("init", signature="t.begin")
OTHER = marker("init", signature="t.other")
STEPS = [step(n) for n in range(12)]
DONE: Row = {"tells": "finished", "role": "context"}


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        # The program begins as before, below a death, and works.
        ([BEGIN, step(1), matched(CANCELLED), BEGIN, *STEPS], 3),
        ([BEGIN, step(1), matched(STOPPED), BEGIN, DONE], 3),
        ([BEGIN, step(1), ended(0, exitcode="1"), BEGIN, *STEPS], 3),
        ([BEGIN, step(1), matched(CANCELLED), BEGIN, step(1, line=400)], 3),
        ([BEGIN, matched(CANCELLED), BEGIN, step(1), matched(CANCELLED), BEGIN, *STEPS], 5),
        # It died again, does too little, was never seen to begin, or only another one begins.
        ([BEGIN, step(1), matched(CANCELLED), BEGIN, *STEPS, matched(CANCELLED)], 0),
        ([BEGIN, step(1), matched(CANCELLED), BEGIN, *STEPS[:9]], 0),
        ([BEGIN, step(1), matched(CANCELLED), *STEPS], 0),
        ([BEGIN, step(1), matched(CANCELLED), OTHER, *STEPS], 0),
        ([BEGIN, step(1), matched(CANCELLED), BEGIN, DONE | {"rank": 3}], 0),
        # Nothing says that the process ended.
        ([BEGIN, step(1), matched(OOM), BEGIN, *STEPS], 0),
        ([BEGIN, step(1), ended(0, exitcode="0"), BEGIN, *STEPS], 0),
    ],
)
def test_where_the_last_run_begins(make: Any, rows: list[Row], kept: int) -> None:
    lines = [{"line": number} | row for number, row in enumerate(rows, 1)]
    timeline = make(*lines)
    assert [event.index for event in last_run(timeline)] == list(range(kept, len(rows)))


def test_of_two_files_nothing_is_left_out(make: Any) -> None:
    rows = [BEGIN, step(1), matched(CANCELLED), BEGIN, *STEPS, step(1, source="other.log")]
    timeline = make(*({"line": number} | row for number, row in enumerate(rows, 1)))
    assert last_run(timeline) is timeline


def test_a_job_that_was_queued_again_and_finished_is_healthy() -> None:
    begin = "INFO 06-02 10:00:00 [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config: x"
    gone = (
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-06-02T10:05:00 DUE TO PREEMPTION ***"
    )
    lines = [begin, "step 3 loss 2.0", gone, begin, "step 3 loss 2.0", "Training completed."]
    assert [
        diagnose.diagnose(diagnose.load_text("\n".join(lines[:n]) + "\n")).verdict for n in (3, 6)
    ] == ["failed", "healthy"]
