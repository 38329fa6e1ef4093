"""What the user's program prints: its start, its steps, what it is busy with, how it ends."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from benchmarks.hangbench.sim.evidence.names import wall
from benchmarks.hangbench.sim.evidence.releases import Clock, Release
from benchmarks.hangbench.sim.outcome import Line, Outcome, Rank

Trainer = Literal["plain", "megatron", "deepspeed", "hf", "json"]
TRAINERS: tuple[Trainer, ...] = get_args(Trainer)

_TOTAL = 100_000  # steps that the job was to make

_BUSY = {
    "loader": (
        "waiting for the next batch of shard_{n:05d}.tar",
        "data loader: fetching shard_{n:05d}.tar from s3://datasets/web",
    ),
    "lock": (
        "Attempting to acquire lock {big} on /data/cache/index.lock",
        "Lock {big} not acquired on /data/cache/index.lock, waiting 0.05 seconds ...",
    ),
    "file": (
        "Reading /data/shards/part-{n:05d}.parquet",
        "Opening /data/shards/part-{n:05d}.arrow",
    ),
    "preparation": (
        "Map (num_proc=8):  {p}%|{bar}| {n}000/100000 [04:12<06:41, 141.2 examples/s]",
        "Tokenizing shard {n}/512",
    ),
    "save": (
        "Saving model checkpoint to /checkpoints/checkpoint-{step}",
        "saving checkpoint at iteration {step} to /checkpoints/run in torch format",
    ),
    "evaluation": (
        "Evaluating:  {p}%|{bar}| {n}/640 [02:10<04:01,  1.52it/s]",
        "***** Running Evaluation *****\n  Num examples = 5120\n  Batch size = 8",
    ),
    "compile": (
        "Using /root/.cache/torch_extensions as PyTorch extensions root...\n"
        "Building extension module fused_adam...",
        "Emitting ninja build file /root/.cache/torch_extensions/fused_adam/build.ninja...",
    ),
    "sleep": (),
}


@dataclass(frozen=True, slots=True)
class Printing:
    """How the program prints. every_rank: whether all ranks print their steps, not one.

    named: lines of steps state the rank. stamped: they carry a time (as far as the trainer's do).
    """

    trainer: Trainer
    every_rank: bool
    named: bool
    stamped: bool


def printing(rng: random.Random, trainer: Trainer | None, every_rank: bool | None) -> Printing:
    """A style; what is not given is drawn. Only `plain` and `json` may leave out the rank."""
    drawn: Trainer = rng.choice(TRAINERS)
    kind = drawn if trainer is None else trainer
    share = 0.6 if kind in ("plain", "json") else 0.25  # the others print on one rank by default
    every = rng.random() < share if every_rank is None else every_rank
    named = kind in ("deepspeed", "json") or (kind == "plain" and rng.random() < 0.6)
    stamped = kind in ("megatron", "deepspeed", "json") or rng.random() < 0.7
    return Printing(kind, every, named, stamped)


def start_lines(outcome: Outcome, style: Printing, release: Release) -> Iterator[Line]:
    """The banner with the size of the job, and NCCL's version as rank 0 prints it."""
    world, time = outcome.world, 0.4
    stamp = f"{wall(outcome, time):%Y-%m-%d %H:%M:%S},{int(time * 1000) % 1000:03d}"
    banner = {
        "plain": f"initialized process group: backend=nccl world_size={world}",
        "megatron": f"using world size: {world}, {_sizes(outcome)} ",
        "deepspeed": f"[{stamp}] [INFO] [config.py:1003:print]   world_size ................... "
        f"{world}",
        "json": json.dumps(
            {"time": stamp, "level": "INFO", "rank": 0, "msg": f"init done, world_size={world}"}
        ),
    }
    if style.trainer != "hf":
        yield _of(0, time, banner[style.trainer], "world")
    else:
        for rank in outcome.ranks if style.every_rank else outcome.ranks[:1]:
            text = f"Initializing distributed: GLOBAL_RANK: {rank.rank}, MEMBER: {rank.rank + 1}"
            yield Line(
                time, rank.rank, rank.node, f"{text}/{world}", "stderr", "world", names_rank=True
            )
    version = f"NCCL version {release.nccl}+cuda{release.cuda}"
    yield _of(0, time + 1.1, version, "noise")


def _sizes(outcome: Outcome) -> str:
    """How the job is split, as Megatron says it."""
    groups = outcome.groups.values()
    tensor, pipeline, context = (
        max((len(one.members) for one in groups if one.desc == desc), default=1)
        for desc in (
            "TENSOR_MODEL_PARALLEL_GROUP",
            "PIPELINE_MODEL_PARALLEL_GROUP",
            "CONTEXT_PARALLEL_GROUP",
        )
    )
    data = outcome.world // (tensor * pipeline * context)
    return (
        f"data-parallel size: {data}, context-parallel size: {context}, "
        f"tensor-model-parallel size: {tensor}, pipeline-model-parallel size: {pipeline}"
    )


def step_lines(outcome: Outcome, style: Printing, rng: random.Random) -> Iterator[Line]:
    """A line a step by each rank that prints."""
    last = outcome.world - 1 if style.trainer == "megatron" else 0
    printers: Iterable[Rank] = outcome.ranks if style.every_rank else [outcome.ranks[last]]
    for rank in printers:
        before = 0.0
        for time, step in rank.steps:
            took, before = time - before, time
            text = _step(outcome, style, rank.rank, time, step, took, rng)
            yield Line(time, rank.rank, rank.node, text, "stdout", "step", names_rank=style.named)


def _step(
    outcome: Outcome,
    style: Printing,
    rank: int,
    time: float,
    step: int,
    took: float,
    rng: random.Random,
) -> str:
    when = wall(outcome, time)
    loss = 2.0 + 9.0 / (1 + step) + rng.random() * 0.1
    if style.trainer == "megatron":
        stamp = f" [{when:%Y-%m-%d %H:%M:%S.%f}]" if style.stamped else ""
        return (
            f"{stamp} iteration {step:8d}/{_TOTAL:8d} | consumed samples: {step * 512:12d} | "
            f"elapsed time per iteration (ms): {took * 1000:.1f} | learning rate: 1.000000E-04 | "
            f"global batch size:   512 | lm loss: {loss:.6E} | loss scale: 1.0 | "
            f"grad norm: {rng.random():.3f} | number of skipped iterations:   0 | "
            "number of nan iterations:   0 |"
        )
    if style.trainer == "deepspeed":
        return (
            f"[{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d}] [INFO] "
            f"[logging.py:96:log_dist] [Rank {rank}] step={step}, skipped=0, lr=[1e-05], "
            "mom=[(0.9, 0.95)]"
        )
    if style.trainer == "hf":
        return (
            f"{{'loss': {loss:.4f}, 'grad_norm': {rng.random():.4f}, "
            f"'learning_rate': {5e-5 * (1 - step / _TOTAL):.3e}, 'epoch': {step / 4000:.4f}}}"
        )
    if style.trainer == "json":
        record = {"time": when.isoformat(timespec="milliseconds"), "level": "INFO", "rank": rank}
        return json.dumps({**record, "msg": "train", "step": step, "loss": round(loss, 4)})
    stamp = f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d} " if style.stamped else ""
    name = f"[rank {rank}] " if style.named else ""
    return f"{stamp}{name}step {step}/{_TOTAL} loss {loss:.4f} lr 1.00e-04 time {took:.3f}s"


def busy_lines(outcome: Outcome, style: Printing, rng: random.Random) -> Iterator[Line]:
    """What stuck ranks print before they fall silent, and slow ones while they work."""
    for rank in outcome.ranks:
        texts = _BUSY.get(rank.stuck_in, ()) if rank.end in ("stuck", "slow") else ()
        if not texts:
            continue
        text = rng.choice(texts)
        begin = _stopped(outcome, rank)
        count = 1 if rank.end == "stuck" else 12
        for number in range(count):
            time = begin + 0.2 + number * outcome.timeout_s / count
            values = {
                "n": 31 + number,
                "p": 7 + 5 * number,
                "bar": "█" * (1 + number // 3) + " " * (9 - number // 3),
                "big": 139_800_000_000_000 + rank.rank * 4096,
                "step": rank.steps[-1][1] if rank.steps else 0,
            }
            stamp = f"{wall(outcome, time):%Y-%m-%d %H:%M:%S} " if style.stamped else ""
            stamp = "" if "%|" in text else stamp
            name = f"[rank {rank.rank}] " if style.trainer == "plain" and style.named else ""
            yield Line(
                time,
                rank.rank,
                rank.node,
                stamp + name + text.format(**values),
                "stderr",
                "busy",
                names_rank=bool(name),
            )


def _stopped(outcome: Outcome, rank: Rank) -> float:
    """When a stuck rank came to what holds it up."""
    did = [time for time, _ in rank.steps[-1:]] + [work.created for work in rank.works[-1:]]
    return max([*did, outcome.fault_at or 0.0])


def traceback_line(outcome: Outcome, rank: Rank, release: Release) -> Line:
    """The exception that ended a rank, as Python prints it."""
    assert rank.ended is not None
    shown = ["Traceback (most recent call last):"]
    for at, frame in enumerate(rank.place):
        shown.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        if at + 1 < len(rank.place):
            shown.append(f"    {rank.place[at + 1].function}()")
    shown.append(rank.stuck_in)
    prefix = f"[rank{rank.rank}]: " if release.rank_prefix else ""
    return Line(
        rank.ended,
        rank.rank,
        rank.node,
        "\n".join(prefix + line for line in shown),
        "stderr",
        "raised",
        names_rank=release.rank_prefix,
    )


def left_lines(
    outcome: Outcome, rank: Rank, release: Release, style: Printing, clock: Clock
) -> Iterator[Line]:
    """The end of the program, and from 2.4 torch's warning on the first rank of a node."""
    assert rank.ended is not None
    if style.every_rank or rank.rank == 0:
        named = style.named
        when = wall(outcome, rank.ended)
        if style.trainer == "json":
            record = {"time": when.isoformat(timespec="milliseconds"), "level": "INFO"}
            text = json.dumps({**record, "rank": rank.rank, "msg": "training finished"})
        else:
            stamp = f"{when:%Y-%m-%d %H:%M:%S} " if style.stamped else ""
            named = style.trainer == "plain" and style.named
            text = f"{stamp}{f'[rank {rank.rank}] ' if named else ''}training finished"
        yield Line(
            rank.ended - 0.05, rank.rank, rank.node, text, "stdout", "left", names_rank=named
        )
    if "destroyed" in release.source and rank.local_rank == 0:
        warning = (
            "Warning: WARNING: process group has NOT been destroyed before we destruct "
            "ProcessGroupNCCL. On normal program exit, the application should call "
            "destroy_process_group to ensure that any pending NCCL operations have finished in "
            "this process."
            if release.torch == "2.4"
            else "Warning: WARNING: destroy_process_group() was not called before program exit, "
            "which can leak resources. For more info, please see "
            "https://pytorch.org/docs/stable/distributed.html#shutdown"
        )
        prefix = clock.prefix(wall(outcome, rank.ended), "W", "destroyed")
        text = f"{prefix}{warning} (function operator())"
        yield Line(rank.ended, rank.rank, rank.node, text, shows="left", names_rank=True)


def _of(rank: int, time: float, text: str, shows: Literal["world", "noise"]) -> Line:
    return Line(time, rank, 0, text, "stdout", shows)
