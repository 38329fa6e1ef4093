"""The ordinary diagnosis, asked by a watch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from diagnose.watch import alert
from diagnose.watch.alert import Question, Verdict, diagnosed

ROOT = Path(__file__).parents[2]
HANG = str(ROOT / "fixtures" / "torchrun-missing-rank")


@pytest.mark.slow
def test_a_hang() -> None:
    found = diagnosed([HANG], 120)
    assert (found.verdict, found.cause, found.ranks) == ("hung", "desync.missing_rank", [5])
    assert found.names_cause


@pytest.mark.slow
def test_one_under_way() -> None:
    question = Question([HANG], 120)
    assert question.wait(120) == question.answer == diagnosed([HANG], 120)


def test_it_takes_too_long() -> None:
    assert diagnosed([HANG], 0.05) == Verdict(
        problem="the diagnosis has no answer: no end in 0.05 s"
    )


def test_it_is_not_needed_any_more() -> None:
    question = Question([HANG], 120)
    question.cancel()
    assert question.answer is not None
    assert question.answer.verdict in ("unknown", "hung")


def test_no_log() -> None:
    assert diagnosed(["/no/such/file"], 120).problem == "the diagnosis gave no verdict"


def test_it_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    found = diagnosed([HANG], 1)
    why = "/no/such/python: no such file or directory"
    assert found.problem == f"the diagnosis has no answer: {why}"
    assert not found.names_cause


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"verdict": "hung"}', b'{"root_cause": 1}'])
def test_strange_answers(answer: bytes) -> None:
    assert alert._read(answer).problem == "the diagnosis gave no verdict"
