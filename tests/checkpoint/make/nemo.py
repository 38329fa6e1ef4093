"""Checkpoints of NeMo 2, and of NeMo 1 in its distributed and its older format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.checkpoint.make import megatron
from tests.checkpoint.make.base import Tensor, filler, json_bytes, torch_file, write

_IO: dict[str, Any] = {"objects": {"model_1": {"type": "ref"}}, "refs": {}, "root": {"key": "ctx"}}


def make_2(folder: Path, *, step: int, world: int, start: float, context: bool = True) -> None:
    """NeMo 2: `weights/`, then `context/`."""
    megatron.write_dist(folder / "weights", step=step, world=world, start=start)
    if context:
        write(folder / "context" / "io.json", json_bytes(_IO), start + 20)


def make_1(folder: Path, *, step: int, world: int, start: float) -> None:
    """NeMo 1 with distributed checkpoints."""
    megatron.write_dist(folder, step=step, world=world, start=start)


def make_ranks(folder: Path, *, step: int, world: int, start: float, tp: int = 2) -> None:
    """NeMo 1 without: the folder of a run, with a file of the step per model parallel rank."""
    name = f"megatron_gpt--val_loss=2.31-step={step}-consumed_samples={step * 8}.0.ckpt"
    for rank in range(tp):
        data = filler(32 * 16 * 4, f"{rank} {step}")
        content = {"global_step": step, "state_dict": {"weight": Tensor((32, 16), data=data)}}
        path = folder / f"mp_rank_{rank:02d}" / name
        write(path, torch_file(content=content), start + rank)


MAKERS: dict[str, Callable[..., None]] = {"nemo-2": make_2, "nemo-1": make_1}
FOLDERS = dict.fromkeys(MAKERS, "gpt--reduced_train_loss=1.25-step={step}-consumed_samples=8.0")
