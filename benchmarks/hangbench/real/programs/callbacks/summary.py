"""After each step: log it, and sum the metrics of a rank up now and then."""

from __future__ import annotations

import logging
from typing import Any

from util import SETTINGS, STEPS, progress

history: dict[str, Any] = {"loss": []}


def summarize(metrics: dict[str, Any], window: int) -> dict[str, float]:
    """Means of the last values of each metric."""
    means = {name: sum(values[-window:]) / window for name, values in metrics.items()}
    means["accuracy"] = metrics["correct"] / metrics["total"]
    return means


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    history["loss"].append(loss)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        logging.getLogger("train").info("summary %s", summarize(history, SETTINGS["window"]))
