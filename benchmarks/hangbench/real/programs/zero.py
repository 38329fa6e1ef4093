"""Training with DeepSpeed on the CPU, started by torchrun."""

from __future__ import annotations

import datetime
import os

import callbacks
import deepspeed
import torch
import torch.distributed as dist
from loader import make_loader
from model import Net
from util import STEPS, TIMEOUT, setup

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    log = setup(rank)
    limit = datetime.timedelta(seconds=TIMEOUT)
    deepspeed.init_distributed(dist_backend="gloo", timeout=limit)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    config = {key: value for key, value in CONFIG.items() if key != "optimizer"}
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    log.info("DeepSpeed ZeRO over %d ranks, training for %d steps", world, STEPS)
    for step, (x, y) in enumerate(make_loader(rank), start=1):
        loss = torch.nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        engine.step()
        callbacks.on_step(rank, world, step, loss.item())
        if step == STEPS:
            break
    log.info("Training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
