"""A job that saves with torch.distributed.checkpoint; see the tests.

`--saves` writes one checkpoint of every kind into the folder. Without it the job saves `step-10`,
`step-20` and `step-30`, and is killed in the last save as `--fault` says.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import filesystem
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh


def state(step: int) -> dict[str, Any]:
    """Tensors cut and not cut, an optimizer's state, numbers and text."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(step)
    cut = {
        f"layers.{number}.weight": distribute_tensor(torch.randn(256, 64), mesh, [Shard(0)])
        for number in range(4)
    }
    narrow = distribute_tensor(torch.randn(16, 8).bfloat16(), mesh, [Shard(1)])
    whole = distribute_tensor(torch.randn(64), mesh, [Replicate()])
    return {
        "model": {**cut, "narrow": narrow, "norm": whole},
        "optimizer": {"state": {name: {"exp_avg": tensor * 0.1} for name, tensor in cut.items()},
                      "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95)}]},
        "scheduler": {"last_epoch": step},
        "scalar": torch.tensor(3.5),
        "step": step,
        "run": "café",
    }  # fmt: skip


def saves(folder: Path) -> None:
    """One checkpoint of every kind."""
    writer = dcp.FileSystemWriter
    dcp.save(state(1), checkpoint_id=folder / "step-1")
    dcp.save(state(2), storage_writer=writer(folder / "two_files_step_2", thread_count=2))
    dcp.save(
        state(3), storage_writer=writer(folder / "file_per_item_step_3", single_file_per_rank=False)
    )
    dcp.async_save(state(4), checkpoint_id=folder / "async_step_4").result()
    dcp.save(state(5), checkpoint_id=folder / "uncoordinated_step_5", use_collectives=False)
    for step in (5, 6):
        dcp.save(state(step), checkpoint_id=folder / "overwritten")
    dcp.save({"model": torch.ones(3)}, checkpoint_id=folder / "nothing_for_most_step_7")
    dcp.save({"nothing": {}}, checkpoint_id=folder / "empty_step_8")
    compressed = filesystem.FileSystemWriter(
        folder / "compressed_step_9", _extensions=[dcp._extension.ZStandard()]
    )
    dcp.save(state(9), storage_writer=compressed)
    large = init_device_mesh("cpu", (dist.get_world_size(),))
    tensors = {
        f"t{number}": distribute_tensor(torch.zeros(1024, 512), large, [Shard(0)])
        for number in range(8)
    }
    dcp.save(tensors, checkpoint_id=folder / "zeros_step_10")


def die() -> NoReturn:
    """As the kernel kills for memory: nothing is flushed, nobody is told."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class _Dying:
    """A file whose writer is killed after some bytes."""

    def __init__(self, stream: Any, left: int) -> None:
        self._stream = stream
        self._left = left

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if size > self._left:
            self._stream.write(bytes(data)[: self._left])
            self._stream.flush()
            die()
        self._left -= size
        return int(self._stream.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def arm(fault: str, rank: int) -> None:
    """Make the next save fail."""
    writer, system = filesystem.FileSystemWriter, filesystem.FileSystem
    if fault == "before_data" and rank == 2:
        writer.write_data = lambda *_: die()  # type: ignore[method-assign, assignment]
    elif fault == "in_data" and rank == 1:
        original = writer.write_data
        write = filesystem._write_item

        def some(transforms: Any, stream: Any, *rest: Any) -> Any:
            return write(transforms, _Dying(stream, 9000), *rest)

        def slowly(*given: Any) -> Any:
            time.sleep(1.0)  # the others are done by then
            return original(*given)

        filesystem._write_item = some
        writer.write_data = slowly  # type: ignore[method-assign]
    elif fault == "in_metadata" and rank == 0:
        system.rename = lambda *_: die()  # type: ignore[method-assign, assignment]
    elif fault == "before_metadata" and rank == 0:
        writer.finish = lambda *_: die()  # type: ignore[method-assign, assignment]


def work(given: argparse.Namespace) -> None:
    """Join the job and save."""
    dist.init_process_group("gloo")
    if given.saves:
        saves(given.folder)
    else:
        for step in (10, 20, 30):
            folder = given.folder / ("latest" if given.same_folder else f"step-{step}")
            if step == 30:
                if given.same_folder and dist.get_rank() == 0:
                    for path in folder.iterdir():  # an hour goes by between the saves
                        passed = path.stat().st_mtime - 3600
                        os.utime(path, (passed, passed))
                dist.barrier()
                arm(given.fault, dist.get_rank())
            dcp.save(state(step), checkpoint_id=folder)
    dist.barrier()
    dist.destroy_process_group()


def fork(given: argparse.Namespace, rank: int) -> int:
    """Start a rank and give its process."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(given.ranks), LOCAL_RANK=str(rank))
        work(given)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # threads of torch may still run, and then ending in order may abort


def main() -> int:
    """Run the ranks; the first that fails ends the others, as torchrun does it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--saves", action="store_true")
    parser.add_argument("--fault", default="none")
    parser.add_argument("--same-folder", action="store_true")
    given = parser.parse_args()
    left = {fork(given, rank) for rank in range(given.ranks)}
    failed = False
    while left:
        process, status = os.wait()
        left.remove(process)
        if status and not failed:
            failed = True
            for other in left:
                os.kill(other, signal.SIGTERM)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
