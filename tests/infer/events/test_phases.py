"""What the job was doing when the trouble began, and last of all."""

from typing import Any

import pytest

from diagnose.infer.events.onset import Activity, find_activity, finished_bar, last_phase
from diagnose.timeline.event import Timeline

from ..rows import at, bar, marker, stack, step, wait


def activity(timeline: Timeline, end: int | None, waiting: set[int] | None = None) -> Activity:
    """At the onset, where the event `end` is the first failure."""
    failed = None if end is None else timeline.at(end)
    return find_activity(timeline, failed, waiting or set())


def test_an_unfinished_bar_as_long_as_the_wait_explains_it(make: Any) -> None:
    timeline = make(
        bar("preprocessing", 590, 40, rank=0),
        marker("model_load", rank=1),
        wait(1, elapsed_ms=600_000),
    )
    found = activity(timeline, 2, {1})
    assert (found.phase, found.row, found.rank) == ("preprocessing", 0, 0)
    assert (found.moving, found.spans_wait, found.bar) == (True, True, True)


@pytest.mark.parametrize(("elapsed", "spans"), [(299, False), (300, True)])
def test_half_of_the_wait_is_enough(make: Any, elapsed: int, spans: bool) -> None:
    timeline = make(bar("evaluation", elapsed, 5, rank=0), wait(1, elapsed_ms=600_000))
    assert activity(timeline, 1).spans_wait is spans


def test_only_the_last_state_of_a_bar_counts(make: Any) -> None:
    timeline = make(
        bar("preprocessing", 400, 90), bar("preprocessing", 420, 100), wait(1, elapsed_ms=600_000)
    )
    found = activity(timeline, 2)
    assert (found.spans_wait, found.moving) == (False, False)


def test_the_same_bar_of_another_rank_is_another_bar(make: Any) -> None:
    timeline = make(
        bar("preprocessing", 400, 60, rank=0),
        bar("preprocessing", 420, 100, rank=1),
        wait(1, elapsed_ms=600_000),
    )
    assert (activity(timeline, 2).rank, activity(timeline, 2).spans_wait) == (0, True)


def test_a_training_bar_is_no_work_of_one_rank(make: Any) -> None:
    timeline = make(bar("training", 5000, 60), wait(1, elapsed_ms=600_000))
    found = activity(timeline, 1)
    assert (found.phase, found.moving, found.spans_wait) == ("training", False, False)


def test_a_begun_phase_is_moving(make: Any) -> None:
    found = activity(make(step(10), marker("checkpoint", rank=0), wait(1)), 2, {1})
    assert (found.phase, found.rank, found.moving, found.bar) == ("checkpoint", 0, True, False)


def test_a_phase_that_ended_leads_back_to_training(make: Any) -> None:
    timeline = make(marker("checkpoint"), marker("checkpoint", ends_phase=True), wait(1))
    assert activity(timeline, 2) == Activity("training", 1)


def test_a_finished_bar_ends_its_phase(make: Any) -> None:
    timeline = make(marker("model_load"), bar("model_load", 9, 100), wait(1))
    found = activity(timeline, 2)
    assert found.row == 0, "the finished bar itself is no marker"
    timeline = make(bar("model_load", 9, 100), wait(1))
    assert activity(timeline, 1) == Activity()


def test_two_training_steps_close_a_phase(make: Any) -> None:
    timeline = make(marker("evaluation"), step(11), step(12), wait(1))
    assert activity(timeline, 3).moving is False
    timeline = make(marker("evaluation"), step(11), wait(1))
    assert activity(timeline, 2).moving is True


def test_markers_after_the_failure_are_aftermath(make: Any) -> None:
    timeline = make(marker("preprocessing", rank=0), wait(1), marker("checkpoint", rank=0))
    assert activity(timeline, 1).phase == "preprocessing"


def test_a_bar_glued_to_the_failure_line_counts(make: Any) -> None:
    timeline = make(wait(1, line=4), bar("preprocessing", 590, 40, line=4))
    assert (activity(timeline, 0).phase, activity(timeline, 0).spans_wait) == (
        "preprocessing",
        True,
    )
    timeline = make(wait(1, line=4), bar("preprocessing", 590, 40, line=5))
    assert activity(timeline, 0).phase is None


def test_an_untimed_source_is_not_later_than_the_failure(make: Any) -> None:
    late = marker("checkpoint", source="rank0.log")
    timeline = make(wait(1, time=at("08:00:00")), late)
    assert activity(timeline, 0).phase == "checkpoint"
    timeline = make(wait(1, time=at("08:00:00")), late | {"time": at("08:00:01")})
    assert activity(timeline, 0).phase is None


def test_markers_of_ranks_that_wait_yield_to_those_of_others(make: Any) -> None:
    timeline = make(marker("checkpoint", rank=0), marker("evaluation", rank=1), wait(1))
    assert activity(timeline, 2, {1}).phase == "checkpoint"
    assert activity(timeline, 2, {0}).phase == "evaluation"


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


# --------------------------------------------------------------------------- the last phase


@pytest.mark.parametrize(
    ("rows", "phase"),
    [
        ([], None),
        ([step(4)], None),
        ([marker("init"), marker("training"), step(4)], "training"),
        ([marker("init"), bar("model_load", 9, 50)], "model_load"),
        ([marker("init"), bar("model_load", 9, 100)], "init"),
        ([marker("init"), bar("evaluation", 9, 100)], "evaluation"),
    ],
)
def test_the_last_phase_is_one_that_is_not_over(
    make: Any, rows: list[dict[str, Any]], phase: str | None
) -> None:
    assert last_phase(list(make(*rows))) == phase


@pytest.mark.parametrize(
    ("row", "over"),
    [
        (bar("preprocessing", 9, 100), True),
        (bar("preprocessing", 9, 99), False),
        (bar("preprocessing", 9, 3) | {"fields": {"percent": "100"}}, True),
        (
            bar("preprocessing", 9, 0)
            | {"fields": {"percent": "100", "step": "497", "total": "499"}},
            False,
        ),
        (bar("preprocessing", 9, 0) | {"fields": {"step": "0", "total": "0"}}, False),
        (bar("preprocessing", 9, 100) | {"elapsed_ms": None}, False),  # no bar
        (bar("training", 9, 100), False),
        (bar("evaluation", 9, 100), False),  # its results are gathered after the last batch
    ],
)
def test_a_bar_at_its_end_ends_set_up_work(make: Any, row: dict[str, Any], over: bool) -> None:
    assert finished_bar(make(row).at(0)) is over


# --------------------------------------------------------------------------- weights


def test_weights_that_move_after_a_save_began_are_saved(make: Any) -> None:
    weights, timeout = bar("model_load", 590, 40, rank=0), wait(1, elapsed_ms=600_000)
    assert activity(make(weights, timeout), 1).phase == "model_load"
    found = activity(make(marker("checkpoint", rank=0), weights, timeout), 2)
    assert (found.phase, found.row, found.spans_wait) == ("checkpoint", 1, True)
