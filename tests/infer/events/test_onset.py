"""When the trouble began."""

from typing import Any

from diagnose.infer.events.onset import Start, before_end, find_onset

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


def test_a_failure_without_a_time_came_after_the_last_line_that_has_one(make: Any) -> None:
    """Tracebacks and old watchdogs print no time, what a program logs does."""
    rows = [step(1, time=at("08:00:00"), rank=0), step(1, time=at("08:00:01"), rank=1)]
    raised = {"role": "cause", "rank": 0}
    later = step(2, time=at("08:00:05"), rank=1)
    start = find_onset(timeline := make(*rows, raised, later), timeline.at(2))
    assert (start.time, start.row) == (at("08:00:00"), 2), "by its own author"
    start = find_onset(timeline := make(*rows, raised | {"rank": 2}), timeline.at(2))
    assert start.time == at("08:00:01")
    assert start.why == "the first failure has no timestamp: the last line with one before it"
    start = find_onset(timeline := make(*rows, wait(0, elapsed_ms=9_000)), timeline.at(2))
    assert (start.time, start.why) == (
        at("08:00:01"),
        "the last line with a timestamp before a watchdog line, which waited 9 s",
    )


def test_a_failure_above_all_times_came_no_later_than_the_first_one(make: Any) -> None:
    raised = {"role": "cause", "rank": 1}
    ended = {"role": "effect", "kind": "exit", "rank": 1, "time": at("08:00:05")}
    start = find_onset(timeline := make(raised, ended), timeline.at(0))
    assert (start.time, start.row) == (at("08:00:05"), 0)
    assert start.why == "the first failure has no timestamp: the first line with one after it"
    later = step(1, time=at("08:00:10"), rank=0)
    start = find_onset(timeline := make(wait(0, elapsed_ms=9_000), later), timeline.at(0))
    assert (start.time, start.why) == (
        at("08:00:01"),
        "the first line with a timestamp after a watchdog line, minus the 9 s it waited",
    )


def test_what_a_launcher_tells_of_a_rank_came_after_its_own_last_line(make: Any) -> None:
    own = step(4, time=at("08:00:04"), rank=1, source="rank1.log")
    other = step(9, time=at("08:00:09"), rank=0, source="rank0.log")
    told = {"role": "effect", "kind": "exit", "rank": 1, "source": "console.log"}
    timeline = make(own, other, told)
    assert find_onset(timeline, timeline.at(2)).time == at("08:00:04")


def test_where_only_stacks_show_a_hang_it_began_with_the_last_step(make: Any) -> None:
    start = find_onset(make(step(1, time=at("08:00:00"))), None)
    assert (start.time, start.row) == (at("08:00:00"), None)
    assert start.why == "no line shows a failure; the last step with a timestamp"
    start = find_onset(make(step(1)), None)
    assert (start.time, start.row) == (None, None)
    assert start.why == "no line shows a failure; the log ends in this phase"
    start = find_onset(make({"kind": "frame"}, {"kind": "edge"}), None)
    assert start.why == "no line shows a failure, and none a step of the job"


def test_whoever_ended_a_job_that_hung_is_no_onset(make: Any) -> None:
    ended = {"signature": "launcher.sigterm", "time": at("09:00:00")}
    timeline = make(step(1, time=at("08:00:00")), step(2, time=at("08:00:04")), ended)
    assert before_end(timeline, timeline.at(2)) == Start(
        at("08:00:04"), 1, "the last step before the job was ended"
    )
    timeline = make(step(1), step(2), ended)
    assert before_end(timeline, timeline.at(2)) == Start(
        None, 1, "no line before the end of the job has a timestamp"
    )


def test_the_job_worked_until_a_wait_of_which_no_time_is_known(make: Any) -> None:
    own = step(1, time=at("08:00:00"), rank=1)
    others = step(9, time=at("11:00:00"), rank=0)
    start = find_onset(timeline := make(own, others, wait(1, elapsed_ms=9_000)), timeline.at(2))
    assert start.time == at("11:00:00")


def test_a_wait_that_does_not_say_how_long_took_its_timeout(make: Any) -> None:
    """SGLang's watchdog prints its limit only."""
    line = wait(0, time=at("08:10:00"), elapsed_ms=None)
    timeline = make(line)
    start = find_onset(timeline, timeline.at(0))
    why = "the first timeout, minus the 600 s it waited"
    assert start == Start(at("08:00:00"), 0, why)
