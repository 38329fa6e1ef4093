# ruff: noqa: D102, PLC0415
"""Data-parallel training in Ray actors that reduce their gradients with gloo."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import ray
from util import SETTINGS


@ray.remote(num_cpus=0, max_restarts=0)
class Trainer:
    """One rank."""

    def __init__(self, rank: int, world: int, folder: str) -> None:
        os.chdir(folder)
        self.rank, self.world = rank, world

    def fit(self) -> int:
        import callbacks
        import torch
        import torch.distributed as dist
        from loader import make_loader
        from model import Net
        from torch.nn.parallel import DistributedDataParallel
        from util import STEPS, TIMEOUT, setup

        torch.set_num_threads(1)
        log = setup(self.rank)
        address = f"tcp://127.0.0.1:{SETTINGS['port']}"
        limit = datetime.timedelta(seconds=TIMEOUT)
        dist.init_process_group(
            "gloo", address, rank=self.rank, world_size=self.world, timeout=limit
        )
        model = DistributedDataParallel(Net())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        log.info("world size %d, training for %d steps", self.world, STEPS)
        for step, (x, y) in enumerate(make_loader(self.rank), start=1):
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            callbacks.on_step(self.rank, self.world, step, loss.item())
            if step == STEPS:
                break
        return step


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100_000_000)
    world = SETTINGS["world"]
    actors = [Trainer.remote(rank, world, str(Path.cwd())) for rank in range(world)]
    print(f"Started {world} trainers", flush=True)
    steps = ray.get([actor.fit.remote() for actor in actors])
    print(f"Training finished after {steps} steps", flush=True)


if __name__ == "__main__":
    main()
