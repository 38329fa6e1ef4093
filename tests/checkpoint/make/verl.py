"""Checkpoints of verl (0.9.1) with FSDP, as its trainers write them and in this order."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.checkpoint.make.base import (
    Tensor,
    filler,
    json_bytes,
    safetensors_file,
    torch_file,
    write,
)

TRACKER = "latest_checkpointed_iteration.txt"
_CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64}


def _tensor(numel: int, seed: str) -> Tensor:
    return Tensor((numel,), "float32", filler(numel * 4, seed))


def model(folder: Path, step: int, world: int, start: float, *, weights: bool = False) -> None:
    """What the manager of one model saves: shards of all ranks, then rank 0's configuration."""
    for rank in range(world):
        tail = f"_world_size_{world}_rank_{rank}.pt"
        states = {
            "model": {"w": _tensor(800, f"{folder.name} {rank} {step}")},
            "optim": {"state": {0: {"step": step, "m": _tensor(1600, f"{rank} {step}")}}},
            "extra_state": {"lr_scheduler": {"last_epoch": step}, "rng": {"cpu": [rank, step]}},
        }
        for n, (kind, content) in enumerate(states.items()):
            write(folder / (kind + tail), torch_file(content=content), start + 3 * n + 0.1 * rank)
    write(folder / "huggingface/config.json", json_bytes(_CONFIG), start + 7)
    settings = json_bytes({"tokenizer_class": "Qwen2Tokenizer"})
    write(folder / "huggingface/tokenizer_config.json", settings, start + 7)
    write(folder / "huggingface/tokenizer.json", json_bytes({"version": "1.0"}), start + 7)
    config = json.dumps({"FSDP_version": 1, "world_size": world}, indent=4)
    write(folder / "fsdp_config.json", config.encode(), start + 7)
    if weights:
        data = safetensors_file({"model.w": ("BF16", (800,))}, seed=str(step))
        write(folder / "huggingface/model.safetensors", data, start + 9)


def reinforced(
    folder: Path, *, step: int, world: int, start: float, critic: bool = True, weights: bool = False
) -> None:
    """A step of PPO: actor and critic, then the data loader, then the run's tracker."""
    model(folder / "actor", step, world, start, weights=weights)
    if critic:
        model(folder / "critic", step, world, start + 10)
    loader = torch_file(content={"_num_yielded": step, "_snapshot": {"seed": 1}})
    write(folder / "data.pt", loader, start + 20)
    write(folder.parent / TRACKER, str(step).encode(), start + 20)


def tuned(folder: Path, *, step: int, world: int, start: float) -> None:
    """A step of supervised fine-tuning: one model, and a data loader of each data parallel rank."""
    model(folder, step, world, start)
    for rank in range(world):
        loader = torch_file(content={"_num_yielded": step, "_snapshot": {"seed": 1}})
        write(folder / f"data_{rank}.pt", loader, start + 11)
    write(folder.parent / TRACKER, str(step).encode(), start + 12)


MAKERS: dict[str, Callable[..., None]] = {
    "verl-ppo": reinforced,
    "verl-grpo-weights": partial(reinforced, critic=False, weights=True),
    "verl-sft": tuned,
}
FOLDERS = dict.fromkeys(MAKERS, "global_step_{step}")  # what the checkpoint of a step is called
