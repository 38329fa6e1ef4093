"""After each step: log it; evaluate now and then on the main process."""

from __future__ import annotations

import logging

import torch
import torch.distributed as dist
from util import SETTINGS, STEPS, progress


def evaluate(loss: float) -> float:
    """Mean of the evaluation loss over all ranks."""
    value = torch.tensor([loss, 1.0])
    dist.all_reduce(value)
    return (value[0] / value[1]).item()


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        logging.getLogger("train").info("eval loss %.4f", evaluate(loss))
