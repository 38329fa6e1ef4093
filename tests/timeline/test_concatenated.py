"""Logs of several ranks that `cat` wrote into one file."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import diagnose

BEGIN = datetime(2026, 7, 30, 8, 0, 0)
DIED = (
    "Traceback (most recent call last):",
    '  File "train.py", line 1, in <module>',
    "    main()",
    "torch.OutOfMemoryError: CUDA out of memory.",
)


def log(first: int, last: int, begin: datetime | None = None) -> list[str]:
    """The first words of a run, then its steps, one every half minute."""
    lines = ["Starting training with world_size 4"]
    lines += [f"step {n} loss 2.1" for n in range(first, last + 1)]
    if begin is None:
        return lines
    return [f"{begin + n * timedelta(seconds=30)} INFO {line}" for n, line in enumerate(lines)]


def verdict(*logs: list[str]) -> tuple[str, str]:
    found = diagnose.diagnose(diagnose.load_text("\n".join(line for one in logs for line in one)))
    return found.verdict, found.root_cause.cause


def test_the_clock_goes_back_where_the_next_rank_begins() -> None:
    for died in range(4):
        ranks = [log(1, 18, BEGIN) + [*DIED] * (rank == died) for rank in range(4)]
        assert verdict(*ranks) == ("failed", "crash.gpu_oom")


def test_what_ran_one_after_the_other_are_runs() -> None:
    again = log(1, 18, BEGIN + timedelta(hours=1))
    assert verdict([*log(1, 18, BEGIN), *DIED], again) == ("running", "none")


def test_without_a_clock_ranks_stop_at_one_step_without_an_end() -> None:
    ranks = [log(1, 18) + [*DIED] * (rank == 1) for rank in range(4)]
    assert verdict(*ranks) == ("failed", "crash.gpu_oom")
    assert verdict([*log(1, 18), *DIED], log(1, 30)) == ("running", "none")


def test_each_part_is_a_source_with_the_lines_of_its_file() -> None:
    lines = [line for rank in range(2) for line in log(1, 3, BEGIN + timedelta(seconds=rank))]
    events = diagnose.load_text("\n".join(lines)).events
    last = events.at(len(events) - 1)
    assert (last.source, last.line) == ("<paste> (part 2)", 8)


def test_a_file_with_the_name_of_a_rank_holds_runs_of_that_rank(tmp_path: Path) -> None:
    later, before = log(1, 18, BEGIN), log(1, 18, BEGIN - timedelta(hours=1))
    for name, sources in (("rank_3.log", 1), ("all.log", 2)):
        (tmp_path / name).write_text("\n".join([*later, *DIED, *before]) + "\n")
        found = {event.source for event in diagnose.load(tmp_path / name).events}
        assert len(found) == sources
