"""Checkpoints of LLaMA2-Accessory, and weights as Meta distributes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from tests.checkpoint.make.base import Tensor, filler, json_bytes, torch_file, write


def _tensor(numel: int, seed: str) -> Tensor:
    return Tensor((numel,), "float32", filler(numel * 4, seed))


def training(
    folder: Path,
    *,
    step: int,
    world: int,
    start: float,
    mp: int = 2,
    specific: bool = True,
) -> None:
    """The states of a training at an iteration, in the order of accessory/util/misc.py."""
    for kind, numel, after in (("model", 900, 5.0), ("optimizer", 1800, 60.0)):
        for m in range(mp):
            name = f"consolidated.{m:02d}-of-{mp:02d}.{kind}.pth"
            weights = {"llma.weight": _tensor(numel, f"{name} {step}")}
            content = {"model": weights} if kind == "model" else {"optimizer": {"state": weights}}
            write(folder / name, torch_file(content=content), start + after + m)
    for m in range(mp):
        other = {"epoch": 0, "iter": step, "scaler": None, "args": {"epochs": 1, "mp": mp}}
        name = f"consolidated.{m:02d}-of-{mp:02d}.other.pth"
        write(folder / name, torch_file(content=other), start + 64)
    for rank in range(world if specific else 0):
        content = {"dataset_state": {"rank": rank, "seen": step * 8}}
        name = f"rank-specific-{rank:05d}-of-{world:05d}.pth"
        write(folder / name, torch_file(content=content), start + 66 + 0.1 * rank)


def meta(folder: Path, *, mp: int = 2, start: float = 1_700_000_000.0) -> None:
    """Weights from Meta with their list of checksums."""
    lines = []
    for m in range(mp):
        data = torch_file(content={"tok.weight": _tensor(500, f"meta {m}")})
        write(folder / f"consolidated.{m:02d}.pth", data, start)
        lines.append(f"{hashlib.md5(data).hexdigest()}  consolidated.{m:02d}.pth\n")
    write(folder / "params.json", json_bytes({"dim": 64, "n_layers": 2}), start)
    write(folder / "checklist.chk", "".join(lines).encode(), start)


MAKERS: dict[str, Callable[..., None]] = {"accessory": training}
FOLDERS = dict.fromkeys(MAKERS, "epoch0-iter{step}")  # what the checkpoint of a step is called
