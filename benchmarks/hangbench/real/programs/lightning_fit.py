# ruff: noqa: D102
"""Training with Lightning's Trainer, which starts its own processes."""

from __future__ import annotations

import datetime
from typing import Any

import callbacks
import lightning
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from loader import make_loader
from model import Net
from util import SETTINGS, STEPS, TIMEOUT, setup


class Regression(lightning.LightningModule):
    """The model with its loss and optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def train_dataloader(self) -> Any:
        return make_loader(self.global_rank)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Progress(Callback):
    """Hands each step on to the callbacks of this project."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        setup(trainer.global_rank)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = outputs["loss"].item()
        callbacks.on_step(trainer.global_rank, trainer.world_size, batch_idx + 1, loss)


if __name__ == "__main__":
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=TIMEOUT)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=SETTINGS["world"],
        strategy=DDPStrategy(process_group_backend="gloo", timeout=limit),
        max_steps=STEPS,
        callbacks=[Progress()],
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
        log_every_n_steps=5,
    )
    trainer.fit(Regression())
