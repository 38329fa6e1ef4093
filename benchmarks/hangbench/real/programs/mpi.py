"""Data-parallel training with mpi4py and NumPy, started by mpirun."""

from __future__ import annotations

import callbacks
import numpy as np
from data import read_batches, shard_of
from mpi4py import MPI
from util import STEPS, setup


def main() -> None:
    comm = MPI.COMM_WORLD
    rank, world = comm.Get_rank(), comm.Get_size()
    log = setup(rank)
    log.info("%d ranks, training for %d steps", world, STEPS)
    weights = np.zeros(8)
    for step, (x, y) in enumerate(read_batches(shard_of(rank)), start=1):
        error = np.asarray(x) @ weights - np.asarray(y)
        gradient = np.asarray(x).T @ error
        comm.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)
        weights -= 0.01 * gradient / world
        callbacks.on_step(rank, world, step, float(np.square(error).mean()))
        if step == STEPS:
            break
    comm.Barrier()
    log.info("Training finished")


if __name__ == "__main__":
    main()
