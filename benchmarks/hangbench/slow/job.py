"""A rank of a run of the slow track: a training by gloo whose steps are of phases.

The device is a sleep with some real arithmetic, as a host waits for one; gradients go through
gloo's all-reduce, and batches come from files. Nothing here prints: styles.py does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

from benchmarks.hangbench.slow.plan import Plan
from benchmarks.hangbench.slow.styles import Printer

_SHARD = 64 << 10
_PIECE = 4 << 10
_OPEN_END = 3  # steps before the end after which a run that does not end is left


class Clock:
    """What each phase of the steps since the last line took, in seconds."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._at = time.perf_counter()

    def start(self) -> None:
        """The next phase begins."""
        self._at = time.perf_counter()

    def stop(self, phase: str) -> None:
        """The phase ends, and another begins."""
        now = time.perf_counter()
        self.spent[phase] = self.spent.get(phase, 0.0) + now - self._at
        self._at = now


class Rank:
    """One rank of a run, in its own process."""

    def __init__(self, rank: int, plan: Plan, folder: Path) -> None:
        self.rank, self.plan, self.folder = rank, plan, folder
        self.random = Random(plan.seed * 1000 + rank)
        self.clock = Clock()
        self.printer = Printer(rank, plan)

    def run(self) -> None:
        """Train to the last step, or until the run is left."""
        import torch  # noqa: PLC0415  only who records needs torch
        import torch.distributed as dist  # noqa: PLC0415

        torch.set_num_threads(1)
        torch.manual_seed(self.rank)
        dist.init_process_group(
            "gloo", init_method=f"file://{self.folder}/store", rank=self.rank,
            world_size=self.plan.world,
        )  # fmt: skip
        self.weights = torch.randn(96, 96)
        gradients = torch.randn(4096)
        self.printer.begin()
        last = self.plan.steps if self.plan.ends else self.plan.steps - _OPEN_END
        for step in range(1, last + 1):
            self._between(step, dist)
            began = time.perf_counter()
            self.clock.start()
            self._batch(step)
            self.clock.stop("data")
            self._compute("forward", step)
            self.clock.stop("forward")
            self._compute("backward", step)
            self.clock.stop("backward")
            self.printer.ready(step)
            self.clock.start()
            if self._faulty("link", step):
                time.sleep(self._extra(sum(self.plan.base_ms.values())))
            self.clock.stop("send")
            dist.all_reduce(gradients)
            self.clock.stop("allreduce")
            time.sleep(self.plan.base_ms["step"] / 1e3)
            self.clock.stop("step")
            self.clock.spent["total"] = (
                self.clock.spent.get("total", 0.0) + time.perf_counter() - began
            )
            if step % self.plan.every == 0:
                self._print(step, dist)
        if self.plan.style == "dumps":
            self._dump()
        dist.barrier()
        if self.plan.ends:
            self.printer.end()
        sys.stdout.flush()
        os._exit(0)

    def _print(self, step: int, dist: object) -> None:
        """Print the times since the last line; some trainers gather those of all ranks."""
        import torch  # noqa: PLC0415

        spent = {name: took / self.plan.every for name, took in self.clock.spent.items()}
        self.clock.spent = {}
        rows: list[Mapping[str, float]] = []
        if self.plan.style.startswith("megatron"):
            names = sorted(spent)
            own = torch.tensor([spent[name] for name in names])
            all_ = [torch.zeros_like(own) for _ in range(self.plan.world)]
            dist.all_gather(all_, own)  # type: ignore[attr-defined]
            rows = [dict(zip(names, one.tolist(), strict=True)) for one in all_]
        self.printer.line(step, spent, rows)

    def _between(self, step: int, dist: object) -> None:
        """What a job does between steps now and then."""
        calm, step_s = self.plan.calm, sum(self.plan.base_ms.values()) / 1e3
        if "warm-up" in calm and step <= 3:
            time.sleep(8 * step_s)
        if "compile" in calm and step == self.plan.steps // 4:
            time.sleep(15 * step_s)
        if step > 1 and step % 25 == 1:
            if "evaluation" in calm:
                self.printer.evaluation(step - 1, 10)
                time.sleep(10 * step_s)
            if "checkpoint" in calm:
                self.printer.saving(step - 1)
                if self.rank == 0:
                    (self.folder / "ckpt.bin").write_bytes(os.urandom(_SHARD))
                    time.sleep(12 * step_s)
                self.printer.saved(step - 1)
            dist.barrier()  # type: ignore[attr-defined]

    def _faulty(self, fault: str, step: int) -> bool:
        plan = self.plan
        return plan.fault == fault and self.rank == plan.rank and step >= plan.since

    def _extra(self, base_ms: float) -> float:
        """Seconds beyond what is usual, of the slow rank."""
        return base_ms * (self.plan.factor - 1) / 1e3

    def _batch(self, step: int) -> None:
        base = self.plan.base_ms["data"]
        whole = sum(self.plan.base_ms.values())
        shard = self.folder / f"shard-{self.rank}"
        slow_disk = self._faulty("disk", step)
        with shard.open("rb", buffering=0) as file:
            pieces = _SHARD // _PIECE
            while file.read(_PIECE):
                if slow_disk:
                    time.sleep(self._extra(whole) / pieces)
        time.sleep(base * self._noise() / 1e3)
        if self._faulty("loader", step):
            time.sleep(self._extra(whole))

    def _compute(self, phase: str, step: int) -> None:
        base = self.plan.base_ms[phase] * self._noise()
        if "imbalance" in self.plan.calm and self.rank == 0:
            base *= 1.1
        if self._faulty("device", step):
            base *= self.plan.factor
        busy_until = time.thread_time() + 0.12 * self.plan.base_ms[phase] / 1e3
        time.sleep(0.88 * base / 1e3)
        while time.thread_time() < busy_until:
            self.weights = (self.weights @ self.weights).tanh()

    def _noise(self) -> float:
        noise = 1.0 + self.random.uniform(-0.03, 0.03)
        if "noise" in self.plan.calm:
            noise *= min(4.0, self.random.lognormvariate(0.0, 0.35))
        if "lengths" in self.plan.calm:
            noise *= self.random.uniform(0.6, 1.5)
        return noise

    def _dump(self) -> None:
        from torch._C._distributed_c10d import _dump_fr_trace  # noqa: PLC0415

        path = self.folder / f"nccl_trace_rank_{self.rank}"
        path.write_bytes(_dump_fr_trace())
