"""Checkpoints of DeepSpeed (0.16.4), as its engine writes them and in this order."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.checkpoint.make.base import Tensor, filler, torch_file, write

VERSION = "0.16.4"


def _tensor(numel: int, seed: str, dtype: str = "float32") -> Tensor:
    size = {"float32": 4, "bfloat16": 2}[dtype]
    return Tensor((numel,), dtype, filler(numel * size, seed))


def model_states(step: int, dp: int, mp: int, stage: int, seed: str, **more: Any) -> bytes:
    """What `_save_checkpoint` pickles for one model parallel rank."""
    content = {
        "module": {"model.weight": _tensor(700, f"{seed} {step}", "bfloat16")},
        "buffer_names": [],
        "optimizer": None,
        "param_shapes": [{"model.weight": (700 * dp,)}],
        "lr_scheduler": {"last_batch_iteration": step, "total_num_steps": 10_000},
        "sparse_tensor_module_names": [],
        "skipped_steps": 0,
        "global_steps": step,
        "global_samples": step * 512,
        "dp_world_size": dp,
        "mp_world_size": mp,
        "ds_config": {
            "train_batch_size": 512, "train_micro_batch_size_per_gpu": 4,
            "zero_optimization": {"stage": stage}, "bf16": {"enabled": True},
        },
        "ds_version": VERSION,
    }  # fmt: skip
    return torch_file(content=content | more)


def optim_states(step: int, dp: int, stage: int, seed: str, numel: int = 900) -> bytes:
    """What `_save_zero_checkpoint` pickles for one rank."""
    state = {
        "step": step,
        "exp_avg": _tensor(numel, f"{seed} {step} m"),
        "exp_avg_sq": _tensor(numel, f"{seed} {step} v"),
    }
    content = {
        "optimizer_state_dict": {
            "loss_scaler": None, "dynamic_loss_scale": False, "overflow": False,
            "zero_stage": stage, "partition_count": dp,
            "base_optimizer_state": {"state": {0: state}, "param_groups": [{"lr": 1e-4}]},
            "single_partition_of_fp32_groups": [_tensor(numel, f"{seed} {step}")],
            "ds_version": VERSION,
        },
        "ds_config": {"zero_optimization": {"stage": stage}},
        "ds_version": VERSION,
    }  # fmt: skip
    return torch_file(content=content)


def weights(step: int, seed: str, numel: int) -> bytes:
    """A state dict of weights alone, as of a pipeline's layer or an expert."""
    return torch_file(content={"weight": _tensor(numel, f"{seed} {step}", "bfloat16")})


def zero(
    folder: Path,
    *,
    step: int,
    world: int,
    start: float,
    stage: int = 2,
    mp: int = 1,
    prefix: str = "bf16_",
    marker: bool = True,
) -> None:
    """ZeRO: `world` ranks, `mp` of them in a model parallel group."""
    dp = world // mp
    for m in range(mp):
        for d in range(dp if stage == 3 else 1):
            whole = f"mp_rank_{m:02d}_model_states.pt"
            name = f"zero_pp_rank_{d}_{whole}" if stage == 3 else whole
            data = model_states(step, dp, mp, stage, name)
            write(folder / name, data, start + 2 + 0.1 * d)
    if stage:
        for m in range(mp):
            for d in range(dp):
                name = f"{prefix}zero_pp_rank_{d}_mp_rank_{m:02d}_optim_states.pt"
                write(folder / name, optim_states(step, dp, stage, name), start + 9 + 0.3 * d)
        write(folder.parent / "zero_to_fp32.py", b"#!/usr/bin/env python\n", start + 9)
    _latest(folder, start + 13, marker)


def pipeline(
    folder: Path, *, step: int, world: int, start: float, tp: int = 2, stages: int = 2
) -> None:
    """Pipeline stages with tensor parallel ranks, bf16; two of the layers have no weights."""
    dp = world // (tp * stages)
    layers = {0: 3000, 2: 1200, 3: 1200, 4: 1200, 5: 1200, 7: 64, 8: 3000}
    for number, numel in layers.items():
        for t in range(tp):
            name = f"layer_{number:02d}-model_{t:02d}-model_states.pt"
            write(folder / name, weights(step, name, numel), start + 1 + number / 10)
    for m in range(tp * stages):
        name = f"mp_rank_{m:02d}_model_states.pt"
        data = model_states(step, dp, tp * stages, 1, name, module=None)
        write(folder / name, data, start + 4)
    for m in range(tp * stages):
        for d in range(dp):
            name = f"bf16_zero_pp_rank_{d}_mp_rank_{m:02d}_optim_states.pt"
            write(folder / name, optim_states(step, dp, 1, name), start + 6 + 0.2 * m)
    _latest(folder, start + 8, True)


def experts(
    folder: Path, *, step: int, world: int, start: float, layers: int = 2, ranks: int = 2
) -> None:
    """A mixture of four experts in each layer, on `ranks` expert parallel ranks."""
    for layer in range(layers):
        for expert in range(4):
            name = f"layer_{layer}_expert_{expert}_mp_rank_00_model_states.pt"
            write(folder / name, weights(step, name, 800), start + 1 + 0.1 * expert)
    for rank in range(ranks):
        name = f"expp_rank_{rank}_mp_rank_00_optim_states.pt"
        write(folder / name, torch_file(content={"optimizer": None, "step": step}), start + 2)
    name = "mp_rank_00_model_states.pt"
    data = model_states(step, world, 1, 2, name, num_experts=[4] * layers)
    write(folder / name, data, start + 3)
    for d in range(world):
        name = f"zero_pp_rank_{d}_mp_rank_00_optim_states.pt"
        write(folder / name, optim_states(step, world, 2, name), start + 5 + 0.2 * d)
    _latest(folder, start + 7, True)


def universal(folder: Path, *, step: int, world: int, start: float, params: int = 4) -> None:
    """What ds_to_universal.py makes of a checkpoint; `world` ranks had written that one."""
    for number in range(params):
        place = folder / "zero" / f"model.layers.{number}.weight"
        for kind in ("fp32", "exp_avg", "exp_avg_sq"):
            content = {"param": _tensor(300 + number, f"{kind} {number} {step}"), "cat_dim": 0}
            write(place / f"{kind}.pt", torch_file(content=content), start + 1 + number)
        state = torch_file(content=Tensor((1,), data=step.to_bytes(4, "little")))
        write(place / "step.pt", state, start + 1 + number)
    common = {"zero_stage": 2, "partition_count": world, "param_groups": [{"lr": 0.1 / step}]}
    write(folder / "zero/optimizer_state.pt", torch_file(content=common), start + 7)
    data = model_states(step, world, 1, 2, "universal")
    write(folder / "mp_rank_00_model_states.pt", data, start + 8)
    write(folder.parent / "latest_universal", folder.name.encode(), start + 9)


def _latest(folder: Path, mtime: float, marker: bool) -> None:
    if marker:
        write(folder.parent / "latest", folder.name.encode(), mtime)
        os.utime(folder, (mtime, mtime))


MAKERS: dict[str, Callable[..., None]] = {
    "deepspeed-zero0": partial(zero, stage=0, prefix=""),
    "deepspeed-zero1": partial(zero, stage=1, prefix=""),
    "deepspeed-zero2": zero,
    "deepspeed-zero2-tensor": partial(zero, mp=2),
    "deepspeed-zero3": partial(zero, stage=3),
    "deepspeed-pipeline": pipeline,
    "deepspeed-experts": experts,
    "deepspeed-universal": universal,
}
# What the checkpoint of a step is called.
FOLDERS = dict.fromkeys(MAKERS, "global_step{step}") | {
    "deepspeed-universal": "global_step{step}_universal"
}
