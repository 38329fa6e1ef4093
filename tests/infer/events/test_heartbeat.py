"""Last steps, the time between them, silence and who lags."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.diagnosis import Progress
from diagnose.report.words import progress
from diagnose.stories.work import progress_of

from ..rows import at, step, wait


def test_without_steps_there_is_none(make: Any) -> None:
    assert progress_of(make(wait(0))) is None


def test_interval_silence_and_who_lags(make: Any) -> None:
    timeline = make(
        step(10, rank=0, time=at("08:00:00")), step(10, rank=1, time=at("08:00:00")),
        step(20, rank=0, time=at("08:00:15")), step(18, rank=1, time=at("08:00:12")),
        wait(0, time=at("08:30:15")),
    )  # fmt: skip
    at_last = "2026-06-02T08:00:15"
    assert progress_of(timeline) == Progress(20, 1.5, 13.5, 1800.0, [1], last_step_time=at_last)


def test_without_times_only_the_step_is_known(make: Any) -> None:
    assert progress_of(make(step(3), step(4))) == Progress(4)


SPARSE = "step 4,500 · 3 s a step · a line every 15 min"
LONG = "step 1,200 · 1.5 s a step · silent for the last 30 min · behind: rank 3"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, ""),
        (Progress(1200, 1.5, 1.5, 1800.0, [3]), LONG),
        (Progress(4500, 3.0, 900.0, 914.0), SPARSE),
        (Progress(7, 90.0, 90.0, 300.0), "step 7 · 1 min 30 s a step"),
        (Progress(7, None, None, 20.0), "step 7"),
    ],
)
def test_in_words(found: Progress | None, words: str) -> None:
    assert progress(found) == words
