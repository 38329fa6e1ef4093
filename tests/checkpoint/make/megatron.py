"""Checkpoints of Megatron-LM in its formats, and the tracker beside them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.checkpoint.make import dcp
from tests.checkpoint.make.base import Tensor, filler, json_bytes, torch_file, write

TRACKER = "latest_checkpointed_iteration.txt"
CONFIG = {
    "sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch",
    "common_backend_version": 1,
}  # fmt: skip
TENSORS: dcp.Tensors = (
    ("decoder.layers.mlp.linear_fc1.weight", (64, 16), True),
    ("optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight", (64, 16), True),
    ("output_layer.weight", (16, 16), False),
)


def arguments(world: int, tp: int, pp: int, *, distributed: bool = False) -> argparse.Namespace:
    """Some of the arguments that every checkpoint keeps."""
    return argparse.Namespace(
        world_size=world, tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
        expert_model_parallel_size=1, use_distributed_optimizer=distributed, no_save_optim=None,
        iteration=0, train_iters=100_000, lr=3e-4,
    )  # fmt: skip


def _weights(name: str, step: int) -> Tensor:
    return Tensor((32, 16), data=filler(32 * 16 * 4, f"{name} {step}"))


def write_dist(
    folder: Path, *, step: int, world: int, start: float, tensors: dcp.Tensors = TENSORS
) -> None:
    """The `torch_dist` format: common.pt first, then DCP, metadata.json last."""
    common = {
        "args": arguments(world, 2, 1),
        "checkpoint_version": 3.0,
        "iteration": step,
        "opt_param_scheduler": {"max_lr": 3e-4, "num_steps": step * 8},
        "num_floating_point_operations_so_far": step * 10**15,
    }
    write(folder / "common.pt", torch_file(content=common, archive="common"), start + 1)
    blobs = {"rng_state/shard_0_1": {"seed": 1234}}
    dcp.make(folder, step=step, world=world, start=start, tensors=tensors, blobs=blobs)
    write(folder / "metadata.json", json.dumps(CONFIG).encode(), start + 8 + world)


def write_torch(
    folder: Path, *, step: int, world: int, start: float, tp: int, pp: int, distributed: bool
) -> None:
    """The `torch` format: a folder per model parallel rank."""
    for rank in range(tp * pp):
        name = f"mp_rank_{rank % tp:02d}" + (f"_{rank // tp:03d}" if pp > 1 else "")
        content: dict[str, Any] = {
            "args": arguments(world, tp, pp, distributed=distributed),
            "checkpoint_version": 3.0,
            "iteration": step,
            "model": {"decoder.weight": _weights(f"model {rank}", step)},
        }
        optimizer = {"exp_avg": _weights(f"optimizer {rank}", step)}
        if distributed:
            data = torch_file(content={"0": optimizer}, archive="distrib_optim")
            write(folder / name / "distrib_optim.pt", data, start + 2 + rank)
        else:
            content["optimizer"] = optimizer
        data = torch_file(content=content, archive="model_optim_rng")
        write(folder / name / "model_optim_rng.pt", data, start + 3 + rank)


def write_zarr(folder: Path, *, step: int, world: int, start: float) -> None:
    """The `zarr` format: a folder of chunks per tensor."""
    common = {"args": arguments(world, 2, 1), "iteration": step}
    write(folder / "common.pt", torch_file(content=common, archive="common"), start + 1)
    for number, name in enumerate(("decoder.layers.weight", "optimizer.state.exp_avg")):
        array = {
            "chunks": [8, 16], "compressor": None, "dtype": "<f4", "fill_value": None,
            "filters": None, "order": "C", "shape": [32, 16], "zarr_format": 2,
        }  # fmt: skip
        write(folder / name / ".zarray", json_bytes(array), start + 2)
        for chunk in range(4):
            data = filler(8 * 16 * 4, f"{name} {chunk} {step}")
            write(folder / name / f"{chunk}.0", data, start + 3 + number)
    config = {**CONFIG, "sharded_backend": "zarr"}
    write(folder / "metadata.json", json.dumps(config).encode(), start + 8)


def commit(folder: Path, step: int, time: float) -> None:
    """Set the tracker to this iteration."""
    write(folder.parent / TRACKER, str(step).encode(), time)


def _variant(writer: Callable[..., None], **options: Any) -> Callable[..., None]:
    def maker(folder: Path, *, step: int, world: int, start: float) -> None:
        writer(folder, step=step, world=world, start=start, **options)
        commit(folder, step, start + 20 + world)

    return maker


MAKERS: dict[str, Callable[..., None]] = {
    "megatron-torch-dist": _variant(write_dist),
    "megatron-torch-tp2-pp2": _variant(write_torch, tp=2, pp=2, distributed=False),
    "megatron-torch-tp2": _variant(write_torch, tp=2, pp=1, distributed=True),
    "megatron-zarr": _variant(write_zarr),
    "megatron-torch-dcp": _variant(dcp.make, tensors=TENSORS, blobs={"iteration": 1}),
}
FOLDERS = dict.fromkeys(MAKERS, "iter_{step:07d}")
