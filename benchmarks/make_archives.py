"""Make a fleet of job archives with known truth: what failed, which rank, which host.

    python benchmarks/make_archives.py /tmp/fleet                  # 2,000 tar.gz of about 200 kB
    python benchmarks/make_archives.py /tmp/fleet --count 100 --kib 50 --form zip

Beside the archives lie truth.csv (a row per archive) and truth.json (the fleet: bad and busy nodes,
which cause came with which version). Each job has 8 ranks on one to four of 200 nodes. Twenty
causes take turns with healthy jobs. Three nodes are bad: they break most jobs they take part in, by
their hardware. Six are only busy: they see ten times as many jobs, and so more failures than the
bad ones. Illegal memory accesses begin with one torch version, half-way through the weeks.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import io
import json
import lzma
import multiprocessing
import os
import random
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from archive_causes import CAUSES, RANKS, Job
from make_log import BUSIDS, NOISE

BEGIN = datetime(2025, 6, 2, tzinfo=UTC)
NODES = [f"gpu{number:03d}" for number in range(1, 201)]
BAD = {"gpu047": "xid79", "gpu112": "ecc", "gpu163": "node_failure"}
BUSY = ["gpu009", "gpu058", "gpu081", "gpu120", "gpu144", "gpu190"]
BUSY_WEIGHT = 10
BAD_SHARE = 0.7  # of the jobs with a bad node which break by it
HEALTHY_SHARE = 0.15
NEW_TORCH = ("2.7.1+cu128", "2.26.2+cuda12.8")
OLD_TORCH = (("2.4.1+cu124", "2.20.5+cuda12.4"), ("2.6.0+cu124", "2.21.5+cuda12.4"))
USERS = ("alice", "bruno", "chen", "dara", "emil", "fatima")
NAMES = ("llm-pretrain", "vit-large", "sft-7b", "asr-conformer", "diffusion", "rlhf")
TAILS = 4096
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "tar.gz": lambda data: gzip.compress(data, 6, mtime=0),
    "tar.bz2": bz2.compress,
    "tar.xz": lambda data: lzma.compress(data, preset=1),
    "tar": bytes,
}


def start(job: Job) -> None:
    """Versions, NCCL's init lines, and a kernel log of each node with nothing in it."""
    job.console(f"{job.begin:%Y-%m-%d %H:%M:%S} launch: {job.name} on {','.join(job.nodes)}")
    when = job.begin + timedelta(seconds=60)
    for number, node in enumerate(job.nodes):
        at = job.begin - timedelta(minutes=7)
        job.kernel(
            node, at,
            "mlx5_core 0000:1a:00.0: mlx5e_update_carrier: link up",
            f"EDAC MC{number}: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
        )  # fmt: skip
    for rank in range(RANKS):
        dev, host, pid = rank % job.per_node, job.host(rank), job.pid(rank)
        address = f"eth0:10.20.0.{NODES.index(host) + 1}<0>"
        nccl = f"{host}:{pid}:{pid + 900} [{dev}] NCCL INFO "
        comm = (
            f"ncclCommInitRankConfig comm 0x{0x55AA00000000 + rank * 0x4000:x} rank {rank} "
            f"nranks {RANKS} cudaDev {dev} nvmlDev {dev} busId {BUSIDS[dev]} "
            f"commId 0x{job.number * 7919:016x}"
        )
        job.log(rank, job.begin, f"trainer: PyTorch version: {job.torch}")
        job.say(rank, f"{host}:{pid}:{pid} [{dev}] NCCL INFO Bootstrap: Using {address}")
        job.say(rank, f"{host}:{pid}:{pid} [{dev}] NCCL INFO NCCL version {job.nccl}")
        job.say(rank, f"{nccl}Using network IB", f"{nccl}{comm} - Init START")
        if job.cause != "shm_full":
            job.say(rank, f"{nccl}Connected all rings", f"{nccl}{comm} - Init COMPLETE")
        job.log(rank, when, f"trainer: process group ready, world size {RANKS}")


def train(job: Job, tails: list[str]) -> None:
    """A line per rank and step, and now and then some noise."""
    logs = [job.files[f"{job.host(rank)}/rank_{rank}.log"] for rank in range(RANKS)]
    rng, begin = job.rng, job.begin + timedelta(seconds=120)
    for step in range(job.steps):
        when = begin + timedelta(seconds=step * job.step_s)
        stamp = f"{when:%Y-%m-%d %H:%M:%S},"
        head = f" INFO trainer: step {step}/{job.steps if job.cause == 'healthy' else 100_000} "
        for log in logs:
            draw = rng.getrandbits(32)
            log.append(f"{stamp}{draw % 900:03d}{head}{tails[draw % TAILS]}")
            if draw >> 12 < 4000:
                log.append(f"{stamp}{draw % 900:03d} INFO trainer: {NOISE[draw % len(NOISE)]}")


def tails_of(seed: int) -> list[str]:
    """The variable part of the lines of training, rendered once for all."""
    rng = random.Random(seed)
    return [
        f"loss {rng.uniform(1.8, 2.4):.4f} grad_norm {rng.uniform(0.2, 0.6):.3f} lr 1.0e-04 "
        f"tokens/s {rng.randrange(17_000, 19_000)} step_ms {rng.uniform(590, 610):.1f}"
        for _ in range(TAILS)
    ]


def plan(count: int, weeks: int, steps: int, seed: int) -> list[Job]:
    """Who runs when, where, and what happens to it."""
    rng = random.Random(seed)
    weights = [BUSY_WEIGHT if node in BUSY else 2 if node in BAD else 1 for node in NODES]
    kinds = [name for name in CAUSES if name != "healthy"]
    jobs = []
    for index in range(count):
        at = (index + rng.random()) / count
        begin = BEGIN + timedelta(seconds=int(at * weeks * 7 * 86400))
        width = rng.choice((1, 2, 2, 4))
        nodes: list[str] = []
        while len(nodes) < width:
            node = rng.choices(NODES, weights)[0]
            if node not in nodes:
                nodes.append(node)
        torch, nccl = NEW_TORCH if at > 0.5 and rng.random() < at else rng.choice(OLD_TORCH)
        what = "healthy" if rng.random() < HEALTHY_SHARE else rng.choice(kinds)
        while what == "illegal_access" and torch != NEW_TORCH[0]:
            what = rng.choice(kinds)
        culprit = rng.randrange(RANKS)
        bad = [node for node in nodes if node in BAD]
        if bad and rng.random() < BAD_SHARE:
            what = BAD[bad[0]]
            per_node = RANKS // width
            culprit = nodes.index(bad[0]) * per_node + rng.randrange(per_node)
        jobs.append(
            Job(
                410_000 + index * 7, what, rng.choice(USERS), rng.choice(NAMES), nodes, torch,
                nccl, begin, int(steps * rng.uniform(0.8, 1.2)), culprit,
                random.Random(seed * 1_000_003 + index),
            )
        )  # fmt: skip
    return jobs


def render(job: Job, tails: list[str]) -> dict[str, bytes]:
    """The job's files by name; afterwards the job knows whom to blame."""
    start(job)
    if CAUSES[job.cause].trains:
        train(job, tails)
    CAUSES[job.cause].write(job)
    return {name: ("\n".join(lines) + "\n").encode() for name, lines in sorted(job.files.items())}


def pack(files: dict[str, bytes], form: str, mtime: float) -> bytes:
    """The archive's bytes, the same each time; `form` is a suffix."""
    sink = io.BytesIO()
    if form == "zip":
        year, month, day, hour, minute, second, *_ = datetime.fromtimestamp(mtime, UTC).timetuple()
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in files.items():
                info = zipfile.ZipInfo(name, (year, month, day, hour, minute, second))
                info.compress_type = zipfile.ZIP_DEFLATED
                zipped.writestr(info, data)
        return sink.getvalue()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), int(mtime)
            archive.addfile(entry, io.BytesIO(data))
    return COMPRESS[form](sink.getvalue())


@dataclass(frozen=True)
class Writer:
    """Writes one job after the other; sent to the worker processes."""

    out: Path
    form: str
    tails: list[str]

    def __call__(self, job: Job) -> dict[str, str]:
        """Write a job; its row of the truth."""
        files = render(job, self.tails)
        ended = job.ended + timedelta(hours=1)
        name = f"{job.number}_{job.user}_{job.name}"
        if self.form == "folder":
            for member, data in files.items():
                path = self.out / name / member
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                os.utime(path, (ended.timestamp(), ended.timestamp()))
        else:
            name += f".{self.form}"
            (self.out / name).write_bytes(pack(files, self.form, ended.timestamp()))
        how = CAUSES[job.cause]
        return {
            "archive": name,
            "cause": job.cause,
            "verdict": how.verdict,
            "class": "|".join(how.classes),
            "culprit_ranks": " ".join(map(str, job.blamed)),
            "culprit_hosts": " ".join(job.hosts),
            "hosts": " ".join(job.nodes),
            "user": job.user,
            "torch": job.torch,
            "nccl": job.nccl,
            "begin": f"{job.begin:%Y-%m-%dT%H:%M:%S}",
        }


def steps_for(kib: int, form: str, tails: list[str], seed: int) -> int:
    """How many steps fill an archive of `kib` KiB."""
    probe = 200
    job = next(job for job in plan(400, 1, probe, seed) if CAUSES[job.cause].trains)
    job.steps = probe
    size = len(pack(render(job, tails), "tar.gz" if form == "folder" else form, 0))
    return max(20, kib * 1024 * probe // size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--kib", type=int, default=200, help="of an archive whose job has trained")
    parser.add_argument("--weeks", type=int, default=12)
    parser.add_argument("--form", default="tar.gz", choices=(*COMPRESS, "zip", "folder"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    tails = tails_of(options.seed)
    steps = steps_for(options.kib, options.form, tails, options.seed)
    jobs = plan(options.count, options.weeks, steps, options.seed)
    with multiprocessing.Pool() as pool:
        rows = pool.map(Writer(options.out, options.form, tails), jobs, chunksize=8)
    with (options.out / "truth.csv").open("w", newline="") as sink:
        table = csv.DictWriter(sink, rows[0])
        table.writeheader()
        table.writerows(rows)
    fleet = {
        "seed": options.seed,
        "nodes": NODES,
        "bad_nodes": BAD,
        "busy_nodes": BUSY,
        "causes": {name: list(how.classes) for name, how in CAUSES.items()},
        "begins_with": {"illegal_access": NEW_TORCH[0]},
    }
    (options.out / "truth.json").write_text(json.dumps(fleet, indent=1) + "\n")
    size = sum(path.stat().st_size for path in options.out.iterdir() if path.is_file())
    print(f"{len(rows)} jobs, {size / 2**20:.1f} MiB, {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
