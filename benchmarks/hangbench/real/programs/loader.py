"""The data loader of a rank over its shard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from data import BATCH, collate, read_rows, shard_of
from torch.utils.data import DataLoader, IterableDataset
from util import SETTINGS


class Shard(IterableDataset[dict[str, Any]]):
    """The rows of one shard."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return read_rows(self.path)


def to_tensors(rows: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Collate rows to a batch of tensors."""
    x, y = collate(rows)
    return torch.tensor(x), torch.tensor(y).unsqueeze(1)


def make_loader(rank: int) -> DataLoader[Any]:
    """Batches of the shard of a rank."""
    return DataLoader(
        Shard(shard_of(rank)),
        batch_size=BATCH,
        num_workers=SETTINGS["num_workers"],
        collate_fn=to_tensors,
        drop_last=True,
    )
