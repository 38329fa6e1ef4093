from diagnose.report.html.clock import prepare
from diagnose.report.html.lanes import MAX_LINES, MAX_POINTS, Counter, counters
from diagnose.report.safe import scrubber

from .jobs import fixture, pasted


def count(text: str, culprits: list[int] | None = None) -> list[Counter]:
    job, _ = pasted(text)
    return counters(prepare(job, None), job.catalog, culprits or [], scrubber(redact=True))


def step(rank: int, second: int, number: int) -> str:
    minute, second = divmod(second, 60)
    return (
        f"[rank{rank}]: 2026-06-02 08:{minute:02d}:{second:02d},000 INFO trainer: "
        f"step {number}/1000 loss 1.0"
    )


def test_ranks_that_went_alike_are_one_line_the_straggler_another() -> None:
    lines = [step(rank, at, at // 10) for at in range(0, 600, 10) for rank in (0, 1)]
    lines += [step(2, at, at // 40) for at in range(0, 600, 10)]
    [counter] = count("\n".join(lines), [2])
    assert [(line.name, line.last, line.culprit) for line in counter.lines] == [
        ("rank 2", 14, True),
        ("ranks 0-1", 59, False),
    ]
    assert counter.lines[1].points[0] == [0, 0]
    assert counter.lines[1].points[-1] == [590_000, 59]


def test_one_point_is_no_picture() -> None:
    assert count(step(0, 0, 1)) == []
    assert count("nothing here") == []


def test_lines_and_points_are_bounded() -> None:
    lines = [step(0, at, at) for at in range(900)]
    lines += [step(rank, at, at // rank) for rank in range(2, 50) for at in (0, 800)]
    [counter] = count("\n".join(lines))
    assert len(counter.lines) == MAX_LINES
    assert counter.more > 0
    assert all(len(line.points) <= MAX_POINTS for line in counter.lines)
    assert counter.lines[0].last <= counter.lines[-1].last  # the farthest behind first


def test_a_bar_without_times_rises_over_the_time_it_ran() -> None:
    job, diagnosis = fixture("torchrun-missing-rank")
    found = counters(
        prepare(job, diagnosis.onset.time),
        job.catalog,
        diagnosis.culprits.ranks,
        scrubber(redact=True),
    )
    [line] = found[0].lines
    assert [point[1] for point in line.points] == [1, 11, 12, 13, 14]
    assert line.points[-1][0] - line.points[0][0] == 156_000
