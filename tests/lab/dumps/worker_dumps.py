"""Real gloo jobs that hang by one fault and leave Flight Recorder dumps.

Started by torchrun, one process is one rank. With `--serve` one process forks all ranks of job
after job, so that torch is imported once: it reads a job as a line of JSON and answers with a line
when the dumps lie there. Every rank dumps from a side thread, so one that is stuck dumps as well.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from board_dumps import LONG, POLL_S, Board, Plan, collect, done, prepare
from torch._C import _profiler
from torch._C._distributed_c10d import (  # type: ignore[attr-defined]
    _dump_fr_trace,
    _dump_fr_trace_json,
)

STEPS = 6
AT = 3  # the step the fault strikes in
MICRO_BATCHES = 3


class Rank:
    """One rank of a job."""

    def __init__(self, plan: Plan, folder: Path, rank: int) -> None:
        self.plan = plan
        self.folder = folder
        self.rank = rank
        self.board = Board(folder, plan.world)
        self.odd = rank in plan.culprits
        self.timeout = datetime.timedelta(seconds=plan.timeout)
        self.parent = os.getppid()

    def run(self) -> None:
        threading.Thread(target=self.dumper, daemon=True).start()
        dist.init_process_group("gloo", timeout=self.timeout)
        if self.plan.shape == "grid":
            self.train()
        else:
            self.pipeline()
        if self.rank == 0:
            print("Training completed.", flush=True)

    def dumper(self) -> None:
        """Dump in all ways whenever the launcher asks; end the rank when the launcher is gone."""
        seen = 0
        while True:
            time.sleep(POLL_S)
            if os.getppid() != self.parent:
                os._exit(1)
            request = self.board.request
            if request == seen:
                continue
            seen = request
            found = {
                "dumps": _dump_fr_trace(),
                "json": _dump_fr_trace_json(),
                "active": _dump_fr_trace(onlyActive=True),
                "bare": _dump_fr_trace(includeStackTraces=False),
            }
            for kind, data in found.items():
                (self.folder / kind / f"nccl_trace_rank_{self.rank}").write_bytes(data)
            done(self.folder, self.rank, request).touch()

    def beat(self) -> None:
        self.board.beat(self.rank)

    def hit(self, fault: str, where: str) -> bool:
        return self.odd and (fault, where) == (self.plan.fault, self.plan.where)

    def strike(self) -> None:
        """The faults that stop a rank by itself."""
        if not self.odd:
            return
        if self.plan.fault == "sleep":
            time.sleep(LONG)
        elif self.plan.fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.plan.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    def group(self, kind: str, members: Iterable[Iterable[int]]) -> dist.ProcessGroup:
        """The one group of a kind this rank is in; all ranks make all groups."""
        made = [(ranks, self.new(ranks, kind)) for ranks in map(list, members)]
        return next(group for ranks, group in made if self.rank in ranks)

    def new(self, ranks: list[int], kind: str) -> dist.ProcessGroup:
        made: dist.ProcessGroup = dist.new_group(ranks, timeout=self.timeout, group_desc=kind)
        return made

    def train(self) -> None:
        """Tensor groups of neighbours, data groups across them, at every 2nd step all ranks."""
        world, size = self.plan.world, self.plan.tensor
        tensors = (range(first, first + size) for first in range(0, world, size))
        datas = (range(first, world, size) for first in range(size))
        tensor = self.group("TENSOR_MODEL_PARALLEL_GROUP", tensors)
        data = self.group("DATA_PARALLEL_GROUP", datas)
        calls = (("tensor", tensor, 32), ("data", data, 64), ("world", dist.group.WORLD, 1))
        for step in range(STEPS):
            now = step == AT
            self.beat()
            parts = [torch.zeros(4) for _ in range(size)]
            dist.all_gather(parts, torch.ones(4), group=tensor)
            if now:
                self.strike()
            for kind, group, count in calls:
                if kind == "world" and step % 2 == 0:
                    continue
                self.beat()
                if now and self.hit("extra", kind):
                    dist.all_reduce(torch.ones(count), group=group)
                    self.beat()
                if now and self.hit("extra_op", kind):
                    dist.broadcast(torch.ones(5), src=self.rank, group=group)
                    self.beat()
                if now and self.hit("skip", kind):
                    continue
                if now and self.hit("op", kind):
                    dist.broadcast(torch.ones(5), src=self.rank, group=group)
                elif now and self.hit("empty", kind):
                    dist.all_reduce(torch.ones(0), group=group)
                else:
                    dist.all_reduce(torch.ones(count), group=group)
            self.beat()
            if self.rank == 0:
                print(f"{{'loss': {1 / (step + 1):.4f}, 'epoch': {step / STEPS:.2f}}}", flush=True)

    def pipeline(self) -> None:
        """Stages of two replicas; neighbours talk over groups of two, as gloo records no sends."""
        world = self.plan.world
        ends = [[first, first + 2] for first in range(world - 2)]
        links = {tuple(pair): self.new(pair, "PIPELINE_LINK") for pair in ends}
        data = self.group("DATA_PARALLEL_GROUP", ([n, n + 1] for n in range(0, world, 2)))
        pipes = ([*range(first, world, 2)] for first in (0, 1))
        pipe = self.group("PIPELINE_MODEL_PARALLEL_GROUP", pipes)
        above = links.get((self.rank - 2, self.rank))
        below = links.get((self.rank, self.rank + 2))
        for step in range(STEPS):
            for micro in range(MICRO_BATCHES):
                self.beat()
                if above is not None:
                    dist.broadcast(torch.ones(16), src=self.rank - 2, group=above)
                if step == AT and micro == 1:
                    self.strike()
                self.beat()
                if below is not None:
                    dist.broadcast(torch.ones(16), src=self.rank, group=below)
            for _ in range(MICRO_BATCHES):
                self.beat()
                if below is not None:
                    dist.all_reduce(torch.ones(16), group=below)
                self.beat()
                if above is not None:
                    dist.all_reduce(torch.ones(16), group=above)
            self.beat()
            dist.broadcast(torch.ones(1), src=world - 2 + self.rank % 2, group=pipe)  # the loss
            self.beat()
            dist.all_reduce(torch.ones(64), group=data)
            self.beat()
            dist.all_reduce(torch.ones(1))


def one_rank(plan: Plan, folder: Path, rank: int) -> None:
    """Run a rank. In a job of long timeout it stays at its end, like one whose teardown hangs."""
    job = Rank(plan, folder, rank)
    try:
        job.run()
    except RuntimeError:
        job.beat()  # gloo records what failed as finished: dumps from now on tell another story
        if plan.timeout < LONG:
            raise
        traceback.print_exc()
    if plan.timeout == LONG:
        time.sleep(LONG)


def warm() -> None:
    """Symbolizing the first stack takes seconds."""
    _profiler.symbolize_tracebacks([_profiler.gather_traceback(True, True, False)])


def serve() -> None:
    """Fork the ranks of job after job; the answer to a job is `ok` or what went wrong."""
    warm()
    for line in sys.stdin:
        job = json.loads(line)
        plan, folder = Plan(**job["plan"]), Path(job["folder"])
        board = prepare(folder, plan)
        ranks = [_fork(plan, folder, rank, job["port"]) for rank in range(plan.world)]
        answer = "ok"
        try:
            collect(board, folder, plan.silent)
        except TimeoutError as error:
            answer = str(error)
        for process in ranks:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        print(answer, flush=True)


def _fork(plan: Plan, folder: Path, rank: int, port: int) -> int:
    process = os.fork()
    if process:
        return process
    try:
        with (folder / f"rank_{rank}.log").open("wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(plan.world), LOCAL_RANK=str(rank))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        one_rank(plan, folder, rank)
    finally:
        os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--plan", help="the job as JSON, when torchrun starts the ranks")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.serve:
        serve()
    else:
        warm()
        one_rank(Plan(**json.loads(options.plan)), options.folder, int(os.environ["RANK"]))


if __name__ == "__main__":
    main()
