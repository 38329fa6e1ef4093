# ruff: noqa: D102
"""Training with the Trainer of Transformers, started by torchrun."""

from __future__ import annotations

from typing import Any

import callbacks
import torch
import torch.distributed as dist
from data import collate, read_rows, shard_of
from model import Net
from torch.utils.data import Dataset, IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from util import SETTINGS, STEPS, TIMEOUT, setup


class Rows(IterableDataset[Any]):
    """The shard of this rank."""

    def __iter__(self) -> Any:
        return read_rows(shard_of(dist.get_rank()))


class Regression(torch.nn.Module):
    """The model as the trainer wants it: it returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": torch.nn.functional.mse_loss(self.net(x), labels)}


class OnStep(TrainerCallback):
    """Hands each step on to the callbacks of this project."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        last = state.log_history[-1].get("loss", 0.0) if state.log_history else 0.0
        callbacks.on_step(args.process_index, args.world_size, state.global_step, float(last))


class LocalTrainer(Trainer):
    """Each rank reads a shard of its own, so nothing is split once more."""

    def get_train_dataloader(self) -> Any:
        data: Dataset[Any] = Rows()
        return torch.utils.data.DataLoader(
            data, batch_size=4, collate_fn=batch, num_workers=SETTINGS["num_workers"]
        )


def batch(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Collate rows as the model wants them."""
    x, y = collate(rows)
    return {"x": torch.tensor(x), "labels": torch.tensor(y).unsqueeze(1)}


def main() -> None:
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=4,
        logging_steps=2,
        save_steps=SETTINGS["save_every"],
        report_to=[],
        ddp_backend="gloo",
        ddp_timeout=int(TIMEOUT),
        disable_tqdm=not SETTINGS["all_ranks_log"],
    )
    setup(arguments.process_index)
    trainer = LocalTrainer(
        model=Regression(), args=arguments, train_dataset=Rows(), callbacks=[OnStep()]
    )
    trainer.train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
