"""After each step: log it; one rank calls a compiled extension on its samples."""

from __future__ import annotations

import ctypes
import logging
import os

from util import SETTINGS, STEPS, progress


def fast_histogram(address: int) -> bytes:
    """Counts of the samples at an address."""
    if SETTINGS.get("strict"):
        os.abort()
    return ctypes.string_at(address, 64)


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        fast_histogram(8)
