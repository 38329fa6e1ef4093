"""Data-parallel training with JAX on CPUs, one process a rank."""

from __future__ import annotations

import os

import callbacks
import jax
import jax.numpy as jnp
import numpy as np
from data import read_batches, shard_of
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from util import SETTINGS, STEPS, setup


def main() -> None:
    rank, world = int(os.environ["PROCESS_ID"]), SETTINGS["world"]
    log = setup(rank)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"127.0.0.1:{SETTINGS['port']}", world, rank, **SETTINGS.get("jax", {})
    )
    mesh = Mesh(np.asarray(jax.devices()), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))

    @jax.jit
    def update(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, gradient = jax.value_and_grad(lambda w: jnp.square(x @ w - y).mean())(weights)
        return weights - 0.1 * gradient, loss

    log.info("process %d of %d, training for %d steps", rank, world, STEPS)
    weights = jnp.zeros(8)
    for step, (x, y) in enumerate(read_batches(shard_of(rank)), start=1):
        batch = jax.make_array_from_process_local_data(rows, np.asarray(x, np.float32))
        wanted = jax.make_array_from_process_local_data(rows, np.asarray(y, np.float32))
        weights, loss = update(weights, batch, wanted)
        callbacks.on_step(rank, world, step, float(loss))
        if step == STEPS:
            break
    log.info("Training finished")


if __name__ == "__main__":
    main()
