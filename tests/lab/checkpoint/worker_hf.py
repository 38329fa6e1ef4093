"""Trains a tiny model and saves as transformers' Trainer or accelerate does it.

`python worker_hf.py trainer|accelerate OUT`, also under torchrun.
"""

from __future__ import annotations

import os
import sys

import torch


def trainer(out: str) -> None:
    """Checkpoints at steps 2 and 4, and the model at the end."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    config = LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2,
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir=out, per_device_train_batch_size=2, max_steps=4, save_steps=2, report_to=[],
        use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    row = {"input_ids": torch.arange(8), "labels": torch.arange(8)}
    it = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=[row] * 64)
    it.train()
    it.save_model(f"{out}/final")


def accelerate(out: str) -> None:
    """States after steps 2 and 4."""
    from accelerate import Accelerator

    it = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    model, optimizer, scheduler = it.prepare(model, optimizer, scheduler)
    for step in range(1, 5):
        it.backward(model(torch.randn(2, 8)).sum())
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 2 == 0:
            it.save_state(f"{out}/step_{step}", safe_serialization=step == 2)


if __name__ == "__main__":
    {"trainer": trainer, "accelerate": accelerate}[sys.argv[1]](sys.argv[2])
    sys.stdout.flush()
    os._exit(0)  # threads of torch may still run, and then ending in order may abort
