"""The training script of the lab with what a long run has: evaluations and checkpoints in between.

Its first step, one that compiles, evaluations and checkpoints may take long. Its faults are those
of `worker.py`, in the middle of training or in the second evaluation or checkpoint (with
`--first` in the first one). When each began is written to steps.csv, for the tests alone.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from worker import LONG, Job, Net, bar, leave


def learn(model: Net) -> None:
    """A step down the mean gradient of all ranks."""
    with torch.no_grad():
        for weights in model.parameters():
            dist.all_reduce(weights.grad)
            weights.sub_(weights.grad, alpha=0.1 / dist.get_world_size())
    model.zero_grad()


class LongJob(Job):
    """A job of some minutes' pattern in half a minute."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.options = options
        self.random = random.Random(options.seed)
        self.notes = Path("steps.csv")
        self.done = {"evaluation": 0, "checkpoint": 0}

    def run(self) -> None:
        """Wait for the gate, so that jobs begin together and none while others still import."""
        if self.options.gate is not None:
            (self.options.gate / str(os.getpid())).touch()
            while not (self.options.gate / "open").exists():
                time.sleep(0.02)
        super().run()

    def noted(self, what: str) -> None:
        if self.rank == 0:
            with self.notes.open("a", encoding="utf-8") as file:
                file.write(f"{time.time():.3f},{what}\n")

    def spend(self, seconds: float) -> None:
        """About so long: half of it, or half as much again."""
        time.sleep(seconds * self.random.uniform(0.6, 1.4))

    def model(self) -> Net:
        """A plain one: DDP and optimizers import the compiler, half of what a rank takes to start.

        Nothing of that is seen in the lines that a watch reads, but for the silence.
        """
        time.sleep(3.0)
        return Net()

    def prepare(self) -> None:
        if self.rank != 0:
            dist.barrier()
            return
        if self.fault == "frozen_map":
            for done in range(0, 40, 2):
                shown = f"{done}/100 [00:{done // 5:02d}<00:{20 - done // 5:02d},  5.00 examples/s]"
                sys.stderr.write(f"\rMap: {done:3d}%|{'█' * (done // 10):<10}| {shown}")
                sys.stderr.flush()
                self.noted("map")
                time.sleep(0.4)
            time.sleep(LONG)
        bar("Map", 100, self.options.map_seconds)
        dist.barrier()

    def train(self, model: Net) -> None:
        options = self.options
        self.say("***** Running training *****")
        self.say(f"  Total optimization steps = {self.steps}")
        for step in range(1, self.steps + 1):
            if step == 1:
                time.sleep(options.first_step_seconds)
            if step == options.compile_at:
                self.say("Compiling the model with torch.compile")
                time.sleep(options.compile_seconds)
            if step == self.steps // 2:
                self.midway(model, step)
            batch = torch.full((4, 8), step / self.steps)
            loss = model(batch)
            loss.backward()
            learn(model)
            self.spend(self.step_seconds)
            self.noted("step")
            self.say(f"{{'loss': {loss.item():.4f}, 'epoch': {step / self.steps:.4f}}}")
            if options.eval_every and step % options.eval_every == 0:
                self.evaluate(model)
            if options.save_every and step % options.save_every == 0:
                self.save(model, f"checkpoint-{step}")

    def midway(self, model: Net, step: int) -> None:
        if self.fault != "slow_save":  # which comes in a checkpoint of its own
            super().midway(model, step)

    def strikes(self, what: str) -> bool:
        """Whether the fault comes in this one."""
        self.done[what] += 1
        return self.done[what] == (1 if self.options.first else 2)

    def evaluate(self, model: Net) -> None:
        struck = self.strikes("evaluation")
        self.noted("evaluation")
        self.say("***** Running Evaluation *****")
        self.say("  Num examples = 16")
        self.spend(self.options.eval_seconds)
        loss = torch.zeros(1)
        if not (struck and self.fault == "conditional") or self.rank == 0:
            dist.all_reduce(loss)
        self.noted("evaluated")
        self.say(f"{{'eval_loss': {loss.item():.4f}, 'epoch': 1.0}}")

    def save(self, model: Net, name: str) -> None:
        struck = self.strikes("checkpoint")
        self.noted("checkpoint")
        if self.rank == 0:
            print(f"Saving model checkpoint to {self.out / name}", flush=True)
            self.spend(self.options.save_seconds)
            if struck and self.hit("slow_save"):
                time.sleep(LONG)
        dist.barrier()
        self.noted("saved")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    parser.add_argument("--culprit", default="0")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--out", default="out")
    parser.add_argument("--gate", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--map-seconds", type=float, default=0.5)
    parser.add_argument("--first-step-seconds", type=float, default=0.0)
    parser.add_argument("--compile-at", type=int, default=0)
    parser.add_argument("--compile-seconds", type=float, default=0.0)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--eval-seconds", type=float, default=1.0)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--save-seconds", type=float, default=1.0)
    return parser.parse_args()


@record
def main() -> None:
    given = options()
    LongJob(given).run()
    leave()


if __name__ == "__main__":
    main()
