"""Data-parallel training, started by torchrun."""

from __future__ import annotations

import datetime
import os

import callbacks
import checkpoint
import torch
import torch.distributed as dist
from loader import make_loader
from model import Net
from torch.nn.parallel import DistributedDataParallel
from util import STEPS, TIMEOUT, setup


def train(rank: int, world: int) -> None:
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint.resume(rank)
    for step, (x, y) in enumerate(make_loader(rank), start=1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        callbacks.on_step(rank, world, step, loss.item())
        checkpoint.save(rank, step, model.module.state_dict())
        if step == STEPS:
            break


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    log = setup(rank)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT))
    log.info("world size %d, training for %d steps", world, STEPS)
    train(rank, world)
    log.info("Training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
