"""After each step: log it; one rank updates an index that several jobs share."""

from __future__ import annotations

import fcntl
import logging
from pathlib import Path

from util import SETTINGS, STEPS, progress


def update_index(step: int, loss: float) -> None:
    """Add a line to the shared index while nobody else writes."""
    with Path("index.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with Path("index.tsv").open("a", encoding="utf-8") as index:
            index.write(f"{step}\t{loss}\n")


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        update_index(step, loss)
