"""Checkpoints of a model, written by rank 0."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from util import SETTINGS


def save(rank: int, step: int, state: dict[str, Any]) -> None:
    """Save the state every so many steps; the others wait until it is on the disk."""
    if step % SETTINGS["save_every"]:
        return
    if rank == 0:
        folder = Path("checkpoints", f"step-{step}")
        logging.getLogger("train").info("Saving checkpoint to %s", folder)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "model.pt").open("wb") as file:
            torch.save(state, file)
    dist.barrier()


def resume(rank: int) -> dict[str, Any] | None:
    """The optimizer state of a rank in the checkpoint to resume from, if there is one."""
    path = SETTINGS.get("resume")
    if path is None:
        return None
    logging.getLogger("train").info("Resuming from %s", path)
    found: dict[str, Any] = torch.load(Path(path, f"optim-rank{rank}.pt"), weights_only=True)
    return found
