"""A small job whose culprit comes to a stop in ways that only the processes themselves show.

Ranks reduce a number in every step. In the middle of the run the culprit does what `--fault` says;
the others wait for it in the next step. Nothing is printed that gives the fault away.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

LONG = 120  # seconds; longer than any job lives


def busy_tokenizer() -> None:
    """A rank that prepares its data on the CPU."""

    def tokenize(text: str) -> list[int]:
        found = []
        ends = time.monotonic() + LONG
        while time.monotonic() < ends:
            found = [hash(text[:end]) & 255 for end in range(200)]
        return found

    tokenize("a b c " * 100)


def two_locks() -> None:
    """Two threads take two locks, each in the other's order."""
    one, other = threading.Lock(), threading.Lock()

    def log_metrics() -> None:
        with other:
            time.sleep(0.5)
            with one:
                pass

    thread = threading.Thread(target=log_metrics, name="metrics", daemon=True)
    with one:
        thread.start()
        time.sleep(0.2)
        with other:
            pass


def gil_held() -> None:
    """A call of a C library that sleeps and does not let go of the GIL."""
    ctypes.PyDLL(None).sleep(LONG)


def gil_held_by_thread() -> None:
    """The same, in a thread that is not the main one."""
    threading.Thread(target=gil_held, name="native-io", daemon=True).start()
    time.sleep(0.2)


def produce(rows: Any) -> None:
    """A worker process that dies before it gives anything."""
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
    rows.put(1)


def prefetch() -> None:
    """Wait for a worker process of one's own that is dead."""
    context = multiprocessing.get_context("fork")
    rows = context.Queue()
    context.Process(target=produce, args=(rows,), daemon=True).start()
    rows.get()


def sleepy(_index: int) -> torch.Tensor:
    """A sample that never comes."""
    time.sleep(LONG)
    return torch.zeros(1)


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """A data set that hangs in its worker processes."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return sleepy(index)


def load() -> None:
    """Wait for workers of a DataLoader that give nothing."""
    next(iter(torch.utils.data.DataLoader(Slow(), num_workers=2)))


def read(path: str) -> None:
    """Read a file."""
    with Path(path).open("rb") as file:
        file.read(1)


def stop(options: argparse.Namespace) -> None:
    """What the culprit does instead of its next step."""
    if options.fault in ("fifo", "fuse"):
        read(options.path)
    elif options.fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        FAULTS[options.fault]()


FAULTS = {
    "tokenizer": busy_tokenizer, "two_locks": two_locks, "gil": gil_held,
    "gil_thread": gil_held_by_thread, "prefetch": prefetch, "loader": load,
}  # fmt: skip


def train(options: argparse.Namespace) -> None:
    rank = dist.get_rank()
    for step in range(options.steps):
        if options.fault and step == options.steps // 2 and rank == options.culprit:
            stop(options)
        time.sleep(options.step_seconds)
        total = torch.ones(1)
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step} loss {total.item():.1f}", flush=True)


@contextmanager
def control_plane() -> Iterator[None]:
    """The server of torch's worker_main(), at the local socket that its variable names."""
    place = os.environ.get("TORCH_WORKER_SERVER_SOCKET")
    if place is None:
        yield
        return
    from torch.distributed.elastic.control_plane import _worker_server

    with _worker_server(place):
        yield


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--culprit", type=int, default=0)
    parser.add_argument("--path", default="")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--timeout", type=float, default=600.0)
    options = parser.parse_args()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout))
    with control_plane():
        train(options)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # threads of torch may still run, and then ending in order may abort


if __name__ == "__main__":
    main()
