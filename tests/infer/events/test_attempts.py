"""Which attempt is diagnosed, and what is told of the earlier ones."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.infer.events.facts import earlier_attempts, last_attempt

from ..rows import Row, catalog, marker, matched, signature, step

OOM = signature("t.oom", "crash.gpu_oom", strength="decisive")
WEAK = signature("t.weak", strength="weak")
FACT: Row = {"kind": "fact", "role": "context"}


@pytest.mark.parametrize(
    ("rows", "kept", "attempts"),
    [
        ([], [], 1),
        ([step(1)], [0], 1),
        ([step(1), step(2, attempt=1), step(3, attempt=1)], [1, 2], 2),
        # What only tells facts (or nothing) after the last restart is no attempt to diagnose.
        ([step(1), marker("training", attempt=1), FACT | {"attempt": 2}], [1], 3),
        # Of a source whose attempt is not known the events may be of the last one.
        ([step(1), step(2, attempt=1), FACT | {"attempt": None}], [1, 2], 2),
        ([matched(OOM, attempt=None), FACT | {"attempt": 0}, FACT | {"attempt": 1}], [0, 2], 2),
        ([step(1, attempt=None), step(2, attempt=None)], [0, 1], 1),
        ([FACT, FACT | {"attempt": 1}], [0, 1], 2),
    ],
)
def test_the_last_attempt_that_tells_anything(
    make: Any, rows: list[Row], kept: list[int], attempts: int
) -> None:
    attempt = last_attempt(make(*rows), load_catalog().classes)
    assert ([event.index for event in attempt.timeline], attempt.attempts) == (kept, attempts)


def test_what_a_finaliser_printed_is_no_part_of_it(make: Any) -> None:
    ignored = {"signal": "ignored", "text": "Exception ignored in: <function f>"}
    error = matched(
        signature("t.exception", "crash.exception", signal="exception", strength="weak")
    )
    attempt = last_attempt(make(step(1), ignored, error), load_catalog().classes)
    assert [event.index for event in attempt.timeline] == [0, 1]
    (left,) = attempt.sifted
    assert (left.fate, left.predicate) == ("absolved", "ignored_exception")
    assert [event.index for event in left.events] == [2]


def test_an_earlier_attempt_died_of_its_first_strong_cause(make: Any) -> None:
    timeline = make(
        matched(WEAK, rank=0), matched(OOM, rank=3), matched(OOM, rank=4),
        matched(WEAK, attempt=1), matched(OOM, attempt=2), matched(OOM, attempt=None),
    )  # fmt: skip
    assert earlier_attempts(timeline, catalog(OOM, WEAK), 3) == [
        "attempt 0 ended with: Title of t.oom (rank 3)",
        "attempt 1 ended with: Title of t.weak",
    ]


def test_only_some_of_many_attempts_are_told(make: Any) -> None:
    timeline = make(*[matched(OOM, attempt=number) for number in range(24)])
    notes = earlier_attempts(timeline, catalog(OOM), 24)
    assert notes[19:] == [
        "attempt 19 ended with: Title of t.oom",
        "and 3 more attempts ended with a known cause",
    ]
