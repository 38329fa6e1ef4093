"""After each step: log it; one rank packs its samples with gzip."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

from util import SETTINGS, STEPS, progress


def archive_samples(step: int) -> None:
    """Pack the samples that were written so far."""
    with Path(f"samples-{step}.gz").open("wb") as packed:
        subprocess.run(["gzip", "-c", "samples.log"], stdout=packed, check=True)


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        archive_samples(step)
