"""The programs of a layout as real processes that talk by gloo, to check the machine against.

What gloo does with two different operations under one number of a group is not defined, so only
jobs in which ranks wait for ranks that are elsewhere can be compared.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from benchmarks.hangbench.sim.machine import Call, Mark, Program
from benchmarks.hangbench.sim.outcome import Group

QUIET_S, LIMIT_S = 2.0, 60.0
_NUMEL = 4  # the volume of a message says nothing of who waits for whom


def frontier(groups: dict[str, Group], programs: Sequence[Program]) -> list[int]:
    """How many calls of its program each rank has completed when nothing moves any more.

    Raises TimeoutError if something still moves after `LIMIT_S` seconds.
    """
    context = multiprocessing.get_context("fork")
    world = len(programs)
    done = context.Array("i", world, lock=False)
    with tempfile.NamedTemporaryFile() as store:
        processes = [
            context.Process(
                target=_rank, args=(rank, world, groups, programs[rank], done, store.name)
            )
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        try:
            return _settled(lambda: list(done))
        finally:
            for process in processes:
                process.kill()
                process.join()


def _settled(look: Callable[[], list[int]]) -> list[int]:
    began = changed = time.monotonic()
    last = look()
    while time.monotonic() - began < LIMIT_S:
        time.sleep(0.1)
        now = look()
        if now != last:
            last, changed = now, time.monotonic()
        elif any(now) and time.monotonic() - changed > QUIET_S:
            return now
    raise TimeoutError(f"still at work after {LIMIT_S:.0f} s")


def _rank(
    rank: int, world: int, groups: dict[str, Group], program: Program, done: Any, store: str
) -> None:
    import torch  # noqa: PLC0415  a dependency of this check alone
    import torch.distributed as dist  # noqa: PLC0415

    warnings.simplefilter("ignore")  # calls that a later torch will rename
    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what gloo says of peers that are gone
    dist.init_process_group(
        "gloo", f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=300)
    )
    made = {
        name: None if name == "0" else dist.new_group(list(group.members))
        for name, group in groups.items()
    }
    try:
        for one in program:
            if isinstance(one, Call):
                _call(torch, dist, rank, one, made[one.group], groups[one.group])
                done[rank] += 1
            elif one.kind == "end":
                _end(one)
    except RuntimeError:  # a peer is gone; this rank stays where it is
        signal.pause()
    _wait_for_the_end()


def _end(mark: Mark) -> None:
    if mark.end in ("stuck", "slow"):
        signal.pause()
    os._exit(0 if mark.end == "left" else 1)


def _wait_for_the_end() -> None:
    """Keep the connections: a rank that is through must not fail the others."""
    signal.pause()


def _call(torch: Any, dist: Any, rank: int, call: Call, group: Any, of: Group) -> None:
    if call.parts:
        ops = [
            dist.P2POp(dist.isend if op == "send" else dist.irecv, torch.ones(_NUMEL), peer, group)
            for op, peer in call.parts
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    elif call.op == "barrier":
        dist.barrier(group=group)
    elif call.op == "all_to_all":
        size = len(of.members)
        dist.all_to_all_single(torch.empty(size), torch.ones(size), group=group)
    elif call.op in ("_allgather_base", "all_gather"):
        dist.all_gather_into_tensor(torch.empty(len(of.members)), torch.ones(1), group=group)
    else:
        dist.all_reduce(torch.ones(_NUMEL), group=group)
