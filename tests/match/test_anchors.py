"""The steps around serious lines are kept, whatever else is left out."""

from __future__ import annotations

from functools import partialmethod
from pathlib import Path

import pytest

import diagnose
from diagnose.ingest.read import TextChunks

OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory."


def log(before: int, after: int, ranks: int) -> list[str]:
    lines = [f"[rank{r}]: step {n} loss 2.1" for n in range(before) for r in range(ranks)]
    lines.append(OOM)
    lines += [f"[rank{r}]: step {n} loss 2.1" for n in range(before, after) for r in range(ranks)]
    return lines


def kept(lines: list[str], folder: Path) -> dict[int | None, list[int]]:
    """Rank → the steps that are kept of it."""
    path = folder / "job.log"
    path.write_text("\n".join(lines) + "\n")
    found: dict[int | None, list[int]] = {}
    for event in diagnose.load([path]).events.kind("progress"):
        if event.step is not None:
            found.setdefault(event.rank, []).append(event.step)
    return found


@pytest.mark.parametrize("size", [40, 60_000])
def test_of_each_rank_the_last_step_before_and_the_first_after_are_kept(
    size: int, tmp_path: Path
) -> None:
    steps = kept(log(size, 2 * size, 4), tmp_path)
    for rank in range(4):
        assert {size - 1, size, size + 1, 2 * size - 1} <= {*steps[rank]}
        assert len(steps[rank]) < 40, "all others are left out"


@pytest.mark.slow
def test_cuts_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = log(30_000, 60_000, 4)
    whole = kept(lines, tmp_path)
    made = TextChunks.__init__
    for limit in (1 << 17, 300_000):
        cut = partialmethod(made, chunk_limit=limit)
        monkeypatch.setattr(TextChunks, "__init__", cut)
        assert kept(lines, tmp_path) == whole


def test_an_error_below_the_last_step_keeps_nothing_more(tmp_path: Path) -> None:
    calm = kept(log(500, 500, 2)[:-1], tmp_path)
    assert kept(log(500, 500, 2), tmp_path) == calm


def test_lines_around_an_error_stay_in_their_order_where_all_were_one_line(tmp_path: Path) -> None:
    bar = " {}%|███ | {}/80 [11:07<25:02, 27.83s/it]"
    bars = [bar.format(n, n) for n in range(28, 33)]
    raised = (
        'Traceback (most recent call last):\n  File "train.py", line 137, in <module>\n'
        "    batch = reader.read(shard)\nshardio.ShardMismatch: shard 505 holds 4095\n"
    )
    path = tmp_path / "job.log"
    head = "".join(f"loading part {n}\n" for n in range(5))
    path.write_text(f"{head}\r" + "\r".join(bars) + raised + "\r" + bars[-1] + "\n")  # drawn again
    job = diagnose.load(path)
    steps = [(event.line, event.step) for event in job.events.kind("progress")]
    assert steps == [*((6, n) for n in range(28, 33)), (10, 32)]
    found = diagnose.diagnose(job)
    assert (found.verdict, found.root_cause.cause) == ("failed", "crash.exception")
