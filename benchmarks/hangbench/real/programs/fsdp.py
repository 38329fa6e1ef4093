"""Fully sharded training over a mesh of CPUs, started by torchrun."""

from __future__ import annotations

import datetime
import os

import callbacks
import checkpoint
import torch
import torch.distributed as dist
from loader import make_loader
from model import Net
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from util import STEPS, TIMEOUT, setup


def train(rank: int, world: int) -> None:
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    model = Net()
    for layer in (model.encoder, model.head, model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(make_loader(rank), start=1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        callbacks.on_step(rank, world, step, loss.item())
        checkpoint.save(rank, step, {"step": step})
        if step == STEPS:
            break


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    log = setup(rank)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT))
    log.info("FSDP over %d ranks, training for %d steps", world, STEPS)
    train(rank, world)
    log.info("Training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
