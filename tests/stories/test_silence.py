"""Whether a job or a process of it is silent."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.stories.deeds import Deeds
from diagnose.stories.silence import Silence, find_silence
from diagnose.timeline.event import Event
from tests.infer.rows import at, step

Row = dict[str, Any]
NS = 1_000_000_000
START = at("08:00:00")
ENDINGS = {"scheduler.limit"}


def steps(count: int, every: int = 10, **more: Any) -> list[Row]:
    return [step(n, time=START + n * every * NS, **more) for n in range(count)]


def limit(seconds: int, **more: Any) -> Row:
    row = {"role": "cause", "cause": "scheduler.limit", "time": START + seconds * NS}
    return row | more


def find(make: Any, *rows: Row) -> Silence | None:
    return find_silence(Deeds(make(*rows), {}), ENDINGS)


def test_longer_than_twenty_intervals_before_the_end(make: Any) -> None:
    found = find(make, *steps(10), limit(90 + 250))
    assert found is not None
    assert (found.whole, found.seconds, found.usual_s, found.lone) == (True, 250.0, 10.0, None)
    assert (found.last.step, found.began.step) == (9, 9)
    assert find(make, *steps(10), limit(90 + 150)) is None


def test_longer_than_what_it_came_back_from(make: Any) -> None:
    pause = steps(5) + [step(n, time=START + (400 + 10 * n) * NS) for n in range(5, 8)]
    assert find(make, *pause, limit(470 + 700)) is None
    assert find(make, *pause, limit(470 + 900)) is not None


def test_a_phase_is_a_sign_of_life(make: Any) -> None:
    saving = {"kind": "phase", "role": "phase", "phase": "checkpoint", "time": START + 300 * NS}
    assert find(make, *steps(10), saving, limit(90 + 250)) is None


def test_the_end_of_its_script_is_no_silence(make: Any) -> None:
    done = {"kind": "phase", "role": "phase", "signal": "finished", "time": START + 95 * NS}
    assert find(make, *steps(10), done, limit(9000)) is None


def test_nothing_after_the_last_line_shows_no_silence(make: Any) -> None:
    assert find(make, *steps(10)) is None


def test_who_watches_says_how_long(make: Any) -> None:
    found = find(make, *steps(10), {"signal": "silent", "elapsed_ms": 600_000})
    assert found is not None
    assert (found.seconds, found.ended) == (600.0, None)
    assert find(make, *steps(10), {"signal": "silent", "elapsed_ms": 60_000}) is None


def test_lines_that_nobody_knows_may_be_work(make: Any) -> None:
    assert find(make, *steps(10), limit(9000, line=15)) is not None
    assert find(make, *steps(10), limit(9000, line=40)) is None


def bar(number: int, line: int, **more: Any) -> Row:
    return step(number, time=None, elapsed_ms=number * 20_000, line=line) | more


@pytest.mark.parametrize(("below", "seconds"), [(1, 1750.0), (9, None)])
def test_a_bar_tells_how_far_into_the_run_the_work_went(
    make: Any, below: int, seconds: float | None
) -> None:
    """Also where a line without a time stands right below it; an old bar tells nothing of it.

    The time of the line that ended the job is no duration.
    """
    begun = {"line": 1, "text": "Job 7 started on n1 at Sun Jan 11 08:00:00 2026"}
    bars = [bar(n, 10 + n) for n in range(1, 6)]
    loss = [step(n, time=None, line=line) | {"signature": "loss"} for n, line in
            ((2, 12), (5, 15 + below))]  # fmt: skip
    end = {"role": "cause", "cause": "scheduler.limit", "line": 17 + below,
           "text": "W0111 08:30:50.921000 157 torch/x.py:719] stopped"}  # fmt: skip
    ended_at = {"role": "aftermath", "line": 18 + below, "text": "2026-01-11T08:30:50Z ended"}
    found = find(make, begun, *bars, *loss, end, ended_at)
    assert (found.seconds if found else None) == seconds


def test_the_clock_of_a_scheduler_may_be_in_another_zone(make: Any) -> None:
    text = "CANCELLED AT 1970-01-01T{} DUE TO TIME LIMIT"
    rows = [row | {"time": (row["time"] - START) + 8 * 3600 * NS} for row in steps(10)]
    assert find(make, *rows, limit(0, time=None, text=text.format("10:01:35"))) is None
    assert find(make, *rows, limit(0, time=None, text=text.format("10:31:35"))) is not None


@pytest.mark.parametrize(("stops", "lines"), [(9, 1), (8, 2)])
def test_the_first_that_fell_silent(make: Any, stops: int, lines: int) -> None:
    rows = sorted(
        (row for rank in range(4) for row in steps(stops if rank == 2 else 10, rank=rank)),
        key=lambda row: row["time"],
    )
    found = find(make, *rows, limit(9000))
    assert found is not None
    assert found.lone is not None
    assert (found.lone.rank, found.lone.lines, found.began.step) == (2, lines, stops - 1)
    assert find(make, *rows) is None  # one line may be late, or lost


def test_two_that_are_late_are_nobody(make: Any) -> None:
    rows = [row for rank in range(5) for row in steps(8 if rank in (1, 2) else 12, rank=rank)]
    found = find(make, *sorted(rows, key=lambda row: row["time"]), limit(9000))
    assert found is not None
    assert found.lone is None


def test_who_says_why_it_stopped_is_not_silent(make: Any) -> None:
    rows = [row for rank in range(4) for row in steps(8 if rank == 2 else 20, rank=rank)]
    rows.sort(key=lambda row: row["time"])
    assert find(make, *rows) is not None
    died = {"role": "cause", "cause": "crash.exception", "rank": 2, "time": START + 900 * NS}
    assert find(make, *rows, died) is None
    assert find(make, *rows, {"repeated": 3}) is None  # some lines were left out


def test_what_stood_in_a_buffer_is_no_work_after_an_exception(make: Any) -> None:
    rows = [row for rank in range(4) for row in steps(8 if rank == 2 else 20, rank=rank)]
    rows.sort(key=lambda row: row["time"])
    signed = {"text": "[rank2]: Traceback (most recent call last):", "signal": "trouble"}
    raised = {"role": "cause", "cause": "crash.exception", "kind": "exception"}
    died = [signed | {"role": "aftermath"}, raised]
    assert find(make, *(row | {"rank": 2, "time": START} for row in died), *rows) is None
    assert find(make, *(row | {"rank": 1, "time": START} for row in died), *rows) is not None


def test_the_number_of_its_file_is_its_rank(make: Any) -> None:
    rows = [
        row | {"source": f"job-77-{rank}.out"}
        for rank in range(3)
        for row in steps(6 if rank == 1 else 9)
    ]
    found = find(make, *rows, limit(9000, source="job-77.out"))
    assert found is not None
    assert found.lone is not None
    assert found.lone.rank == 1


def test_who_has_no_rank_is_named_by_its_host_or_process(make: Any) -> None:
    hosts = "abcd"
    rows = [row | {"host": h} for h in hosts for row in steps(8 if h == "c" else 20)]
    found = find(make, *sorted(rows, key=lambda row: row["time"]))
    assert found is not None
    assert found.lone is not None
    assert (found.lone.rank, found.lone.host, found.lone.name) == (None, "c", "Host c")
    assert found.summary(None).startswith("Host c wrote no more progress; before, lines came every")
    rows = [row | {"pid": ord(row["host"])} for row in rows]
    found = find(make, *sorted(rows, key=lambda row: row["time"]))
    assert found is not None
    assert found.lone is not None
    assert (found.lone.host, found.lone.name) == ("c", "Process c:99")


def test_what_all_ranks_state_after_the_last_step_is_not_looked_for_among_all_lines(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Event, "__eq__", lambda one, other: pytest.fail("compared by all fields"))
    stated = [limit(400, rank=rank, text=f"rank {rank} took 400 s") for rank in range(8)]
    found = find(make, *steps(10), *stated, {"role": "aftermath", "time": START + 401 * NS})
    assert found is not None
    assert found.ended is not None
    assert found.ended.rank == 0


def test_who_wrote_a_line_less_is_not_the_first_where_lines_are_lost(make: Any) -> None:
    def job(*lost: tuple[int, int]) -> list[Row]:
        rows = [row | {"rank": r} for r in range(4) for row in steps(10 - (r == 3))]
        return [row for row in rows if (row["rank"], row["step"]) not in lost]

    found = find(make, *job(), limit(9000))
    assert found is not None
    assert found.lone is not None
    assert found.lone.rank == 3
    found = find(make, *job((1, 7)), limit(9000))
    assert found is not None
    assert found.lone is None


def test_who_wrote_last_before_lines_that_a_logger_left_out_is_not_the_first(make: Any) -> None:
    def job(place: int) -> list[Row]:
        rows = [row | {"rank": r} for r in range(4) for row in steps(9 if r == 3 else 14)]
        rows = sorted(rows, key=lambda row: (row["step"], row["rank"]))
        rows.insert(place, {"signal": "lost_lines", "rank": None})
        return [row | {"line": n, "source": "a.log"} for n, row in enumerate(rows, 1)]

    for place, lone in ((20, True), (38, True), (46, False)):
        found = find(make, *job(place), limit(9000, line=57, source="a.log"))
        assert found is not None
        assert (found.lone is not None) is lone, place
