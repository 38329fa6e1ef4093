"""What happens after each step and at the end of training."""

from __future__ import annotations

import logging

from util import STEPS, progress


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
