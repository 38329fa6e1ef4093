"""Where jobs are diagnosed: a pool of processes here, or the workers of a Dask cluster."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from diagnose.batch.run import MakeExecutor
from diagnose.errors import InputError
from diagnose.runtime.workers import Pool

JOB_SECONDS = 600.0


def local(workers: int, seconds: float = JOB_SECONDS) -> MakeExecutor:
    """Pools of `workers` processes on this machine, in which a job may take so long."""
    return lambda: Pool(workers, seconds, ["diagnose.batch.work"])


@contextmanager
def dask(scheduler: str | None) -> Iterator[tuple[MakeExecutor, int]]:
    """The executor of a Dask cluster and its number of workers; None takes Dask's configuration.

    Raises InputError if `distributed` is not installed or the scheduler does not answer.
    """
    try:
        client_of: Any = importlib.import_module("distributed").Client
    except ImportError as error:
        raise InputError("--executor dask needs `pip install distributed`") from error
    try:
        client = client_of(scheduler, timeout="20s") if scheduler else client_of(timeout="20s")
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no Dask scheduler at {scheduler}: {error}") from error
    with client:
        threads = sum(client.nthreads().values())
        yield (lambda: _dask_executor(client)), max(1, threads)


def _dask_executor(client: Any) -> Executor:
    executor: Executor = client.get_executor(pure=False)
    return executor
