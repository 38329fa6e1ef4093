# ruff: noqa: D102
"""Training with tensor-parallel and data-parallel groups, started by torchrun."""

from __future__ import annotations

import datetime
import os

import callbacks
import checkpoint
import torch
import torch.distributed as dist
from loader import make_loader
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from util import STEPS, TIMEOUT, setup


class ParallelLinear(torch.nn.Module):
    """A layer whose rows are split over the ranks of a tensor group."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.group = mesh.get_group("tp")
        self.weight = torch.nn.Parameter(torch.randn(8 // mesh["tp"].size(), 1) / 8)
        self.index = mesh.get_local_rank("tp")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = self.weight.shape[0]
        part = x[:, self.index * size : (self.index + 1) * size] @ self.weight
        total = part.detach().clone()
        dist.all_reduce(total, group=self.group)
        return part + (total - part.detach())


def average_gradients(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    """Mean of the gradients over the data-parallel group."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
            parameter.grad /= mesh["dp"].size()


def train(rank: int, world: int, mesh: DeviceMesh) -> None:
    model = ParallelLinear(mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(make_loader(rank), start=1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        average_gradients(model, mesh)
        optimizer.step()
        optimizer.zero_grad()
        callbacks.on_step(rank, world, step, loss.item())
        checkpoint.save(rank, step, model.state_dict())
        if step == STEPS:
            break


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    log = setup(rank)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT))
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    log.info("mesh %s, training for %d steps", mesh, STEPS)
    train(rank, world, mesh)
    log.info("Training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
