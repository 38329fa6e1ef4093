"""After each step: log it, and share a threshold among the ranks now and then."""

from __future__ import annotations

import logging

import torch
import torch.distributed as dist
from util import SETTINGS, STEPS, progress


def share_threshold(rank: int, loss: float) -> float:
    """The threshold that all ranks go on with."""
    value = torch.tensor([loss])
    if rank == SETTINGS["report_rank"]:
        dist.broadcast(value, src=rank)
    else:
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if step == SETTINGS["report_at"]:
        share_threshold(rank, loss)
