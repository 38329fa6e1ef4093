"""Where jobs are diagnosed: a pool of processes here, or the workers of a Dask cluster."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

from diagnose.batch.run import MakeExecutor
from diagnose.errors import InputError


def local(workers: int) -> MakeExecutor:
    """Pools of `workers` processes on this machine."""

    def make() -> Executor:
        # Each worker is to use one core, and Arrow to reserve no memory ahead.
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        pool = ProcessPoolExecutor(
            workers,
            # Not fork: threads of this process (progress, Arrow) do not survive one.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
        )
        with _ignored(signal.SIGINT):  # workers inherit it, and start with the first call
            pool.submit(os.getpid)
        return pool

    return make


@contextmanager
def _ignored(number: signal.Signals) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


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


def _start_worker() -> None:
    """Make a pool's process ready: the engine imported, and an end when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        watch = threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True)
        watch.start()
    import diagnose.batch.work  # noqa: F401, PLC0415

    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _end_with(sentinel: int) -> None:
    """A pool's process waits forever for work where its parent was killed."""
    wait([sentinel])
    os._exit(1)
