from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from diagnose.runtime.children import TimedOut, Unavailable, bounded, each


def fails() -> None:
    raise FileNotFoundError(2, "No such file or directory", "/x")


def lacks() -> None:
    raise Unavailable("there is no such thing")


def stuck() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def children() -> set[str]:
    """Those of this process, ended ones that nobody waited for too."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for one in lists for pid in one.read_text().split()}


def test_a_value_comes_back() -> None:
    assert bounded(lambda: {"a": [1, None, "ü" * 200_000]}, 5) == {"a": [1, None, "ü" * 200_000]}


def test_what_a_child_raises_is_raised_here() -> None:
    with pytest.raises(OSError, match="no such file or directory: /x"):
        bounded(fails, 5)
    with pytest.raises(Unavailable, match="no such thing"):
        bounded(lacks, 5)
    with pytest.raises(OSError, match="division by zero"):
        bounded(lambda: 1 / 0, 5)


def test_a_child_that_hangs_is_given_up_and_is_gone() -> None:
    began, before = time.monotonic(), children()
    with pytest.raises(TimedOut, match="no answer in 0 s"):
        bounded(stuck, 0.2)
    assert time.monotonic() - began < 5
    assert children() <= before


def test_a_child_that_dies_is_told() -> None:
    with pytest.raises(OSError, match="ended without an answer"):
        bounded(lambda: os.kill(os.getpid(), signal.SIGKILL), 5)


@pytest.mark.slow
def test_one_that_hangs_does_not_hold_up_the_others() -> None:
    tasks = [("stuck", stuck), *((str(n), lambda n=n: n) for n in range(6))]
    answers = {one.name: one for one in each(tasks, 3.0, at_once=3)}
    assert answers.pop("stuck").kind == "TimedOut"
    assert {int(name): one.value for name, one in answers.items()} == {n: n for n in range(6)}


def test_nobody_is_left_when_the_answers_are_not_wanted_any_more() -> None:
    before = children()
    answers = each([("fast", lambda: 1), ("stuck", stuck)], 30, at_once=2)
    assert next(answers).value == 1
    assert children() - before
    answers.close()
    assert children() <= before


def test_an_answer_counts_though_the_child_cannot_end() -> None:
    """A thread that the kernel holds keeps its side of the pipe open."""

    def lingers() -> int:
        if os.fork() == 0:
            time.sleep(20)
        return 7

    began = time.monotonic()
    assert bounded(lingers, 10) == 7
    assert time.monotonic() - began < 5
