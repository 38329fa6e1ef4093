"""A pipeline of stages that pass activations on by send and recv, started by torchrun."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator

import callbacks
import checkpoint
import torch
import torch.distributed as dist
from data import BATCH
from loader import make_loader
from util import STEPS, TIMEOUT, setup

WIDTH = 8


def forward(stage: torch.nn.Module, rank: int, world: int, x: torch.Tensor) -> torch.Tensor:
    """Take activations from the stage before, pass the own ones on."""
    if rank > 0:
        x = torch.empty(BATCH, WIDTH)
        dist.recv(x, src=rank - 1)
    x.requires_grad_()
    output: torch.Tensor = stage(x)
    if rank < world - 1:
        dist.send(output.detach(), dst=rank + 1)
    return output


def backward(x: torch.Tensor, output: torch.Tensor, rank: int, world: int) -> float:
    """Take the gradient from the stage after, pass the own one back."""
    if rank == world - 1:
        loss = output.square().mean()
        loss.backward()
        value = loss.item()
    else:
        gradient = torch.empty_like(output)
        dist.recv(gradient, src=rank + 1)
        output.backward(gradient)
        value = gradient.square().mean().item()
    if rank > 0:
        dist.send(torch.full((BATCH, WIDTH), value), dst=rank - 1)
    return value


def batches(rank: int) -> Iterator[torch.Tensor]:
    """The first stage reads rows, all others read their own labels in step with it."""
    for x, _ in make_loader(rank):
        yield x


def train(rank: int, world: int) -> None:
    stage = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
    for step, x in enumerate(batches(rank), start=1):
        output = forward(stage, rank, world, x)
        loss = backward(x, output, rank, world)
        optimizer.step()
        optimizer.zero_grad()
        callbacks.on_step(rank, world, step, loss)
        checkpoint.save(rank, step, stage.state_dict())
        if step == STEPS:
            break


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    log = setup(rank)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT))
    log.info("pipeline of %d stages, training for %d steps", world, STEPS)
    train(rank, world)
    log.info("Training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
