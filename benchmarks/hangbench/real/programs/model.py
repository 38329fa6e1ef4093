# ruff: noqa: D102
"""The model: two layers."""

from __future__ import annotations

import torch


class Net(torch.nn.Module):
    """A small regression network."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(8, 16)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.encoder(x))
        output: torch.Tensor = self.head(hidden)
        return output
