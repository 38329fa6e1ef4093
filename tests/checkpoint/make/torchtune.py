"""Checkpoints of torchtune: a folder per epoch (`step` is the epoch), one recipe state per run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.checkpoint.make import hf
from tests.checkpoint.make.base import json_bytes, safetensors_file, torch_file, write


def recipe_state(epoch: int) -> bytes:
    """`recipe_state.pt`."""
    content = {
        "optimizer": hf.optimizer_state(epoch), "seed": 7, "epochs_run": epoch + 1,
        "total_epochs": 4, "max_steps_per_epoch": -1,
    }  # fmt: skip
    return torch_file(content=content, archive="recipe_state")


def make(
    folder: Path,
    *,
    step: int,
    world: int,
    start: float,
    shards: int = 4,
    stem: str = "model",
    lora: bool = False,
) -> None:
    """FullModelHFCheckpointer."""
    index = "model.safetensors.index.json"
    done = hf.weights(folder, step=step, start=start, shards=shards, stem=stem, index=index)
    if lora:
        held = {f"layers.0.lora_{side}": hf.tensor((4, 16), f"{side} {step}") for side in "ab"}
        data = torch_file(content=held, archive="adapter_model")
        write(folder / "adapter_model.pt", data, done + 1)
        data = safetensors_file(hf.LORA, seed=str(step))
        write(folder / "adapter_model.safetensors", data, done + 1.1)
        write(folder / "adapter_config.json", json_bytes(hf.ADAPTER_CONFIG), done + 1.2)
    # Copied with their times from the model that training began with.
    write(folder / "config.json", json_bytes(hf.CONFIG), start - 86400)
    write(folder / "tokenizer.json", json_bytes(hf.TOKENIZER), start - 86400)
    write(folder / "tokenizer_config.json", json_bytes(hf.TOKENIZER_CONFIG), start - 86400)
    write(folder.parent / "recipe_state/recipe_state.pt", recipe_state(step), done + 3)


def old(folder: Path, *, step: int, world: int, start: float, shards: int = 2) -> None:
    """Before 0.4: the files of all epochs up to `step` in one folder."""
    for epoch in range(step + 1):
        for shard in range(1, shards + 1):
            data = torch_file(content=hf.state_dict(f"{shard} {epoch}"), archive="hf_model")
            name = f"hf_model_{shard:04d}_{epoch}.pt"
            write(folder / name, data, start + 600 * epoch + shard)
    write(folder / "recipe_state.pt", recipe_state(step), start + 600 * step + 10)
    write(folder / "config.json", json_bytes(hf.CONFIG), start + 600 * step + 5)


MAKERS: dict[str, Callable[..., None]] = {
    "torchtune": make,
    "torchtune-0.5": partial(make, stem="ft-model"),
    "torchtune-lora": partial(make, lora=True),
}
# By name: what the folder of a step is called.
FOLDERS = dict.fromkeys(MAKERS, "epoch_{step}")
