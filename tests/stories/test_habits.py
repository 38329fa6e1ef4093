"""Errors that a job survived again and again."""

from __future__ import annotations

from typing import Any

import pytest

import diagnose
from diagnose.stories.deeds import habits, kind_of
from tests.infer.rows import Row, ended, matched, signature, step

RAISED = signature("t.raised", "crash.exception", signal="exception", strength="weak")
OOM = signature("t.oom", "crash.gpu_oom", strength="decisive")


def raised(what: str = "ValueError: answer 7 has no number") -> Row:
    return matched(RAISED, text=what)


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([raised(), raised(), step(1), raised(), raised(), raised(), step(2), raised()], 0),
        # Too seldom, in one stretch only, or something else.
        ([raised(), raised(), step(1), raised(), raised(), step(2), raised(), raised()], 6),
        ([*[raised()] * 9, step(1), raised()], 10),
        ([step(1), *[raised()] * 9, step(3), raised()], 10),
        ([step(1), *[raised()] * 9, step(4), raised()], 0),
        (
            [raised(), raised(), step(1), *[raised()] * 3, step(2), raised("KeyError: loss")],
            1,
        ),
        # What ends a process, or names its cause, is not of that kind.
        ([*[matched(OOM), step(1)] * 6, matched(OOM)], 7),
        ([*[ended(0, exitcode="1"), step(1)] * 6, ended(0, exitcode="1")], 7),
    ],
)  # fmt: skip
def test_which_errors_count(make: Any, rows: list[Row], left: int) -> None:
    timeline = make(*({"line": number} | row for number, row in enumerate(rows, 1)))
    errors = timeline.where(lambda meaning: meaning.kind != "progress")
    usual = habits(timeline)
    assert len([event for event in errors if kind_of(event) not in usual]) == left


def answers(step_of: int) -> list[str]:
    error = [
        f"(Worker pid=12) ERROR:2026-06-02 08:1{step_of}:0{n},100:"
        "Traceback (most recent call last):"
        f'\n(Worker pid=12)   File "/srv/parse.py", line 9, in parse'
        f"\n(Worker pid=12) ValueError: reply {n} cannot be read"
        for n in range(4)
    ]
    return [f"(main pid=7) step {step_of} loss 1.{step_of}", *error]


def test_a_rollout_whose_answers_are_often_bad_is_running() -> None:
    lines = [line for number in range(4) for line in answers(number)]
    rare = [*answers(0)[:1], *answers(1)]
    assert [
        diagnose.diagnose(diagnose.load_text("\n".join(text) + "\n")).verdict
        for text in (lines, rare)
    ] == ["running", "failed"]


@pytest.mark.parametrize(
    ("level", "below", "verdict"),
    [
        ("WARNING", "step 4 loss 1.0", "running"),
        ("WARNING", "bye", "failed"),  # nothing was seen to go on
        ("ERROR", "bye", "failed"),
        ("ERROR", "step 4 loss 1.0", "failed"),
    ],
)
def test_an_import_that_fails_as_a_warning_is_optional(
    level: str, below: str, verdict: str
) -> None:
    lines = [
        "step 3 loss 1.1",
        f"{level} 06-25 16:32:09 [imports.py:408] Traceback (most recent call last):",
        f"{level} 06-25 16:32:09 [imports.py:408] ImportError: libx.so.13: cannot open shared "
        "object file: No such file or directory",
        below,
    ]
    text = "\n".join(lines) + "\n"
    assert diagnose.diagnose(diagnose.load_text(text)).verdict == verdict
