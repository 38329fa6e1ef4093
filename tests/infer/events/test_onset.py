"""When the trouble began."""

from typing import Any

from diagnose.infer.events.onset import Start, find_onset

from ..rows import at, step, wait


def test_the_onset_is_the_earliest_beginning_of_a_wait(make: Any) -> None:
    timeline = make(
        wait(0, time=at("08:10:00"), elapsed_ms=600_000),
        wait(1, time=at("08:10:05"), elapsed_ms=610_500),
        wait(2, time=at("08:10:09"), elapsed_ms=600_000),
    )
    start = find_onset(timeline, timeline.at(0))
    assert (start.time, start.row) == (at("07:59:54.500"), 1)
    assert start.why == "the first watchdog line, minus the 610 s it waited"


def test_a_failure_before_the_wait_is_the_onset(make: Any) -> None:
    timeline = make(
        {"role": "cause", "time": at("07:00:00")},
        wait(0, time=at("08:10:00")),
    )
    start = find_onset(timeline, timeline.at(0))
    assert (start.time, start.row) == (at("07:00:00"), 0)
    assert start.why == "the first failure, before the wait"


def test_a_failure_during_the_wait_is_not(make: Any) -> None:
    timeline = make(
        {"role": "cause", "time": at("08:05:00")},
        wait(0, time=at("08:10:00")),
    )
    assert find_onset(timeline, timeline.at(0)).time == at("08:00:00")


def test_without_waits_the_first_failure_counts(make: Any) -> None:
    timeline = make(step(3), {"role": "cause", "time": at("08:05:00")})
    start = find_onset(timeline, timeline.at(1))
    assert (start.time, start.row, start.why) == (at("08:05:00"), 1, "the first failure in the log")


def test_a_wait_without_time_still_tells_how_long_before(make: Any) -> None:
    timeline = make(step(1), wait(0, elapsed_ms=1_800_000))
    start = find_onset(timeline, timeline.at(1))
    assert (start.time, start.row) == (None, 1)
    assert start.why == "1,800 s before the first watchdog line, which has no timestamp"


def test_lines_without_time_have_no_onset(make: Any) -> None:
    timeline = make({"role": "cause"})
    start = find_onset(timeline, timeline.at(0))
    assert start == Start(None, 0, "the lines have no timestamps")


def test_no_failure_no_onset(make: Any) -> None:
    start = find_onset(make(step(1, time=at("08:00:00"))), None)
    assert (start.time, start.row) == (None, None)
    assert start.why == "no line shows a failure; the log ends in this phase"
