"""What accelerate's `Accelerator.save_state` writes, in its order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.checkpoint.make import dcp, deepspeed, hf
from tests.checkpoint.make.base import safetensors_file, torch_file, write


def _numbered(name: str, number: int) -> str:
    stem, _, end = name.rpartition(".")
    return name if number == 0 else f"{stem}_{number}.{end}"


def make(
    folder: Path,
    *,
    step: int,
    world: int,
    start: float,
    models: int = 1,
    kind: str = "safetensors",
    custom: int = 1,
    plugin: str = "",
) -> None:
    """One state. `plugin`: "", "deepspeed", "fsdp" (sharded) or "fsdp-full"."""
    if plugin == "deepspeed":
        deepspeed.zero(folder / "pytorch_model", step=step, world=world, start=start)
    for number in range(0 if plugin == "deepspeed" else models):
        if plugin == "fsdp":
            inside = folder / f"pytorch_model_fsdp_{number}"
            dcp.make(inside, step=step, world=world, start=start, blobs={})
            inside = folder / f"optimizer_{number}"
            dcp.make(inside, step=step, world=world, start=start + 6, blobs={})
            continue
        if plugin == "fsdp-full" or kind == "bin":
            name = "pytorch_model_fsdp.bin" if plugin else "pytorch_model.bin"
            data = torch_file(content=hf.state_dict(f"{number} {step}"), archive="pytorch_model")
        else:
            name = "model.safetensors"
            data = safetensors_file(hf.MODEL, seed=f"{number} {step}")
        write(folder / _numbered(name, number), data, start + number)
        data = torch_file(content=hf.optimizer_state(step + number), archive="optimizer")
        write(folder / _numbered("optimizer.bin", number), data, start + 3 + number)
    begin = start + 12 + 0.5 * world
    for number in range(models):
        data = torch_file(content=hf.scheduler_state(step * world + number), archive="scheduler")
        write(folder / _numbered("scheduler.bin", number), data, begin)
    data = torch_file(content={"epoch": step // 500, "seed": 42 + step}, archive="sampler")
    write(folder / "sampler.bin", data, begin + 0.1)
    for rank in range(world):
        content = {"step": step, **hf.rng_state(step, rank)}
        data = torch_file(content=content, archive=f"random_states_{rank}")
        write(folder / f"random_states_{rank}.pkl", data, begin + 0.2 + 0.1 * rank)
    for number in range(custom):
        data = torch_file(content={"tokens": step * 2048}, archive=f"custom_checkpoint_{number}")
        write(folder / f"custom_checkpoint_{number}.pkl", data, begin + 0.5 + 0.1 * world)


MAKERS: dict[str, Callable[..., None]] = {
    "accelerate": make,
    "accelerate-bin": partial(make, kind="bin", custom=0),
    "accelerate-two-models": partial(make, models=2),
    "accelerate-deepspeed": partial(make, plugin="deepspeed"),
    "accelerate-fsdp": partial(make, plugin="fsdp"),
    "accelerate-fsdp-full": partial(make, plugin="fsdp-full"),
}
# By name: what the folder of a step is called.
FOLDERS = dict.fromkeys(MAKERS, "checkpoint_{step}")
