"""A small DDP training script with one injected fault, started by `torchrun`.

It prints what real trainers print, so that the logs of these jobs look like logs of real jobs. The
fault is chosen by `--fault`; `--culprit` is the rank it happens on. Everything runs on the CPU with
gloo. Nothing here may print text that gives the fault away: a diagnosis has to do without.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

LONG = 120.0  # seconds; longer than any job lives


class Rows(Dataset[torch.Tensor]):
    """A dataset whose loader worker can be made to die, as the kernel's OOM killer would do."""

    def __init__(self, size: int, deadly: bool) -> None:
        self.size = size
        self.deadly = deadly

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.deadly and index >= self.size // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((8,), index / self.size)


class Net(torch.nn.Module):
    """Two layers; with `skip` the second takes no part in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Linear(8, 8)

    def forward(self, rows: torch.Tensor, skip: bool = False) -> torch.Tensor:
        hidden = self.first(rows)
        output: torch.Tensor = hidden if skip else self.second(hidden)
        return (output - rows).square().mean()


def bar(what: str, total: int, seconds: float, unit: str = "examples") -> None:
    """Print a tqdm-like progress bar to stderr which takes `seconds` in all."""
    begin = time.monotonic()
    shown = min(total, max(10, int(2 * seconds)))
    for done in (total * part // shown for part in range(shown + 1)):
        spent = time.monotonic() - begin
        rate = done / spent if spent > 0.01 else 0.0
        left = (total - done) / rate if rate else 0.0
        filled = "█" * (done * 10 // total)
        sys.stderr.write(
            f"\r{what}: {done * 100 // total:3d}%|{filled:<10}| {done}/{total} "
            f"[{int(spent) // 60:02d}:{int(spent) % 60:02d}<{int(left) // 60:02d}:"
            f"{int(left) % 60:02d}, {rate:5.2f} {unit}/s]"
        )
        sys.stderr.flush()
        time.sleep(seconds / shown)
    sys.stderr.write("\n")


def leave() -> NoReturn:
    """End well: threads of torch may still run, and then ending in order may abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class Job:
    """The training loop, with the fault injected at the place where it belongs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        faults: list[str] = options.fault.split(",")
        self.fault = faults[min(attempt, len(faults) - 1)]
        culprits = [int(rank) for rank in options.culprit.split(",")]
        self.culprit = self.rank == culprits[min(attempt, len(culprits) - 1)]
        self.steps: int = options.steps
        self.step_seconds: float = options.step_seconds
        self.timeout: float = options.timeout
        self.out = Path(options.out)

    def hit(self, fault: str) -> bool:
        """Whether `fault` is to happen on this rank."""
        return self.culprit and self.fault == fault

    def say(self, text: str) -> None:
        """Print as trainers do: on the main process only."""
        if self.rank == 0:
            print(text, flush=True)

    def run(self) -> None:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=self.timeout))
        self.prepare()
        torch.manual_seed(0)
        model = self.model()
        self.train(model)
        self.evaluate(model)
        self.save(model, "checkpoint-final")
        self.say(
            "Training completed. Do not forget to share your model on huggingface.co/models =)"
        )
        dist.destroy_process_group()

    def model(self) -> Any:
        """What is trained."""
        return DistributedDataParallel(Net())

    def prepare(self) -> None:
        """Rank 0 maps the data set, the others wait and read its cache (main_process_first)."""
        if self.rank != 0:
            dist.barrier()
        else:
            bar("Map", 100, LONG if self.hit("slow_map") else 0.5)
            dist.barrier()
        if (
            self.fault == "shape"
        ):  # before DDP: with gloo and DETAIL its constructor crashes in 2.13
            dist.all_reduce(torch.zeros(8 if self.culprit else 4))

    def train(self, model: DistributedDataParallel) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows = Rows(4 * self.steps, self.hit("loader_killed"))
        workers = 1 if self.fault == "loader_killed" else 0
        loader = DataLoader(rows, batch_size=4, num_workers=workers)
        self.say("***** Running training *****")
        self.say(f"  Num examples = {len(rows) * self.world}")
        self.say("  Num Epochs = 1")
        self.say(f"  Total optimization steps = {self.steps}")
        for step, batch in enumerate(loader, start=1):
            if step == self.steps // 2:
                self.midway(model, step)
            if self.hit("uneven") and step > self.steps // 2:
                break
            skip = self.hit("unused") and step == self.steps // 2
            loss = model(batch, skip=skip)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(self.step_seconds)
            self.say(f"{{'loss': {loss.item():.4f}, 'epoch': {step / self.steps:.2f}}}")

    def midway(self, model: DistributedDataParallel, step: int) -> None:
        """The faults that strike in the middle of training."""
        if self.hit("sleep"):
            time.sleep(LONG)
        elif self.hit("error"):
            batch = {"input_ids": torch.zeros(1)}
            print(batch["labels"])
        elif self.hit("sigkill"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.hit("sigsegv"):
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self.hit("other_collective"):
            dist.broadcast(torch.zeros(1024), src=self.rank)
        if self.fault == "monitored_barrier":
            if self.culprit:
                time.sleep(LONG)
            limit = datetime.timedelta(seconds=self.timeout)
            dist.monitored_barrier(timeout=limit, wait_all_ranks=True)
        elif self.fault == "slow_save":
            self.save(model, f"checkpoint-{step}")

    def evaluate(self, model: DistributedDataParallel) -> None:
        self.say("***** Running Evaluation *****")
        self.say("  Num examples = 16")
        self.say("  Batch size = 4")
        with torch.no_grad():
            loss = model.module(torch.ones(4, 8))
        if self.fault != "conditional" or self.rank == 0:
            dist.all_reduce(loss)
        self.say(f"{{'eval_loss': {loss.item():.4f}, 'epoch': 1.0}}")

    def save(self, model: DistributedDataParallel, name: str) -> None:
        if self.rank == 0:
            folder = self.out / name
            print(f"Saving model checkpoint to {folder}", flush=True)
            folder.mkdir(parents=True, exist_ok=True)
            if self.hit("slow_save"):
                time.sleep(LONG)
            torch.save(model.module.state_dict(), folder / "pytorch_model.bin")
        dist.barrier()


@record
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none", help="one fault, or one an attempt: a,b")
    parser.add_argument("--culprit", default="0", help="one rank, or one an attempt: 1,2")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--timeout", type=float, default=6.0)
    parser.add_argument("--out", default="out")
    Job(parser.parse_args()).run()
    leave()


if __name__ == "__main__":
    main()
