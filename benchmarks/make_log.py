"""Make the log of a large job that hangs at its end: by default 1 GiB of 128 ranks on 16 hosts.

The job trains for hours with a line per rank and step, the usual noise in between, and then stops
because one rank never joins an ALLREDUCE: all others print the lines of their watchdog.

    python benchmarks/make_log.py --size 1GiB --ranks 128 --out /tmp/job.log
    python benchmarks/make_log.py --size 1GiB --ranks 128 --split /tmp/job
    python benchmarks/make_log.py --size 1GiB --calls 16 --out /tmp/few.log  # with call lines

Speed comes from blocks: one minute of training is rendered once with placeholders for the step and
the minute, and every further minute is a replacement in it.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

BEGIN = datetime(2025, 11, 3, 8, 0)
PER_HOST = 8
STEPS_A_MINUTE = 100
VARIANTS = 4  # different minutes, used in turn
TIMEOUT_MS = 600_000
TOTAL_STEPS = 10_000_000
BUSIDS = ("18000", "2a000", "3a000", "5d000", "9a000", "ab000", "ba000", "db000")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# In blocks these stand for the minute of the wall clock, the same as hour and minute, and the
# step without its last two digits. No log line holds these bytes otherwise.
DAY_MINUTE, HOUR_MINUTE, HUNDREDS = b"\x01", b"\x02", b"\x03"

NOISE = (
    "/usr/lib/python3.11/site-packages/torch/utils/checkpoint.py:92: UserWarning: None of the "
    "inputs have requires_grad=True. Gradients will be None",
    "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. Please use "
    "`torch.amp.autocast('cuda', args...)` instead.",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already "
    "been used. Disabling parallelism to avoid deadlocks...",
    "data: shard 00412 exhausted, opening shard 00413 (prefetch 4, queue 118)",
    "memory: allocated 61.20 GiB, reserved 70.44 GiB, 3 cudaMalloc retries",
    "gc: collected 18211 objects in 0.141 s",
)

Prefix = Callable[[int], str]


def console_prefix(rank: int) -> str:
    """What torchrun --tee puts before a line, then the rank as the trainer prints it."""
    return f"[default{rank % PER_HOST}]:"


def file_prefix(rank: int) -> str:
    """In a file of its own a rank's lines carry nothing."""
    del rank
    return ""


def host_of(rank: int) -> str:
    return f"gpu-node-{rank // PER_HOST:02d}"


def c10(rank: int, clock: str, nanos: int, origin: str, severity: str = "E") -> str:
    """The prefix of a C++ log line of torch 2.7; `clock` is HH:MM:SS."""
    stamp = f"{BEGIN.month}{BEGIN.day:02d} {clock}.{nanos:09d}"
    return f"[rank{rank}]:[{severity}{stamp} {origin}] "


def header(ranks: list[int], world: int, prefix: Prefix, rng: random.Random) -> Iterator[str]:
    """How the processes start: banners, NCCL's INFO lines, the first warnings."""
    for rank in ranks:
        dev, host, before = rank % PER_HOST, host_of(rank), prefix(rank)
        pid = 4000 + dev
        nccl = f"{before}{host}:{pid}:{pid + 900} [{dev}] NCCL INFO "
        comm = (
            f"ncclCommInitRankConfig comm 0x{0x55AA00000000 + rank * 0x4000:x} rank {rank} "
            f"nranks {world} cudaDev {dev} nvmlDev {dev} busId {BUSIDS[dev]} "
            "commId 0x8d3b11c4a09e52f7"
        )
        address = f"eth0:10.20.0.{rank // PER_HOST + 1}<0>"
        yield f"{before}{host}:{pid}:{pid} [{dev}] NCCL INFO Bootstrap: Using {address}"
        if rank == 0:
            yield f"{nccl}NCCL version 2.26.2+cuda12.6"
        yield f"{nccl}NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."
        yield (
            f"{nccl}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_4:1/IB [3]mlx5_5:1/IB "
            f"[RO]; OOB {address}"
        )
        yield f"{nccl}Using network IB"
        yield f"{nccl}{comm} - Init START"
        for channel in range(4):
            peer = (rank + 1) % world
            way = f"{rank}[{dev}] -> {peer}[{peer % PER_HOST}] via P2P/CUMEM"
            yield f"{nccl}Channel {channel:02d}/0 : {way}"
        yield f"{nccl}Connected all rings, use ring PXN 0 GDR 1"
        yield f"{nccl}{comm} - Init COMPLETE"
        yield (
            before
            + c10(rank, "07:59:41", rng.randrange(10**9), "ProcessGroupNCCL.cpp:4718", "W")
            + f"[PG ID 0 PG GUID 0 Rank {rank}]  using GPU {dev} as device used by this process is "
            "currently unknown. This can potentially cause a hang if this rank to GPU mapping is "
            "incorrect. You can pecify device_id in init_process_group() to force use of a "
            "particular device."
        )


def minute(ranks: list[int], prefix: Prefix, rng: random.Random) -> bytes:
    """One minute of training with placeholders: a line per rank and step, and some noise."""
    lines: list[str] = []
    day, clock, hundreds = DAY_MINUTE.decode(), HOUR_MINUTE.decode(), HUNDREDS.decode()
    for step in range(STEPS_A_MINUTE):
        seconds = step * 60 / STEPS_A_MINUTE
        order = rng.sample(ranks, len(ranks))
        for rank in order:
            when = seconds + rng.random() * 0.2
            stamp = f"{day}:{int(when):02d},{int(when * 1000) % 1000:03d}"
            before = f"{prefix(rank)}[rank{rank}]: {stamp} INFO trainer: "
            lines.append(
                f"{before}step {hundreds}{step:02d}/{TOTAL_STEPS} loss {rng.uniform(1.8, 2.4):.4f} "
                f"grad_norm {rng.uniform(0.2, 0.6):.3f} lr 1.0e-04 "
                f"tokens/s {rng.randrange(17_000, 19_000)} step_ms {rng.uniform(590, 610):.1f}"
            )
            luck = rng.random()
            if luck < 0.004:
                lines.append(f"{before}{rng.choice(NOISE)}")
            elif luck < 0.005:
                origin = c10(
                    rank, f"{clock}:{int(when):02d}", rng.randrange(10**9), "Utils.hpp:136", "W"
                )
                lines.append(
                    f"{prefix(rank)}{origin}Warning: Environment variable NCCL_ASYNC_ERROR_HANDLING"
                    " is deprecated; use TORCH_NCCL_ASYNC_ERROR_HANDLING instead"
                )
    return ("\n".join(lines) + "\n").encode()


def at_minute(block: bytes, number: int) -> bytes:
    """The block with its placeholders filled in for minute `number` of the training."""
    at = BEGIN + timedelta(minutes=number)
    block = block.replace(HUNDREDS, str(number).encode())
    block = block.replace(DAY_MINUTE, at.strftime("%Y-%m-%d %H:%M").encode())
    return block.replace(HOUR_MINUTE, at.strftime("%H:%M").encode())


def body(blocks: list[bytes], steps: int) -> Iterator[bytes]:
    """`steps` steps of training, a minute at a time."""
    minutes, rest = divmod(steps, STEPS_A_MINUTE)
    for number in range(minutes):
        yield at_minute(blocks[number % len(blocks)], number)
    last = at_minute(blocks[minutes % len(blocks)], minutes)
    end = last.index(b" step %d%02d/" % (minutes, rest))
    yield last[: last.rfind(b"\n", 0, end) + 1]


def footer(
    ranks: list[int], missing: int, ended: datetime, prefix: Prefix, rng: random.Random
) -> Iterator[str]:
    """The hang: after the timeout the watchdogs of all ranks but `missing` abort their process."""
    clock = (ended + timedelta(milliseconds=TIMEOUT_MS)).strftime("%H:%M:%S")
    seq = 1_048_577
    for rank in rng.sample(ranks, len(ranks)):
        if rank == missing:
            continue

        def line(number: int, text: str, rank: int = rank) -> str:
            nanos = rng.randrange(10**9)
            return prefix(rank) + c10(rank, clock, nanos, f"ProcessGroupNCCL.cpp:{number}") + text

        group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        caught = (
            f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
            f"OpType=ALLREDUCE, NumelIn=67108864, NumelOut=67108864, Timeout(ms)={TIMEOUT_MS}) "
            f"ran for {TIMEOUT_MS + rng.randrange(10, 900)} milliseconds before timing out."
        )
        yield line(632, caught)
        yield line(
            2271,
            f"{group}  failure detected by watchdog at work sequence id: {seq} PG status: last "
            f"enqueued work: {seq}, last completed work: {seq - 1}",
        )
        yield line(
            684,
            f"[Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous "
            "nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete "
            "data.",
        )
        yield line(
            698,
            f"[Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        )
        yield line(
            1899, f"{group} Process group watchdog thread terminated with exception: {caught}"
        )
        yield (
            prefix(rank) + "terminate called after throwing an instance of 'c10::DistBackendError'"
        )


def launchers(hosts: int, missing: int, ended: datetime) -> Iterator[str]:
    """What the agents say when their workers abort (they write to the console only)."""
    stamp = (ended + timedelta(milliseconds=TIMEOUT_MS + 2000)).strftime("%m%d %H:%M:%S")
    api = "torch/distributed/elastic/multiprocessing/api.py"
    for host in range(hosts):
        if missing // PER_HOST == host:
            pid = 4000 + missing % PER_HOST
            yield f"W{stamp}.118000 3900 {api}:900] Sending process {pid} closing signal SIGTERM"
        local = 0 if missing != host * PER_HOST else 1
        yield (
            f"E{stamp}.731000 3900 {api}:874] failed (exitcode: -6) local_rank: {local} "
            f"(pid: {4000 + local}) of binary: /usr/bin/python3"
        )


def size_of(text: str) -> int:
    """Bytes of "1GiB", "200MB" (binary units throughout) or a plain number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"not a size: {text}")
    return int(float(match[1]) * UNITS[match[2].upper()])


@dataclass(frozen=True)
class Plan:
    """What all files of a job share."""

    world: int
    missing: int
    steps: int
    seed: int

    @property
    def ended(self) -> datetime:
        """When the last step was done: the onset of the hang."""
        return BEGIN + timedelta(minutes=self.steps / STEPS_A_MINUTE)


def write(path: Path, ranks: list[int], plan: Plan) -> int:
    """Write one file with the lines of `ranks`; returns its size in bytes."""
    rng = random.Random(plan.seed + ranks[0])
    prefix = console_prefix if len(ranks) > 1 else file_prefix
    with path.open("wb") as sink:
        for line in header(ranks, plan.world, prefix, rng):
            sink.write(line.encode() + b"\n")
        variants = min(VARIANTS, plan.steps // STEPS_A_MINUTE + 1)
        for block in body([minute(ranks, prefix, rng) for _ in range(variants)], plan.steps):
            sink.write(block)
        for line in footer(ranks, plan.missing, plan.ended, prefix, rng):
            sink.write(line.encode() + b"\n")
        if len(ranks) > 1:
            for line in launchers(-(-plan.world // PER_HOST), plan.missing, plan.ended):
                sink.write(line.encode() + b"\n")
        return sink.tell()


STEP = re.compile(rb"\[default\d\]:\[rank(\d+)\]: .*? step (\d+)/")
CALLS = ("AllGather", "AllReduce", "ReduceScatter")  # of a step


def with_calls(log: Path, out: Path, size: int, ranks: int) -> int:
    """The log with call lines of the first ranks after their steps, up to about `size` bytes."""
    counts: Counter[int] = Counter()
    last = b""  # step, which all ranks take
    left = size
    with log.open("rb") as lines, out.open("wb") as sink:
        for line in lines:
            found = STEP.match(line)
            if left < 0 and found and found[2] != last:
                continue  # the end of the log is what follows the steps
            last = found[2] if found else last
            left -= sink.write(line)
            rank = int(found[1]) if found else ranks
            for op in CALLS if rank < ranks else ():
                left -= sink.write(call(rank, counts[rank], op).encode())
                counts[rank] += 1
        return sink.tell()


def call(rank: int, count: int, op: str) -> str:
    """A call line of the communicator of the init lines."""
    dev = rank % PER_HOST
    return (
        f"[default{dev}]:{host_of(rank)}:{4000 + dev}:{4900 + dev} [{dev}] NCCL INFO {op}: opCount "
        f"{count:x} sendbuff 0x7f51{count & 0xFFF:03x}00000 recvbuff 0x7f5a{count & 0xFFF:03x}00000"
        f" count 67108864 datatype 9 op 0 root 0 comm 0x{0x55AA00000000 + rank * 0x4000:x} "
        f"[nranks=128] stream 0x55d0a0b1c2{dev:02x}\n"
    )


def steps_for(size: int, world: int, prefix: Prefix) -> int:
    """How many steps of `world` ranks fill `size` bytes (beginning and end included)."""
    rng = random.Random(0)
    sample = len(at_minute(minute(list(range(world)), prefix, rng), 500)) / STEPS_A_MINUTE
    ends = [*header(list(range(world)), world, prefix, rng)]
    ends += footer(list(range(world)), -1, BEGIN, prefix, rng)
    return max(1, int((size - sum(map(len, ends))) / sample))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--size", type=size_of, default=size_of("1GiB"), help="of all files")
    parser.add_argument("--ranks", type=int, default=128)
    parser.add_argument("--missing", type=int, default=77, help="the rank that never joins")
    parser.add_argument("--calls", type=int, default=0, help="ranks that print NCCL's call lines")
    parser.add_argument("--seed", type=int, default=0)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, help="one interleaved file")
    where.add_argument("--split", type=Path, help="a folder with one file per rank")
    options = parser.parse_args()
    world = options.ranks
    if not 0 <= options.missing < world:
        parser.error(f"--missing must be below --ranks {world}")
    begin = time.perf_counter()
    steps = steps_for(options.size, world, console_prefix if options.out else file_prefix)
    plan = Plan(world, options.missing, steps, options.seed)
    if options.out:
        written = write(options.out, list(range(world)), plan)
        if options.calls:
            bare = options.out.with_name(f"{options.out.name}.bare")
            options.out.rename(bare)
            written = with_calls(bare, options.out, options.size, options.calls)
            bare.unlink()
    else:
        options.split.mkdir(parents=True, exist_ok=True)
        written = sum(
            write(options.split / f"rank_{rank}.log", [rank], plan) for rank in range(world)
        )
    print(f"{written / 2**20:.1f} MiB in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
