"""Checkpoints of Lightning: one file, or a folder of a sharded strategy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.checkpoint.make import dcp, deepspeed, hf
from tests.checkpoint.make.base import torch_file, write


def content(step: int, *, sharded: bool = False) -> dict[str, Any]:
    """What Trainer.save_checkpoint dumps; without the big parts where those are `sharded`."""
    rest = {
        "epoch": step // 500, "global_step": step, "pytorch-lightning_version": "2.6.6",
        "loops": {"fit_loop": {"state_dict": {}}}, "callbacks": {},
    }  # fmt: skip
    if not sharded:
        rest["state_dict"] = hf.state_dict(str(step))
        rest["optimizer_states"] = [hf.optimizer_state(step)]
    rest["lr_schedulers"] = [hf.scheduler_state(step)]
    return rest


def single(folder: Path, *, step: int, world: int, start: float) -> None:
    """One file called `folder`."""
    data = torch_file(content=content(step), archive=folder.name.removesuffix(".ckpt"))
    write(folder, data, start + 2)


def fsdp(folder: Path, *, step: int, world: int, start: float) -> None:
    """FSDPStrategy and ModelParallelStrategy with state_dict_type="sharded"."""
    dcp.make(folder, step=step, world=world, start=start, blobs={})
    data = torch_file(content=content(step, sharded=True), archive="meta")
    write(folder / "meta.pt", data, start + 4 + 0.5 * world)


def with_deepspeed(folder: Path, *, step: int, world: int, start: float) -> None:
    """DeepSpeedStrategy."""
    deepspeed.zero(folder / "checkpoint", step=step, world=world, start=start)


MAKERS: dict[str, Callable[..., None]] = {
    "lightning-file": single,
    "lightning-fsdp": fsdp,
    "lightning-deepspeed": with_deepspeed,
}
# By name: what the folder, or the file, of a step is called.
FOLDERS = dict.fromkeys(MAKERS, "epoch=0-step={step}.ckpt")
