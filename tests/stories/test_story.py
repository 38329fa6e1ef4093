"""What is known of each rank, by its own lines."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.stories.story import Story
from diagnose.stories.work import two_steps
from diagnose.timeline.event import Learned, Timeline
from tests.infer.rows import bar, ended, finished, marker, stack, step, stories_of, wait


def story(timeline: Timeline, rank: int = 0) -> Story:
    return stories_of(timeline).of_ranks[rank]


def test_what_a_rank_was_at_when_it_waited_and_how_it_ended(make: Any) -> None:
    rows = [step(5, rank=2), step(6, rank=2), wait(2), wait(2, 8), ended(2, exitcode="-6")]
    found = story(make(*rows), 2)
    assert (found.step, found.phase, found.exit_code) == (6, None, -6)
    assert found.last is not None
    assert found.last.step == 6, "a timeout is no sign of life"
    assert found.failed


def test_steps_of_an_evaluation_are_none_of_the_training(make: Any) -> None:
    rows = [step(5, rank=0), step(40, rank=0, phase="evaluation")]
    found = story(make(*rows))
    assert (found.step, found.phase, found.unfinished) == (5, "evaluation", True)


@pytest.mark.parametrize(
    ("after", "unfinished"),
    [([], True), ([6], True), ([6, 6], True), ([6, 7], False)],
    ids=["nothing", "one more step", "the same step", "training went on"],
)
def test_work_that_training_did_not_follow_is_unfinished(
    make: Any, after: list[int], unfinished: bool
) -> None:
    timeline = make(marker("checkpoint", rank=0), *(step(number, rank=0) for number in after))
    found = story(timeline)
    assert (found.phase, found.unfinished) == ("checkpoint", unfinished)


def test_work_with_an_end_is_over(make: Any) -> None:
    saved = marker("checkpoint", rank=0, ends_phase=True)
    found = story(make(marker("checkpoint", rank=0), saved))
    assert (found.phase, found.unfinished) == ("checkpoint", False)


def test_a_bar_at_its_end_is_over(make: Any) -> None:
    timeline = make(bar("preprocessing", 590, 100, rank=0), step(1, rank=0))
    assert story(timeline).phase is None


def test_a_stack_tells_what_no_marker_does(make: Any) -> None:
    frames = stack(1, ("/job/eval.py", 5, "evaluate"), role=None, phase="evaluation")
    found = story(make(*frames), 1)
    assert (found.doing, found.phase) == (None, "evaluation")
    found = story(make(marker("checkpoint", rank=1), *frames), 1)
    assert found.phase == "checkpoint", "its own words come first"


def test_what_others_say_of_a_rank_is_not_its_story(make: Any) -> None:
    said = {"signal": "missing", "role": "effect", "rank": 4}
    assert list(stories_of(make(step(1, rank=2), said, step(1, rank=0))).of_ranks) == [0, 2]


def test_a_story_knows_how_its_lines_were_attributed(make: Any) -> None:
    sure = step(1, rank=0) | {"learned": Learned.LINE}
    found = story(make(sure, step(2, rank=0) | {"learned": Learned.PEERS}))
    assert (found.learned, found.certain) == ({Learned.LINE, Learned.PEERS}, True)
    guessed = story(make(sure, step(2, rank=0) | {"learned": Learned.DEVICE}))
    assert not guessed.certain


def test_the_first_sign_that_a_peer_is_gone_and_the_end_of_its_work(make: Any) -> None:
    lost = {"role": "effect", "rank": 0, "fields": {"peer": "node<1>"}}
    notified = {"role": "aftermath", "signal": "notified", "rank": 0}
    rows = [notified, lost, notified, lost, finished(0), ended(0, exitcode="1")]
    found = story(make(*rows))
    signs = (found.notified, found.lost_peer, found.finished, found.ended)
    assert [sign.index for sign in signs if sign] == [0, 1, 4, 5]


@pytest.mark.parametrize(
    ("second", "apart"),
    [
        (bar(None, 1000, 46), True),
        (bar(None, 1050, 46), True),
        (bar(None, 1000, 48), False),
        (bar(None, 1000, 60), False),
        (bar(None, 5, 3), False),
        (bar(None, 1500, 46), False),
        (bar(None, 1000, 46, total=90), False),
        (bar(None, 1000, 46, rank=1), False),
        (bar(None, 1000, 46, source="b.log"), False),
    ],
    ids=[
        "behind", "behind a little later", "one step behind", "ahead", "the bar of the next epoch",
        "long after", "another bar", "the bar of a rank that is told", "in another file",
    ],
)  # fmt: skip
def test_a_bar_that_steps_back_while_its_clock_does_not_is_of_another_process(
    make: Any, second: dict[str, Any], apart: bool
) -> None:
    deeds = stories_of(make(bar(None, 1000, 49), second)).deeds
    pair = two_steps(deeds.progress, deeds.author)
    assert [bar.step for bar in pair or ()] == ([49, 46] if apart else [])
