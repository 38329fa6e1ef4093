"""When the trouble began, and what the job was doing then."""

from typing import Any

import pandas as pd
import pytest

from diagnose.infer.events.onset import Activity, Start, find_activity, find_onset

from ..rows import at, bar, marker, stack, step, wait

NOWHERE = Start(None, None, "")


def activity(frame: pd.DataFrame, end: int | None, waiting: set[int] | None = None) -> Activity:
    return find_activity(frame, NOWHERE, end, waiting or set())


# --------------------------------------------------------------------------- onset


def test_the_onset_is_the_earliest_beginning_of_a_wait(make: Any) -> None:
    frame = make(
        wait(0, time=at("08:10:00"), elapsed_ms=600_000),
        wait(1, time=at("08:10:05"), elapsed_ms=610_500),
        wait(2, time=at("08:10:09"), elapsed_ms=600_000),
    )
    start = find_onset(frame, 0)
    assert (start.time, start.row) == (at("07:59:54.500"), 1)
    assert start.why == "the first watchdog line, minus the 610 s it waited"


def test_a_failure_before_the_wait_is_the_onset(make: Any) -> None:
    frame = make(
        {"role": "cause", "time": at("07:00:00")},
        wait(0, time=at("08:10:00")),
    )
    start = find_onset(frame, 0)
    assert (start.time, start.row) == (at("07:00:00"), 0)
    assert start.why == "the first failure, before the wait"


def test_a_failure_during_the_wait_is_not(make: Any) -> None:
    frame = make(
        {"role": "cause", "time": at("08:05:00")},
        wait(0, time=at("08:10:00")),
    )
    assert find_onset(frame, 0).time == at("08:00:00")


def test_without_waits_the_first_failure_counts(make: Any) -> None:
    frame = make(step(3), {"role": "cause", "time": at("08:05:00")})
    start = find_onset(frame, 1)
    assert (start.time, start.row, start.why) == (at("08:05:00"), 1, "the first failure in the log")


def test_a_wait_without_time_still_tells_how_long_before(make: Any) -> None:
    start = find_onset(make(step(1), wait(0, elapsed_ms=1_800_000)), 1)
    assert (start.time, start.row) == (None, 1)
    assert start.why == "1,800 s before the first watchdog line, which carries no time"


def test_lines_without_time_have_no_onset(make: Any) -> None:
    assert find_onset(make({"role": "cause"}), 0) == Start(None, 0, "the lines carry no time")


def test_no_failure_no_onset(make: Any) -> None:
    start = find_onset(make(step(1, time=at("08:00:00"))), None)
    assert (start.time, start.row) == (None, None)


# --------------------------------------------------------------------------- activity


def test_an_unfinished_bar_as_long_as_the_wait_explains_it(make: Any) -> None:
    frame = make(
        bar("preprocessing", 590, 40, rank=0),
        marker("model_load", rank=1),
        wait(1, elapsed_ms=600_000),
    )
    found = activity(frame, 2, {1})
    assert (found.phase, found.row, found.rank) == ("preprocessing", 0, 0)
    assert (found.moving, found.spans_wait, found.bar) == (True, True, True)


@pytest.mark.parametrize(("elapsed", "spans"), [(299, False), (300, True)])
def test_half_of_the_wait_is_enough(make: Any, elapsed: int, spans: bool) -> None:
    frame = make(bar("evaluation", elapsed, 5, rank=0), wait(1, elapsed_ms=600_000))
    assert activity(frame, 1).spans_wait is spans


def test_only_the_last_state_of_a_bar_counts(make: Any) -> None:
    frame = make(
        bar("preprocessing", 400, 90), bar("preprocessing", 420, 100), wait(1, elapsed_ms=600_000)
    )
    found = activity(frame, 2)
    assert (found.spans_wait, found.moving) == (False, False)


def test_the_same_bar_of_another_rank_is_another_bar(make: Any) -> None:
    frame = make(
        bar("preprocessing", 400, 60, rank=0),
        bar("preprocessing", 420, 100, rank=1),
        wait(1, elapsed_ms=600_000),
    )
    assert (activity(frame, 2).rank, activity(frame, 2).spans_wait) == (0, True)


def test_a_training_bar_is_no_work_of_one_rank(make: Any) -> None:
    frame = make(bar("training", 5000, 60), wait(1, elapsed_ms=600_000))
    found = activity(frame, 1)
    assert (found.phase, found.moving, found.spans_wait) == ("training", False, False)


def test_a_begun_phase_is_moving(make: Any) -> None:
    found = activity(make(step(10), marker("checkpoint", rank=0), wait(1)), 2, {1})
    assert (found.phase, found.rank, found.moving, found.bar) == ("checkpoint", 0, True, False)


def test_a_phase_that_ended_leads_back_to_training(make: Any) -> None:
    frame = make(marker("checkpoint"), marker("checkpoint", ends_phase=True), wait(1))
    assert activity(frame, 2) == Activity("training", 1)


def test_a_finished_bar_ends_its_phase(make: Any) -> None:
    frame = make(marker("model_load"), bar("model_load", 9, 100), wait(1))
    found = activity(frame, 2)
    assert found.row == 0, "the finished bar itself is no marker"
    frame = make(bar("model_load", 9, 100), wait(1))
    assert activity(frame, 1) == Activity()


def test_two_training_steps_close_a_phase(make: Any) -> None:
    frame = make(marker("evaluation"), step(11), step(12), wait(1))
    assert activity(frame, 3).moving is False
    frame = make(marker("evaluation"), step(11), wait(1))
    assert activity(frame, 2).moving is True


def test_markers_after_the_failure_are_aftermath(make: Any) -> None:
    frame = make(marker("preprocessing", rank=0), wait(1), marker("checkpoint", rank=0))
    assert activity(frame, 1).phase == "preprocessing"


def test_a_bar_glued_to_the_failure_line_counts(make: Any) -> None:
    frame = make(wait(1, line=4), bar("preprocessing", 590, 40, line=4))
    assert (activity(frame, 0).phase, activity(frame, 0).spans_wait) == ("preprocessing", True)
    frame = make(wait(1, line=4), bar("preprocessing", 590, 40, line=5))
    assert activity(frame, 0).phase is None


def test_an_untimed_source_is_not_later_than_the_failure(make: Any) -> None:
    late = marker("checkpoint", source="rank0.log")
    frame = make(wait(1, time=at("08:00:00")), late)
    assert activity(frame, 0).phase == "checkpoint"
    frame = make(wait(1, time=at("08:00:00")), late | {"time": at("08:00:01")})
    assert activity(frame, 0).phase is None


def test_markers_of_ranks_that_wait_yield_to_those_of_others(make: Any) -> None:
    frame = make(marker("checkpoint", rank=0), marker("evaluation", rank=1), wait(1))
    assert activity(frame, 2, {1}).phase == "checkpoint"
    assert activity(frame, 2, {0}).phase == "evaluation"


def test_a_stack_tells_the_phase_even_after_the_failure(make: Any) -> None:
    busy = stack(0, ("train.py", 40, "save_model"), phase="checkpoint")
    found = activity(make(wait(1), *busy), 0, {1})
    assert (found.phase, found.frame, found.rank, found.row) == ("checkpoint", True, 0, 1)


def test_of_stacks_the_busy_one_speaks(make: Any) -> None:
    rows = [
        *stack(0, ("a.py", 1, "setup"), phase="init"),
        *stack(1, ("a.py", 2, "train"), phase="training"),
        *stack(2, ("a.py", 3, "evaluate"), phase="evaluation"),
    ]
    assert activity(make(*rows), None).phase == "evaluation"
    assert activity(make(*rows[:2]), None).phase == "training"


def test_a_job_at_its_steps_shows_no_phase(make: Any) -> None:
    found = activity(make(step(1), step(2), wait(0)), 2)
    assert (found.phase, found.row) == (None, 1)
