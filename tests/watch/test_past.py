"""What was before the watch: times by what lines print."""

from __future__ import annotations

import pytest

from diagnose.watch.notice import Past, merged
from tests.watch.simulated import notices


def past(text: str, end: float = 1000.0) -> Past:
    found = Past(end)
    found.notices.extend(notices(text))
    return found


def times(text: str) -> list[tuple[float, bool]]:
    return [(round(at, 3), timed) for at, timed, _ in past(text).timed()]


def test_times_count_back_from_when_the_file_was_written() -> None:
    line = "2026-01-01 10:00:0{0},500 step {0} loss 1\n"
    text = "".join(map(line.format, (0, 2, 9)))
    assert times(text) == [(991, True), (993, True), (1000, True)]


def test_lines_without_a_time_are_as_old_as_the_line_before() -> None:
    text = "2026-01-01 10:00:00 step 1 loss 1\nstep 2 loss 1\n2026-01-01 10:00:05 step 3 loss 1\n"
    assert times(text) == [(995, True), (995, False), (1000, True)]


def test_without_any_time_all_is_as_old_as_the_file() -> None:
    assert times("step 1 loss 1\nstep 2 loss 1\n") == [(1000, False), (1000, False)]


def test_over_midnight() -> None:
    text = "[23:59:59] step 1 loss 1\n[00:00:01] step 2 loss 1\n"
    found = times(text)
    assert found[0][0] == pytest.approx(found[1][0] - 2) or found == [(1000, False)] * 2


def test_files_are_merged_by_time() -> None:
    one = past("2026-01-01 10:00:00 step 1 loss 1\n2026-01-01 10:00:04 step 3 loss 1\n")
    two = past("2026-01-01 09:00:02 step 2 loss 1\n", end=998.0)  # of a host in another zone
    assert [notice.counter for _, _, notice in merged([one, two])] == [1, 2, 3]
