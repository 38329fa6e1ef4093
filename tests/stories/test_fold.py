"""One story an author: its states, and the reason for each change."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.stories.story import State
from diagnose.timeline.event import Author, Timeline
from tests.infer.rows import Row, ended, matched, signature, step, stories_of, wait

LOST = signature("t.lost", "net.storage")
CRASH = matched(signature("t.crash", "crash.native"), rank=3)


def changes(timeline: Timeline, rank: int = 3) -> list[tuple[State, str]]:
    story = stories_of(timeline).all[Author("rank", (rank,))]
    return [(change.state, change.predicate) for change in story.changes]


WORKING = (State.WORKING, "progress")


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        ([step(1, rank=3)], [WORKING]),
        ([step(1, rank=3), matched(LOST, rank=3)], [WORKING, (State.FAILED, "error")]),
        (
            [step(1, rank=3), matched(LOST, rank=3), step(2, rank=3)],
            [WORKING, (State.FAILED, "error"), (State.GONE_ON, "worked_on")],
        ),
        ([step(1, rank=3), CRASH], [WORKING, (State.FAILED, "ends_process")]),
        ([step(1, rank=3), wait(3)], [WORKING, (State.WAITING, "timeout")]),
        ([step(1, rank=3), ended(3, exitcode="0")], [WORKING, (State.ENDED, "exit")]),
        ([step(1, rank=3), ended(3, exitcode="1")], [WORKING, (State.FAILED, "exit")]),
    ],
)
def test_states(make: Any, rows: list[Row], seen: list[tuple[State, str]]) -> None:
    assert changes(make(*rows)) == seen


def test_what_others_do_changes_no_state(make: Any) -> None:
    others = [step(n, rank=rank) for n in range(2, 40) for rank in (0, 1, 2)]
    timeline = make(step(1, rank=3), matched(LOST, rank=3), *others)
    assert changes(timeline)[-1] == (State.FAILED, "error")


def test_causes_are_kept_in_the_order_in_which_they_were_stated(make: Any) -> None:
    timeline = make(matched(LOST, rank=3), CRASH)
    story = stories_of(timeline).all[Author("rank", (3,))]
    assert [event.signature for event in story.stated] == ["t.lost", "t.crash"]
    assert story.ended is timeline.at(1)
