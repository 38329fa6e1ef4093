"""Data-parallel training by plain multiprocessing: the parent averages over pipes."""

from __future__ import annotations

import multiprocessing as mp
from multiprocessing.connection import Connection

import callbacks
import numpy as np
from data import read_batches, shard_of
from util import SETTINGS, STEPS, setup


def work(rank: int, world: int, pipe: Connection) -> None:
    """Send the gradient of each step to the parent, go on with the mean that it sends back."""
    log = setup(rank)
    log.info("worker %d of %d, training for %d steps", rank, world, STEPS)
    weights = np.zeros(8)
    for step, (x, y) in enumerate(read_batches(shard_of(rank)), start=1):
        error = np.asarray(x) @ weights - np.asarray(y)
        pipe.send(np.asarray(x).T @ error)
        weights -= 0.01 * pipe.recv()
        callbacks.on_step(rank, world, step, float(np.square(error).mean()))
        if step == STEPS:
            break
    pipe.close()


def average(pipes: list[Connection]) -> None:
    """One step of all workers."""
    gradients = [pipe.recv() for pipe in pipes]
    mean = np.mean(gradients, axis=0)
    for pipe in pipes:
        pipe.send(mean)


def main() -> None:
    world = SETTINGS["world"]
    context = mp.get_context(SETTINGS.get("start_method", "spawn"))
    pipes, workers = [], []
    for rank in range(world):
        ours, theirs = context.Pipe()
        worker = context.Process(
            target=work, args=(rank, world, theirs), name=f"Worker-{rank}", daemon=True
        )
        worker.start()
        theirs.close()
        pipes.append(ours)
        workers.append(worker)
    for _ in range(STEPS):
        average(pipes)
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit(f"exit codes of workers: {[worker.exitcode for worker in workers]}")
    print("Training finished", flush=True)


if __name__ == "__main__":
    main()
