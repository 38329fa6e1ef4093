"""Make NCCL's call lines (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL) of a job that hangs.

64 ranks on 8 hosts, a tensor group a host, data groups across and the world; at the end one rank
stops launching while the others run ahead by a few steps.

    python benchmarks/make_coll.py --size 1GiB --out /tmp/job.log
    python benchmarks/make_coll.py --size 1GiB --split /tmp/job
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from make_log import size_of

PER_HOST = 8
AHEAD = 3  # steps that the others launch after the culprit stopped
# (operation, elements) of a step in the tensor group, the data group and the world.
TENSOR = [("AllGather", 4_194_304), ("AllReduce", 8_388_608), ("ReduceScatter", 4_194_304)] * 4
DATA = [("ReduceScatter", 67_108_864), ("AllGather", 8_388_608)]
WORLD = [("AllReduce", 1)]
BYTES_A_LINE = 207


@dataclass(slots=True)
class Writer:
    """One rank: its communicators by kind and how often each was called."""

    rank: int
    ahead: str
    comms: dict[str, tuple[str, int, str]]
    counts: dict[str, int] = field(default_factory=dict)

    def lines(self, kind: str, calls: list[tuple[str, int]]) -> Iterator[str]:
        """Calls of one communicator."""
        pointer, size, _ = self.comms[kind]
        count = self.counts.get(kind, 0)
        for op, elements in calls:
            yield (
                f"{self.ahead}{op}: opCount {count:x} sendbuff 0x7f51{count & 0xFFF:03x}00000 "
                f"recvbuff 0x7f5a{count & 0xFFF:03x}00000 count {elements} datatype 9 op 0 root 0 "
                f"comm {pointer} [nranks={size}] stream 0x55d0a0b1c2{self.rank % PER_HOST:02x}\n"
            )
            count += 1
        self.counts[kind] = count

    def init(self) -> Iterator[str]:
        """How all communicators come to be."""
        for kind, (pointer, size, identity) in self.comms.items():
            place = self._place(kind, size)
            dev = self.rank % PER_HOST
            said = (
                f"ncclCommInitRankConfig comm {pointer} rank {place} nranks {size} cudaDev {dev} "
                f"nvmlDev {dev} busId {dev + 1:x}a000 commId {identity}"
            )
            yield f"{self.ahead}{said} - Init START\n"
            yield f"{self.ahead}{said} - Init COMPLETE\n"

    def _place(self, kind: str, size: int) -> int:
        if kind == "world":
            return self.rank
        return self.rank % PER_HOST if kind == "tensor" else self.rank // PER_HOST % size

    def step(self) -> Iterator[str]:
        """The calls of one step of training."""
        yield from self.lines("tensor", TENSOR)
        yield from self.lines("data", DATA)
        yield from self.lines("world", WORLD)


def writer(rank: int, world: int) -> Writer:
    host, dev = rank // PER_HOST, rank % PER_HOST
    pid = 41_000 + dev
    base = 0x55D0_0000_0000 + rank * 0x10_0000
    return Writer(
        rank,
        f"gpu-node-{host:02d}:{pid}:{pid + 700} [{dev}] NCCL INFO ",
        {
            "world": (f"0x{base:x}", world, "0x8d3b11c4a09e52f7"),
            "tensor": (f"0x{base + 0x4000:x}", PER_HOST, f"0x7e{host:014x}"),
            "data": (f"0x{base + 0x8000:x}", -(-world // PER_HOST), f"0xda{dev:014x}"),
        },
    )


def text(ranks: list[int], world: int, size: int, culprit: int, seed: int) -> Iterator[str]:
    """The lines of `ranks`, their steps interleaved at random, up to about `size` bytes."""
    rng = random.Random(seed)
    writers = [writer(rank, world) for rank in ranks]
    for one in writers:
        yield from one.init()
    steps = max(1, size // (BYTES_A_LINE * len(ranks) * len(TENSOR + DATA + WORLD)))
    for number in range(steps):
        going = [w for w in writers if w.rank != culprit or number < steps - AHEAD]
        parts = [[*one.step()] for one in going]
        if len(parts) == 1:
            yield from parts[0]
            continue
        # Each rank writes a few lines at a time.
        queues = [iter(part) for part in parts]
        for _ in range(0, len(TENSOR + DATA + WORLD), 3):
            rng.shuffle(queues)
            for queue in queues:
                for _, line in zip(range(3), queue, strict=False):
                    yield line


def write(path: Path, lines: Iterator[str]) -> int:
    with path.open("w") as sink:
        sink.writelines(lines)
        return sink.tell()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--size", type=size_of, default=size_of("1GiB"), help="of all files")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--culprit", type=int, default=27, help="the rank that stops")
    parser.add_argument("--seed", type=int, default=0)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, help="one interleaved file")
    where.add_argument("--split", type=Path, help="a folder with one file per rank")
    options = parser.parse_args()
    world = options.ranks
    begin = time.perf_counter()
    if options.out:
        every = list(range(world))
        lines = text(every, world, options.size, options.culprit, options.seed)
        written = write(options.out, lines)
    else:
        options.split.mkdir(parents=True, exist_ok=True)
        written = 0
        for rank in range(world):
            lines = text([rank], world, options.size // world, options.culprit, options.seed)
            pid = 41_000 + rank % PER_HOST
            name = f"gpu-node-{rank // PER_HOST:02d}.{pid}"
            written += write(options.split / f"nccl.{name}.log", lines)
    print(f"{written / 2**20:.1f} MiB in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
