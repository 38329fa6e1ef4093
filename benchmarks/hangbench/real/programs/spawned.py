"""Data-parallel training whose processes torch.multiprocessing.spawn starts."""

from __future__ import annotations

import datetime
import os

import callbacks
import checkpoint
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from loader import make_loader
from model import Net
from torch.nn.parallel import DistributedDataParallel
from util import SETTINGS, STEPS, TIMEOUT, setup


def worker(rank: int, world: int) -> None:
    torch.set_num_threads(1)
    log = setup(rank)
    limit = datetime.timedelta(seconds=TIMEOUT)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=limit)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    log.info("world size %d, training for %d steps", world, STEPS)
    for step, (x, y) in enumerate(make_loader(rank), start=1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        callbacks.on_step(rank, world, step, loss.item())
        checkpoint.save(rank, step, model.module.state_dict())
        if step == STEPS:
            break
    log.info("Training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(SETTINGS["port"]))
    mp.spawn(worker, args=(SETTINGS["world"],), nprocs=SETTINGS["world"])
