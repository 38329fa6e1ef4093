"""Training with Accelerate, started by `accelerate launch`."""

from __future__ import annotations

import datetime

import callbacks
import checkpoint
import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from loader import make_loader
from model import Net
from util import STEPS, TIMEOUT, setup


def main() -> None:
    torch.set_num_threads(1)
    limit = InitProcessGroupKwargs(timeout=datetime.timedelta(seconds=TIMEOUT))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[limit])
    rank, world = accelerator.process_index, accelerator.num_processes
    log = setup(rank)
    model = Net()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    log.info("***** Running training *****")
    log.info("  Num processes = %d", world)
    log.info("  Total optimization steps = %d", STEPS)
    for step, (x, y) in enumerate(make_loader(rank), start=1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        mean = accelerator.gather(loss.detach().reshape(1)).mean()
        callbacks.on_step(rank, world, step, mean.item())
        checkpoint.save(rank, step, accelerator.unwrap_model(model).state_dict())
        if step == STEPS:
            break
    accelerator.wait_for_everyone()
    log.info("Training finished")
    accelerator.end_training()


if __name__ == "__main__":
    main()
