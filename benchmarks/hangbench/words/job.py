"""A made job: its machines, its clock and the lines that its processes print."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

# What a line is to its maker; it is never printed.
#   start    before the first step           step     progress
#   note     announces or ends a pause       bad      the fatal or the frightening text
#   finish   the program says that it ended  end      what ended the job from outside
Mark = Literal["start", "step", "note", "bad", "finish", "end"]


@dataclass(frozen=True, slots=True)
class Line:
    """What one process prints at once.

    at: seconds since the start of the job. rank: global rank, None for a launcher or a scheduler.
    text: one or more lines without the last line break. bar: redrawn in place (carriage return, no
    line break). err: it goes to standard error. step: of a progress line.
    """

    at: float
    rank: int | None
    text: str
    mark: Mark
    bar: bool = False
    err: bool = False
    step: int | None = None

    def later(self, seconds: float) -> Line:
        """The same line at another time; its text keeps the time that it shows."""
        return replace(self, at=self.at + seconds)


@dataclass(eq=False, slots=True)
class Job:
    """The facts of one job that its lines agree on.

    per_host: ranks of one host. first: step that the first progress line counts from; every: steps
    between two progress lines; interval: seconds between them; total: steps of the whole run.
    curve, norms: what becomes of a loss and of a norm of gradients at a step, where not all is
    well.
    """

    rng: random.Random
    world: int
    per_host: int
    hosts: tuple[str, ...]
    started: datetime
    name: str
    script: str
    folder: str
    model: str
    data: str
    first: int
    every: int
    interval: float
    total: int
    number: int
    pids: tuple[int, ...]
    curve: Callable[[int, float], float] | None = None
    norms: Callable[[int, float], float] | None = None

    def clock(self, at: float) -> datetime:
        """The wall clock `at` seconds after the start; all hosts share one clock."""
        return self.started + timedelta(seconds=at)

    def host(self, rank: int) -> str:
        """The host of a rank."""
        return self.hosts[rank // self.per_host]

    def local(self, rank: int) -> int:
        """The place of a rank on its host."""
        return rank % self.per_host

    def neighbours(self, rank: int) -> tuple[int, ...]:
        """The ranks of the same host, this one included."""
        first = rank - self.local(rank)
        return tuple(range(first, min(first + self.per_host, self.world)))

    def loss(self, step: int) -> float:
        """A loss that falls with the steps, and never in the same way."""
        value = 8.5 / (1 + 0.004 * step) ** 0.5 + 0.9 + self.rng.gauss(0, 0.03)
        return self.curve(step, value) if self.curve else value

    def norm(self, step: int, low: float, high: float) -> float:
        """A norm of the gradients between two numbers."""
        value = self.rng.uniform(low, high)
        return self.norms(step, value) if self.norms else value


HOST_NAMES = (
    "gpu{:02d}",
    "node{:03d}",
    "node-{}",
    "dgx-a{:02d}",
    "ip-10-1-4-{}",
    "h100-{:03d}",
    "cn{:04d}",
    "nid{:06d}",
    "r12u{:02d}",
    "a100-{}",
)
JOB_NAMES = ("trainer", "pretrain", "sft", "llm-run", "vit", "resnet", "finetune", "exp7", "dpo")
SCRIPTS = ("train.py", "pretrain.py", "main.py", "run_clm.py", "finetune.py", "train_ddp.py")
FOLDERS = ("/workspace", "/home/user/project", "/opt/app", "/mnt/code", "/scratch/run", "/app/src")
MODELS = (
    "llama-3-8b",
    "Qwen2.5-7B",
    "mistral-7b-v0.3",
    "gpt2-xl",
    "bert-large-uncased",
    "vit-large-patch16-224",
    "resnet50",
    "t5-large",
    "pythia-1.4b",
    "whisper-medium",
    "unet-sd15",
    "deepseek-moe-16b",
)
DATA = (
    "c4-en",
    "openwebtext",
    "imagenet-1k",
    "alpaca-cleaned",
    "fineweb-edu",
    "ultrachat-200k",
    "coco2017",
    "librispeech",
    "the-pile",
    "wikitext-103",
)


def make_job(rng: random.Random, *, world: int | None = None, per_host: int | None = None) -> Job:
    """A job of 2 to 32 ranks on hosts of up to 8."""
    world = world or rng.choice((2, 4, 4, 8, 8, 8, 16, 16, 32))
    per_host = min(world, per_host or rng.choice((1, 2, 4, 4, 8, 8, 8)))
    if world // per_host > 16:
        per_host = 8
    count = world // per_host
    first_host = rng.randrange(1, 90)
    hosts = tuple(_host_names(rng, first_host, count))
    first_pid = rng.randrange(700, 90_000)
    started = datetime(2026, 1, 1) + timedelta(seconds=rng.randrange(300 * 86_400))
    every = rng.choice((1, 1, 5, 10, 10, 20, 50, 100))
    return Job(
        rng=rng,
        world=world,
        per_host=per_host,
        hosts=hosts,
        started=started,
        name=rng.choice(JOB_NAMES),
        script=rng.choice(SCRIPTS),
        folder=rng.choice(FOLDERS),
        model=rng.choice(MODELS),
        data=rng.choice(DATA),
        first=rng.choice((0, 0, 0, every * rng.randrange(1, 900))),
        every=every,
        interval=round(min(90.0, max(2.0, rng.lognormvariate(2.4, 0.8))), 1),
        total=0,
        number=rng.randrange(10_000, 9_000_000),
        pids=tuple(first_pid + rng.randrange(1, 3) + 3 * rank for rank in range(world)),
    )


def _host_names(rng: random.Random, first: int, count: int) -> list[str]:
    form = rng.choice(HOST_NAMES)
    return [form.format(first + place) for place in range(count)]
