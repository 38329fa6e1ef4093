"""Pairs of runs of one job with one planted difference: `python benchmarks/compare_pairs.py`.

    python benchmarks/compare_pairs.py --seeds 0-199        # figures, misses
    python benchmarks/compare_pairs.py --seeds 7 --keep DIR # writes the logs of a pair, shows it

Programs, launchers and layouts are those of HangBench. Both runs state versions, environment and
arguments in one of several forms; times, process ids, ports, addresses, folders with dates, losses
and lines that frighten for nothing differ in any two runs. In the bad run one thing more differs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.hangbench.calm import fatal
from benchmarks.hangbench.calm.harmless import HARMLESS
from benchmarks.hangbench.case import Files
from benchmarks.hangbench.words import layouts, programs
from benchmarks.hangbench.words.job import Line
from benchmarks.hangbench.words.layouts import Layout
from benchmarks.hangbench.words.programs import PROGRAMS, Program
from benchmarks.hangbench.words.story import Story, begin
from diagnose.comparison import Comparison, compare
from diagnose.comparison.model import Difference

KINDS = (
    "version",
    "environment",
    "environment alone",
    "environment of a rank",
    "argument",
    "flag",
    "node",
    "warning",
    "path taken",
    "phase",
    "phase of a rank",
    "interval",
    "collective",
    "ranks",
)

VERSIONS = {
    "torch": ("2.4.1", "2.5.0", "2.5.1", "2.6.0"),
    "transformers": ("4.43.4", "4.44.2", "4.45.0"),
    "numpy": ("1.26.4", "2.0.2", "2.1.3"),
    "deepspeed": ("0.14.4", "0.15.1"),
    "flash-attn": ("2.5.8", "2.6.3"),
    "triton": ("3.0.0", "3.1.0"),
    "accelerate": ("0.33.0", "1.0.1"),
    "datasets": ("2.20.0", "3.0.1"),
}
ENVIRONMENT = {
    "NCCL_IB_HCA": ("mlx5_0,mlx5_1", "mlx5_2,mlx5_3", "mlx5_0"),
    "NCCL_SOCKET_IFNAME": ("eth0", "ib0", "bond0"),
    "NCCL_IB_TIMEOUT": ("22", "18", "14"),
    "NCCL_P2P_DISABLE": ("0", "1"),
    "CUDA_DEVICE_MAX_CONNECTIONS": ("1", "8"),
    "OMP_NUM_THREADS": ("1", "8", "16"),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": ("1", "3"),
    "PYTORCH_CUDA_ALLOC_CONF": ("expandable_segments:True", "max_split_size_mb:512"),
    "NCCL_ALGO": ("Ring", "Tree"),
    "NCCL_NVLS_ENABLE": ("0", "1"),
    "TOKENIZERS_PARALLELISM": ("false", "true"),
}
ARGUMENTS = {
    "lr": ("0.0003", "3e-05", "0.001"),
    "micro-batch-size": ("1", "2", "4", "8"),
    "seq-length": ("2048", "4096", "8192"),
    "weight-decay": ("0.1", "0.01"),
    "num-workers": ("2", "4", "8", "16"),
    "gradient-accumulation-steps": ("1", "4", "8"),
    "tensor-parallel-size": ("1", "2", "4"),
    "optimizer": ("adamw", "lion", "sgd"),
    "seed": ("42", "1234"),
    "warmup-steps": ("100", "500", "2000"),
    "dtype": ("bfloat16", "float16"),
    "dataset": ("/data/c4/v1", "/data/c4/v2"),
}
FLAGS = (
    "use-flash-attn",
    "gradient-checkpointing",
    "compile",
    "sequence-parallel",
    "overlap-grad-reduce",
)
WARNINGS = (
    "WARNING: shared memory segment of the data loader is nearly full ({n} MiB left)",
    "prefetch queue ran empty, waited {n} ms for the next batch",
    "WARN storage client: read of part {n} took longer than expected, slow mount",
    "gradient bucket {n} was not ready in time",
    "NCCL WARN NET/IB : Got async event : port error on mlx5_{n}",
    "GPU {n}: SM clock is below its limit, power cap active",
    "tokenizer produced an empty sequence in document {n}",
    "UserWarning: lr_scheduler.step() was called before optimizer.step() in epoch {n}",
    "kernel cache miss, compiling variant {n}",
    "worker {n} of the loader restarted",
)
PATHS = (
    ("Using network IB", "Using network Socket"),
    ("attention backend: flash", "attention backend: math"),
    ("collate: pinned memory, persistent workers", "collate: pageable memory, persistent workers"),
    ("checkpoint writer: asynchronous, zarr", "checkpoint writer: synchronous, zarr"),
    ("all-reduce runs over NVLink", "all-reduce runs over PCIe"),
)
PHASES = {"data": 9.0, "forward": 61.0, "backward": 122.0, "optim": 14.0}
CALLS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")


@dataclass(frozen=True, slots=True)
class Planted:
    """The difference: its kind, and texts of which one difference has to show all."""

    kind: str
    marks: tuple[str, ...]


@dataclass(slots=True)
class Setup:
    """What a run was given, in the forms in which it says so."""

    versions: dict[str, str]
    environment: dict[str, str]
    arguments: dict[str, str]
    flags: tuple[str, ...]
    path: str
    forms: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Pair:
    """The logs of both runs."""

    good: Files
    bad: Files
    planted: Planted
    layout: str


def make(seed: int) -> Pair:
    """The pair of a seed."""
    rng = random.Random(f"compare {seed}")
    kind = rng.choice(KINDS)
    every = kind in ("environment of a rank", "phase of a rank", "collective")
    layout, program = _drawn(rng, kind)
    setup = Setup(
        {name: rng.choice(VERSIONS[name]) for name in rng.sample([*VERSIONS], 6)},
        {name: rng.choice(ENVIRONMENT[name]) for name in rng.sample([*ENVIRONMENT], 7)},
        {name: rng.choice(ARGUMENTS[name]) for name in rng.sample([*ARGUMENTS], 9)},
        tuple(rng.sample(FLAGS, 2)), rng.choice(PATHS)[0],
        (rng.randrange(3), rng.randrange(3), rng.randrange(4)),
    )  # fmt: skip
    other, marks = _changed(rng, setup, kind)
    every = every or rng.random() < 0.5
    found: list[_Run] = []
    for run in ("good", "bad"):
        drawn = (random.Random(f"job {seed} {at}") for at in range(99))
        stories = (begin(one, layout, program, every_rank=every) for one in drawn)
        story = next(one for one in stories if len(one.job.hosts) > 1 or kind != "node")
        found.append(_Run(story, setup if run == "good" else other, kind, seed, run))
    bad = found[1]
    if kind == "node" or rng.random() < 0.2:
        _move(bad, all_hosts=kind != "node")
    files = []
    for made in found:
        made.write()
        files.append(layouts.write(made.job, layout, made.story.lines))
    return Pair(files[0], files[1], Planted(kind, marks or bad.marks), layout.name)


def _drawn(rng: random.Random, kind: str) -> tuple[Layout, Program]:
    while True:
        layout = layouts.draw(rng)
        able = [
            one
            for one in PROGRAMS
            if layouts.shows(layout, one) and not one.bar and one.family != "keras"
        ]
        if kind in ("environment of a rank", "phase of a rank", "collective"):
            able = able if layout.author == "rank" else []
        if kind == "node" and layout.one_host:
            able = []
        if kind.startswith("phase"):
            job = begin(random.Random(0), layout, PROGRAMS[0], every_rank=True).job
            job.total = 9
            able = [
                one for one in able if not any(word in one.step(job, 7) for word in ("time", "\n"))
            ]
        if kind == "interval":
            able = [one for one in able if layout.stamps or one.stamps == "full"]
        if able:
            return layout, programs.draw(rng, able)


def _changed(rng: random.Random, setup: Setup, kind: str) -> tuple[Setup, tuple[str, ...]]:
    """What the bad run was given, and what shows it."""
    if kind == "version":
        name = rng.choice([*setup.versions])
        value = rng.choice([one for one in VERSIONS[name] if one != setup.versions[name]])
        return replace(setup, versions=setup.versions | {name: value}), (
            setup.versions[name],
            value,
        )
    if kind == "environment":
        name = rng.choice([*setup.environment])
        value = rng.choice([one for one in ENVIRONMENT[name] if one != setup.environment[name]])
        return replace(setup, environment=setup.environment | {name: value}), (name, value)
    if kind == "environment alone":
        name = rng.choice([*setup.environment])
        return replace(
            setup, environment={k: v for k, v in setup.environment.items() if k != name}
        ), (name,)
    if kind == "argument":
        name = rng.choice([*setup.arguments])
        value = rng.choice([one for one in ARGUMENTS[name] if one != setup.arguments[name]])
        return replace(setup, arguments=setup.arguments | {name: value}), (
            name[:3],
            setup.arguments[name],
            value,
        )
    if kind == "flag":
        setup.forms = (*setup.forms[:2], rng.choice((0, 1)))
        name = rng.choice(setup.flags)
        return replace(setup, flags=tuple(one for one in setup.flags if one != name)), (
            name.partition("-")[0],
        )
    if kind == "path taken":
        other = dict(PATHS)[setup.path]
        return replace(setup, path=other), (
            next(
                word
                for word in other.replace(",", "").split()
                if word not in setup.path.replace(",", "").split()
            ),
        )
    return setup, ()


class _Run:
    """One run while its lines are made."""

    def __init__(self, story: Story, setup: Setup, kind: str, seed: int, run: str) -> None:
        self.story, self.setup, self.kind, self.bad = story, setup, kind, run == "bad"
        self.job = story.job
        self.marks: tuple[str, ...] = ()
        self.shared = random.Random(f"shared {seed}")
        self.rng = random.Random(f"{run} {seed}")
        job = self.job
        if kind == "ranks" and self.bad:
            more = job.world * 2
            job.hosts = (*job.hosts, *(f"{host}-b" for host in job.hosts))
            job.pids = tuple(job.pids[0] + 3 * rank for rank in range(more))
            self.marks = (str(job.world), str(more))
            job.world = more
            story.who = programs.printers(job, story.program, every_rank=len(story.who) > 1)
        job.pids = tuple(pid + self.rng.randrange(900) for pid in job.pids)
        job.started += timedelta(hours=self.rng.randrange(1, 400), seconds=self.rng.randrange(3600))
        # the name of a run, and what a scheduler draws
        self.drawn = {
            "MASTER_ADDR": f"10.{self.rng.randrange(200)}.0.{self.rng.randrange(200)}",
            "MASTER_PORT": str(self.rng.randrange(20_000, 60_000)),
            "SLURM_JOB_ID": str(self.rng.randrange(10_000, 9_000_000)),
            "TMPDIR": f"/tmp/job.{self.rng.randrange(1 << 30):x}",
        }  # fmt: skip

    def write(self) -> None:
        """Make all lines."""
        story, job, rng = self.story, self.job, self.rng
        job.rng = self.shared
        count = max(60, self.shared.randrange(300, 1400) // len(story.who))
        slow = self.shared.uniform(1.5, 2.5)
        job.every = 1 if job.every > 10 else job.every
        opening, story.loop = programs.opening(job, story.program, story.who, members=True)
        start = opening[0].at if opening else 1.0
        job.rng = rng
        job.total = job.every * count
        story.lines += [*self._setup(max(0.2, start - 1)), *opening]
        if self.kind == "interval" and self.bad:
            job.interval *= slow
            self.marks = ()  # whatever a step is called
        steps = [job.first + job.every * (place + 1) for place in range(count)]
        job.total = steps[-1]
        at = programs.times(job, story.loop, count)
        for rank in story.who:
            story.progress(rank, steps, at)
        if self.kind in ("phase", "phase of a rank"):
            self._phases(slow)
        if self.kind == "collective":
            self._calls(at)
        self._noise(at)
        if self.kind == "warning" and self.bad:
            self._warn(at)
        self._end(at, steps)

    def _say(self, at: float, text: str, rank: int | None = None) -> Line:
        rank = self.story.who[0] if rank is None else rank
        return programs.message(self.job, self.story.program, rank, at, text, "start")

    def _setup(self, at: float) -> Iterator[Line]:
        """What the run says that it was given."""
        setup, (of_versions, of_environment, of_arguments) = self.setup, self.setup.forms
        out = f"/results/{self.job.started:%Y%m%d-%H%M%S}"
        texts = []
        for name, value in setup.versions.items():
            texts.append(
                (f"{name}=={value}", f"{name} version: {value}", f"{name} {value}")[of_versions]
            )
        environment = setup.environment | self.drawn
        if of_environment == 1:
            texts.append(f"environment: {json.dumps(environment)}")
        elif of_environment == 2 and self.kind != "environment of a rank":
            texts += [
                f"{name} set by environment to {value}." for name, value in environment.items()
            ]
        else:
            texts += [f"{name}={value}" for name, value in environment.items()]
        given = {
            **setup.arguments,
            "output-dir": out,
            "run-name": f"exp-{self.rng.randrange(1 << 40):x}",
        }
        flat = {name.replace("-", "_"): value for name, value in given.items()}
        flags = {name.replace("-", "_"): str(name in setup.flags) for name in FLAGS}
        if of_arguments < 2:
            words = [
                f"--{name}={value}" if of_arguments else f"--{name} {value}"
                for name, value in given.items()
            ]
            texts.append(
                " ".join(
                    [
                        "launching: python",
                        self.job.script,
                        *words,
                        *(f"--{one}" for one in setup.flags),
                    ]
                )
            )
        elif of_arguments == 2:
            texts += [
                f"  {name} {'.' * (40 - len(name))} {value}"
                for name, value in (flat | flags).items()
            ]
        else:
            texts.append(
                "Namespace(" + ", ".join(f"{k}={v!r}" for k, v in (flat | flags).items()) + ")"
            )
        texts.append(setup.path)
        texts.append(
            f"model loaded in {self.rng.uniform(3, 90):.1f} s, "
            f"{self.rng.uniform(10, 60):.2f} GiB free"
        )
        step = 0.5 / len(texts)
        yield from (self._say(at + step * number, text) for number, text in enumerate(texts))
        yield from self._of_ranks(at)

    def _of_ranks(self, at: float) -> Iterator[Line]:
        job = self.job
        odd = self.shared.randrange(job.world)
        first, other = self.shared.sample(("eth0", "ib0", "bond0"), 2)
        for rank in range(job.world):
            text = (
                f"rank {rank} of {job.world} on {job.host(rank)}: pid {job.pids[rank]}, "
                f"device cuda:{job.local(rank)}"
            )
            yield self._say(at + 0.6 + rank / 1000, text, rank)
            if self.kind == "environment of a rank":
                value = other if self.bad and rank == odd else first
                yield self._say(at + 0.7 + rank / 1000, f"GLOO_SOCKET_IFNAME={value}", rank)
        if self.kind == "environment of a rank":
            self.marks = ("GLOO_SOCKET_IFNAME", other)

    def _phases(self, slow: float) -> None:
        """Times of the parts of each step behind its line."""
        odd, phase = self.shared.choice(self.story.who), self.shared.choice([*PHASES])
        self.marks = (phase,) if self.kind == "phase" else (phase, f"rank {odd}")
        if phase == "optim":
            self.marks = ("total", *self.marks[1:])
        changed = []
        for line in self.story.lines:
            if line.step is None:
                changed.append(line)
                continue
            took = {name: value * self.rng.gauss(1, 0.03) for name, value in PHASES.items()}
            if self.bad and (self.kind == "phase" or line.rank == odd):
                took[phase] *= slow * (3 if phase == "optim" else 1)
            took["total"] = sum(took.values())
            text = " ".join(f"{name}_time={value / 1000:.4f}" for name, value in took.items())
            changed.append(
                replace(
                    line,
                    text=f"step={line.step} {text}" if "{" in line.text else f"{line.text} {text}",
                )
            )
        self.story.lines[:] = changed

    def _calls(self, at: list[float]) -> None:
        """NCCL's call lines, of which the bad run has one less, or another one, on a rank."""
        job, seen = self.job, self.shared
        odd, place = seen.choice(range(job.world)), seen.randrange(6, 20)
        plan = [(seen.choice(CALLS), 1 << seen.randrange(8, 26)) for _ in range(24)]
        self.marks = (f"call {place}", f"rank {odd}")
        for rank in range(job.world):
            calls = list(plan)
            if self.bad and rank == odd:
                if place % 2:
                    del calls[place]
                else:
                    calls[place] = (
                        next(one for one in CALLS if one != calls[place][0]),
                        calls[place][1],
                    )
            comm = f"0x55{self.rng.randrange(1 << 32):08x}"
            for number, (op, size) in enumerate(calls):
                text = (
                    f"{job.host(rank)}:{job.pids[rank]}:{job.pids[rank] + 90} [{job.local(rank)}] "
                    f"NCCL INFO {op}: opCount {number:x} "
                    f"sendbuff 0x7f{self.rng.randrange(1 << 32):08x} "
                    f"recvbuff 0x7f{self.rng.randrange(1 << 32):08x} "
                    f"count {size} datatype 9 op 0 root 0 comm {comm} [nranks={job.world}] "
                    "stream 0x55d0a0b1c2"
                )
                when = self.story.loop + number * (at[-1] - self.story.loop) / 24 + rank / 1000
                self.story.lines.append(Line(when, rank, text, "note"))
        same = plan[place][0] == (plan[place + 1][0] if place % 2 else "")
        if same and plan[place][1] == plan[place + 1][1]:
            self.marks = (f"rank {odd}",)

    def _noise(self, at: list[float]) -> None:
        """What frightens for nothing, in any run."""
        family = self.story.program.family
        able = [
            one
            for one in HARMLESS
            if (not one.families or family in one.families)
            and not one.outside
            and one.kind != "setting"
        ]
        for one in self.rng.sample(able, self.rng.choice((0, 0, 1, 1, 2))):
            when = self.rng.uniform(at[0], at[-1])
            facts = fatal._facts(self.job, self.story.who[0], 7) | {
                "port": self.rng.randrange(2000, 9000), "port2": self.rng.randrange(2000, 9000),
                "number": self.rng.randrange(10, 90000), "step": 7,
                "folder": self.job.folder, "data": self.job.data,
                "model": self.job.model,
            }  # fmt: skip
            for text in one.texts:
                try:
                    shown = text.format(**facts)
                except (KeyError, IndexError, ValueError):
                    continue
                when += 2
                self.story.lines.append(self._say(when, shown))

    def _warn(self, at: list[float]) -> None:
        text = self.shared.choice(WARNINGS)
        self.marks = (text.partition("{")[0].strip(),)
        last = at[-1]
        for _ in range(self.shared.randrange(1, 9)):
            when = last - self.rng.uniform(0.5, 12) * self.job.interval
            rank = self.shared.choice(self.story.who)
            self.story.lines.append(self._say(when, text.format(n=self.rng.randrange(2, 90)), rank))

    def _end(self, at: list[float], steps: list[int]) -> None:
        story, job = self.story, self.job
        how = self.shared.choice(("well", "cut", "fatal"))
        if not self.bad or how == "well":
            story.lines += programs.closing(job, story.program, story.who[0], at[-1] + 1)
        elif how == "fatal":
            dead = self.shared.choice(story.who)
            found = fatal.draw(
                job, story.layout, story.program, dead, at[-1] + 1, steps[-1], uncaught=True
            )
            story.lines.append(Line(at[-1] + 1, dead, found.text, "bad", err=True))


def _move(run: _Run, *, all_hosts: bool) -> None:
    """Other hosts: one, or all of them."""
    job = run.job
    hosts = list(job.hosts)
    for place in range(len(hosts)) if all_hosts else [run.shared.randrange(len(hosts))]:
        stem = hosts[place].rstrip("0123456789")
        number = int(hosts[place][len(stem) :] or 0) + 500
        hosts[place] = f"{stem}{number}"
        if not all_hosts:
            run.marks = (hosts[place],)
    job.hosts = tuple(hosts)


OF_KIND = {
    "phase": "pace",
    "phase of a rank": "pace",
    "interval": "pace",
    "collective": "collective",
}


def shown_in(difference: Difference, planted: Planted) -> bool:
    """Whether a difference shows what was planted."""
    if OF_KIND.get(planted.kind, difference.kind) != difference.kind:
        return False
    parts = (difference.kind, difference.name, difference.good, difference.bad, difference.who)
    text = " ".join(str(part) for part in parts if part).replace("_", "-").lower()
    return all(mark.replace("_", "-").lower() in text for mark in planted.marks)


def score(found: Comparison, planted: Planted) -> int | None:
    """At which place the planted difference is, from 1 on."""
    places = (at for at, one in enumerate(found.differences, 1) if shown_in(one, planted))
    return next(places, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0-199", help="0-199, or one")
    parser.add_argument("--keep", type=Path, help="folder for the logs; shows what is found")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    right: Counter[str] = Counter()
    made: Counter[str] = Counter()
    shown = lines = 0
    took = 0.0
    for seed in range(int(first), int(last or first) + 1):
        pair = make(seed)
        with tempfile.TemporaryDirectory() as scratch:
            folder = (options.keep or Path(scratch)) / str(seed)
            for run, files in (("good", pair.good), ("bad", pair.bad)):
                for name, data in files.items():
                    target = folder / run / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(data)
            began = time.perf_counter()
            found = compare(folder / "good", folder / "bad")
            took += time.perf_counter() - began
        place = score(found, pair.planted)
        made[pair.planted.kind] += 1
        right[pair.planted.kind] += place is not None and place <= 3
        shown += found.worth_reading
        lines += found.good.lines + found.bad.lines
        if place is None or place > 3 or options.keep:
            print(
                f"{seed} {pair.planted.kind} ({pair.layout}, {found.bad.verdict}): "
                f"{pair.planted.marks} at {place}"
            )
            for one in found.differences[: 12 if options.keep else 4]:
                print(
                    "   ",
                    one.kind,
                    one.name,
                    "|",
                    (one.good or "")[:60],
                    "|",
                    (one.bad or "")[:60],
                    "|",
                    one.who,
                )
    for kind in sorted(made):
        print(f"{kind:24} {right[kind]}/{made[kind]}")
    total = sum(made.values())
    print(
        f"among the first three: {sum(right.values())}/{total} ({sum(right.values()) / total:.1%})"
    )
    print(f"lines shown: {shown} of {lines} ({shown / lines:.2%}); {took / total:.2f} s a pair")


if __name__ == "__main__":
    main()
