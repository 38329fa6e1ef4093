"""After each step: log it; one rank also renders its samples."""

from __future__ import annotations

import logging
import time

from util import SETTINGS, STEPS, progress


def render_samples(seconds: float) -> int:
    """Draw the samples of a step."""
    ends, drawn = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        drawn += sum(value * value for value in range(1000))
        time.sleep(0.01)
    return drawn


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step >= SETTINGS["report_at"]:
        render_samples(SETTINGS["render_s"])
