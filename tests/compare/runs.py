"""Two runs of one small job, in which only what differs in any two runs differs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diagnose.comparison import Comparison, Difference, compare

STEPS = 40


def log(
    run: int,
    *,
    given: Sequence[str] = ("torch==2.5.1", "NCCL_IB_HCA=mlx5_0", "train.py --lr 0.1 --bf16"),
    late: Sequence[str] = (),
    data_s: float = 0.01,
    end: str = "Training finished",
) -> str:
    """What rank 0 and 1 print in the `run`-th run; `late` are lines before the last step."""
    rows = [f"starting, pid {4000 + run}, MASTER_PORT={20_000 + run}, TMPDIR=/tmp/job.{run:x}af3"]
    rows += [*given, f"loaded in {3 + run / 7:.2f} s, output /results/2026-11-{10 + run}/logs"]
    text = []
    at = 0
    for rank in (0, 1):
        text += [f"[rank{rank}]: 2026-11-{10 + run} 10:00:{rank:02d} {row}" for row in rows]
    for step in range(1, STEPS + 1):
        at += 2
        stamp = f"2026-11-{10 + run} 10:{1 + at // 60:02d}:{at % 60:02d}"
        if step == STEPS:
            text += [f"[rank1]: {stamp} {row}" for row in late]
        for rank in (0, 1):
            jitter = 1 + (step * 7 + run * 3 + rank) % 5 / 100
            text.append(
                f"[rank{rank}]: {stamp} step {step}/{STEPS} loss {9 / step + run / 100:.4f} "
                f"data_time={data_s * jitter:.5f} forward_time={0.06 * jitter:.5f}"
            )
    return "\n".join([*text, f"[rank0]: 2026-11-{10 + run} 10:02:30 {end}"]) + "\n"


def differing(folder: Path, good: str, bad: str) -> Comparison:
    """The comparison of two logs."""
    for name, text in (("good.log", good), ("bad.log", bad)):
        (folder / name).write_text(text, encoding="utf-8")
    return compare(folder / "good.log", folder / "bad.log")


def first(found: Comparison) -> Difference:
    """The most telling difference."""
    return found.differences[0]
