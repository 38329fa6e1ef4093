from datetime import UTC, datetime

import pytest

from diagnose.checkpoint.model import Lost, lost
from diagnose.timeline.event import Timeline
from tests.timeline.told import event


def timeline(*rows: tuple[str, int | None, str | None]) -> Timeline:
    return Timeline(
        event(index=index, kind=kind, step=step, time=ns(time) if time else None)
        for index, (kind, step, time) in enumerate(rows)
    )


def ns(time: str) -> int:
    return int(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp()) * 10**9


RUN = timeline(
    ("progress", 90, "2026-01-01 00:00"),
    ("progress", 100, "2026-01-01 01:00"),
    ("progress", 150, "2026-01-01 02:00"),
    ("failure", None, "2026-01-01 02:30"),
)


@pytest.mark.parametrize(
    ("step", "world", "expected"),
    [
        (100, 8, Lost(150, 50, 12.0)),
        (95, 8, Lost(150, 55, 12.0)),
        (100, None, Lost(150, 50, None)),
        (150, 8, Lost(150, 0, 4.0)),
        (151, 8, None),
        (None, 8, None),
    ],
)
def test_from_the_step_to_the_end(step: int | None, world: int | None, expected: Lost) -> None:
    assert lost(RUN, step, world) == expected


def test_without_times_only_steps_are_told() -> None:
    assert lost(timeline(("progress", 7, None)), 5, 8) == Lost(7, 2, None)


def test_without_progress_nothing_is() -> None:
    assert lost(timeline(("failure", None, "2026-01-01")), 5, 8) is None
