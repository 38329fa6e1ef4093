# ruff: noqa: PLC0415
"""Training on Dask workers: every step maps a gradient over the shards."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster, get_worker
from util import SETTINGS, STEPS


def gradient(rank: int, world: int, step: int, weights: list[float], folder: str) -> Any:
    """The gradient of one shard in one step."""
    os.chdir(folder)
    import callbacks
    import numpy as np
    from data import read_batches, shard_of
    from util import progress, setup

    worker: Any = get_worker()
    if not hasattr(worker, "batches"):
        setup(rank)
        worker.batches = read_batches(shard_of(rank))
    if step == 1:
        progress(rank, 0)
    x, y = next(worker.batches)
    error = np.asarray(x) @ np.asarray(weights) - np.asarray(y)
    callbacks.on_step(rank, world, step, float(np.square(error).mean()))
    time.sleep(0.1)
    return np.asarray(x).T @ error


def main() -> None:
    world = SETTINGS["world"]
    cluster = LocalCluster(
        n_workers=world, threads_per_worker=1, dashboard_address=None, **SETTINGS.get("dask", {})
    )
    client = Client(cluster)
    names = sorted(client.scheduler_info()["workers"])
    weights = [0.0] * 8
    folder = str(Path.cwd())
    for step in range(1, STEPS + 1):
        parts = [
            client.submit(gradient, rank, world, step, weights, folder, workers=[name], pure=False)
            for rank, name in enumerate(names)
        ]
        total = sum(client.gather(parts))
        weights = [value - 0.01 * change for value, change in zip(weights, total, strict=True)]
        print(f"step {step}/{STEPS} |w| {sum(map(abs, weights)):.4f}", flush=True)
    print("Training finished", flush=True)
    client.close()
    cluster.close()


if __name__ == "__main__":
    main()
