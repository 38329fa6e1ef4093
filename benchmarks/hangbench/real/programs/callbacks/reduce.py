"""After each step: log it, and average the loss over the ranks now and then (mpi4py)."""

from __future__ import annotations

import logging

from mpi4py import MPI
from util import SETTINGS, STEPS, progress


def average(loss: float) -> float:
    """Mean of the loss over all ranks."""
    total: float = MPI.COMM_WORLD.reduce(loss, root=0)
    return total


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        MPI.COMM_WORLD.Barrier()
