"""After each step: log it; one rank sorts its samples."""

from __future__ import annotations

import logging
import subprocess

from util import SETTINGS, STEPS, progress


def sort_samples(step: int) -> None:
    """Sort the samples that were written so far."""
    subprocess.run(["sort", "-o", f"samples-{step}.txt", "samples.log"], check=True)


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        sort_samples(step)
