"""Records of several lines, of which only the first has a prefix."""

from __future__ import annotations

from .told import of, timeline

FRAMES = '  File "/work/train.py", line 50, in <module>\n    main()\n'
TRACEBACK = f"Traceback (most recent call last):\n{FRAMES}"
RAISED = "KeyError: 'labels'\n"


def test_a_traceback_is_of_who_wrote_the_line_that_it_begins_on() -> None:
    found = timeline(
        job=f"[2026-06-02 08:00:00 TP3] Scheduler hit an exception: {TRACEBACK}{RAISED}"
    )
    assert of(found, "KeyError").rank == 3


def test_or_of_who_wrote_the_error_right_above_it() -> None:
    error = "2026-06-02 08:00:00,000 - train - {} - [rank 3] epoch 2\n"
    assert of(timeline(job=error.format("ERROR") + TRACEBACK + RAISED), "KeyError").rank == 3
    calm = timeline(job=error.format("INFO") + TRACEBACK + RAISED)
    assert of(calm, "KeyError").rank is None, "a logger says with ERROR that it logs an exception"
    watchdog = "[rank3]:[E602 08:00:00.1234567 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught\n"
    found = timeline(job=watchdog + TRACEBACK + RAISED)
    assert of(found, "KeyError").rank is None, "a thread in C++ prints no traceback"
    apart = timeline(job=error.format("ERROR") + "\nnothing\n" + TRACEBACK + RAISED)
    assert of(apart, "KeyError").rank is None


def test_it_ends_with_the_exception_or_with_a_line_of_somebody_else() -> None:
    begun = f"[rank 3] failed: {TRACEBACK}"
    found = timeline(job=f"{begun}{RAISED}ValueError: of another\n")
    assert (of(found, "KeyError").rank, of(found, "ValueError").rank) == (3, None)
    found = timeline(job=f"{begun}[rank 1] ValueError: of another\n{RAISED}")
    assert (of(found, "KeyError").rank, of(found, "ValueError").rank) == (None, 1)
    found = timeline(job=f"{begun}{TRACEBACK}{RAISED}")
    assert of(found, "KeyError").rank is None, "a second traceback, of whomever"
