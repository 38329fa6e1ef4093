"""The story of every rank, as its own lines tell it."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.infer.ranks.story import rank_stories
from diagnose.timeline.learned import Learned

from ..rows import bar, ended, marker, stack, step, wait


def test_what_a_rank_was_at_when_it_waited_and_how_it_ended(make: Any) -> None:
    story = rank_stories(make(step(5, rank=2), step(6, rank=2), wait(2), ended(2, exitcode="-6")))[
        2
    ]
    assert (story.step, story.phase, story.exit) == (6, None, -6)
    assert story.last is not None
    assert story.last.step == 6, "a timeout is no sign of life"
    assert story.call is not None
    assert story.call.seq == 7


@pytest.mark.parametrize(
    ("after", "unfinished"),
    [([], True), ([6], True), ([6, 7], False)],
    ids=["nothing", "one more step", "training went on"],
)
def test_work_that_training_did_not_follow_is_unfinished(
    make: Any, after: list[int], unfinished: bool
) -> None:
    timeline = make(marker("checkpoint", rank=0), *(step(number, rank=0) for number in after))
    story = rank_stories(timeline)[0]
    assert (story.phase, story.unfinished) == ("checkpoint", unfinished)


def test_a_bar_at_its_end_is_over(make: Any) -> None:
    timeline = make(bar("preprocessing", 590, 100, rank=0), step(1, rank=0))
    assert rank_stories(timeline)[0].phase is None


def test_a_stack_tells_what_no_marker_does(make: Any) -> None:
    frames = [row | {"phase": "evaluation"} for row in stack(1, ("/job/eval.py", 5, "evaluate"))]
    assert rank_stories(make(*frames))[1].phase == "evaluation"


def test_what_others_say_of_a_rank_is_not_its_story(make: Any) -> None:
    said = {"tells": "missing", "role": "effect", "rank": 4}
    assert list(rank_stories(make(said, step(1, rank=0)))) == [0]


def test_a_story_knows_how_its_lines_were_attributed(make: Any) -> None:
    sure = step(1, rank=0) | {"learned": Learned.LINE}
    stories = rank_stories(make(sure, step(2, rank=0) | {"learned": Learned.PEERS}))
    assert (stories[0].learned, stories[0].certain) == (Learned.PEERS, True)
    guessed = rank_stories(make(sure, step(2, rank=0) | {"learned": Learned.DEVICE}))
    assert not guessed[0].certain
