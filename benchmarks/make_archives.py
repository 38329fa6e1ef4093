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
import csv
import io
import json
import multiprocessing
import os
import random
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from make_log import BUSIDS, NOISE

BEGIN = datetime(2025, 6, 2, tzinfo=UTC)
RANKS = 8
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


@dataclass
class Job:
    """One job while it is written; ranks are global, `per_node` of them on each node."""

    number: int
    cause: str
    user: str
    name: str
    nodes: list[str]
    torch: str
    nccl: str
    begin: datetime
    steps: int
    culprit: int
    rng: random.Random
    files: dict[str, list[str]] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)  # that are to blame, if any
    blamed: list[int] = field(default_factory=list)

    @property
    def per_node(self) -> int:
        return RANKS // len(self.nodes)

    @property
    def step_s(self) -> float:
        return 2.0 + self.number % 5 / 2

    @property
    def ended(self) -> datetime:
        """When the last step was done."""
        return self.begin + timedelta(seconds=120 + self.steps * self.step_s)

    def host(self, rank: int) -> str:
        return self.nodes[rank // self.per_node]

    def pid(self, rank: int) -> int:
        return 40_000 + self.number % 500 * 40 + rank

    def others(self) -> list[int]:
        return [rank for rank in range(RANKS) if rank != self.culprit]

    def say(self, rank: int, *lines: str) -> None:
        self.files.setdefault(f"{self.host(rank)}/rank_{rank}.log", []).extend(lines)

    def console(self, *lines: str) -> None:
        self.files.setdefault(f"slurm-{self.number}.out", []).extend(lines)

    def kernel(self, host: str, when: datetime, *lines: str) -> None:
        stamp = f"{when:%b} {when.day:2d} {when:%H:%M:%S}"
        rows = [f"{stamp} {host} kernel: {line}" for line in lines]
        self.files.setdefault(f"journal/{host}.txt", []).extend(rows)

    def log(self, rank: int, when: datetime, text: str, level: str = "INFO") -> None:
        self.say(rank, f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d} {level} {text}")

    def c10(self, rank: int, when: datetime, place: str, text: str, level: str = "E") -> None:
        """A C++ line of torch 2.4 and later."""
        stamp = f"{when.month}{when:%d %H:%M:%S}.{self.rng.randrange(10**9):09d}"
        self.say(rank, f"[rank{rank}]:[{level}{stamp} {place}] {text}")

    def blame(self, *, rank: bool = True, host: bool = True) -> None:
        self.blamed = [self.culprit] if rank else []
        self.hosts = [self.host(self.culprit)] if host else []


Write = Callable[[Job], None]


@dataclass(frozen=True)
class Cause:
    """A way to fail: the classes that a diagnosis may name, when it strikes, how it is written."""

    classes: tuple[str, ...]
    verdict: str
    write: Write
    trains: bool = True


CAUSES: dict[str, Cause] = {}


def cause(*classes: str, verdict: str = "failed", trains: bool = True) -> Callable[[Write], Write]:
    def register(write: Write) -> Write:
        CAUSES[write.__name__] = Cause(classes, verdict, write, trains)
        return write

    return register


# What several causes have in common.


def watchdogs(
    job: Job, ranks: list[int], onset: datetime, op: str = "ALLREDUCE", numel: int = 67108864
) -> datetime:
    """All of `ranks` wait from `onset` on and abort; the time at which they do."""
    timeout = 1_800_000 if job.number % 2 else 600_000
    seq = 12 if not CAUSES[job.cause].trains else job.steps * 9 + 17
    for rank in ranks:
        ran = timeout + job.rng.randrange(20, 900)
        when = onset + timedelta(milliseconds=ran)
        size = f"NumelIn={numel}, NumelOut={numel}, Timeout(ms)={timeout}"
        caught = (
            f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
            f"OpType={op}, {size}) ran for {ran} milliseconds before timing out."
        )
        group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        job.c10(rank, when, "ProcessGroupNCCL.cpp:629", caught)
        job.c10(
            rank, when, "ProcessGroupNCCL.cpp:2168",
            f"{group}  failure detected by watchdog at work sequence id: {seq} PG status: last "
            f"enqueued work: {seq}, last completed work: {seq - 1}",
        )  # fmt: skip
        job.c10(
            rank, when, "ProcessGroupNCCL.cpp:681",
            f"[Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous "
            "nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete "
            "data.",
        )  # fmt: skip
        job.c10(
            rank, when, "ProcessGroupNCCL.cpp:695",
            f"[Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        )  # fmt: skip
        job.say(rank, "terminate called after throwing an instance of 'c10::DistBackendError'")
    return onset + timedelta(milliseconds=timeout + 1500)


def closed(job: Job, ranks: list[int], when: datetime, peer: str) -> None:
    """`ranks` see the connection to a dead peer close."""
    seq = job.steps * 9 + 17
    for rank in ranks:
        job.c10(
            rank, when + timedelta(milliseconds=900 + rank), "ProcessGroupNCCL.cpp:552",
            f"[Rank {rank}] Collective WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=6553600, "
            "NumelOut=6553600, Timeout(ms)=1800000) raised the following async exception: NCCL "
            "error: remote process exited or there was a network error, NCCL version "
            f"{job.nccl.partition('+')[0]}",
        )  # fmt: skip
        job.say(
            rank,
            "ncclRemoteError: A call failed possibly due to a network error or a remote process "
            "exiting prematurely.",
            "Last error:",
            f"socketProgress: Connection closed by remote peer {peer}<{41000 + rank}>",
        )


def raises(job: Job, rank: int, line: str, *error: str, place: str = "train_step") -> None:
    """A Python traceback on one rank."""
    frames = (
        "Traceback (most recent call last):",
        f'  File "/home/{job.user}/{job.name}/train.py", line 212, in <module>',
        "    main()",
        f'  File "/home/{job.user}/{job.name}/train.py", line 168, in {place}',
        f"    {line}",
        *error,
    )
    job.say(rank, *(f"[rank{rank}]: {frame}" for frame in frames))


def torchrun(job: Job, first: int, code: int, when: datetime) -> None:
    """The agent of the node whose rank `first` ended with `code`; the others were ended by it."""
    node = first // job.per_node
    stamp = f"{when:%m%d %H:%M:%S}"
    api = "torch/distributed/elastic/multiprocessing/api.py"
    agent = job.pid(0) - 10 + node
    for rank in range(node * job.per_node, (node + 1) * job.per_node):
        if rank != first:
            line = f"Sending process {job.pid(rank)} closing signal SIGTERM"
            job.console(f"W{stamp}.104000 {agent} {api}:897] {line}")
    local = first % job.per_node
    signal = {-9: "SIGKILL", -6: "SIGABRT", -11: "SIGSEGV"}.get(code)
    trace = (
        f"Signal {-code} ({signal}) received by PID {job.pid(first)}"
        if signal
        else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    )
    job.console(
        f"E{stamp}.731000 {agent} {api}:869] failed (exitcode: {code}) local_rank: {local} "
        f"(pid: {job.pid(first)}) of binary: /opt/venv/bin/python3",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
        "  <NO_OTHER_FAILURES>",
        "-" * 60,
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : {when:%Y-%m-%d_%H:%M:%S}",
        f"  host      : {job.host(first)}",
        f"  rank      : {first} (local_rank: {local})",
        f"  exitcode  : {code} (pid: {job.pid(first)}) {f' ({signal})' if signal else ''}",
        "  error_file: <N/A>",
        f"  traceback : {trace}",
        "=" * 60,
        f"srun: error: {job.host(first)}: task {node}: Exited with exit code 1",
    )


def dies(job: Job, code: int, when: datetime) -> None:
    """The culprit's process ended; its peers notice."""
    job.blame()
    closed(job, job.others(), when, job.host(job.culprit))
    torchrun(job, job.culprit, code, when + timedelta(seconds=2))


def hangs(job: Job, onset: datetime, op: str = "ALLREDUCE", numel: int = 67108864) -> None:
    """All but the culprit time out, and the agents end the job."""
    job.blame()
    when = watchdogs(job, job.others(), onset, op, numel)
    torchrun(job, job.others()[0], -6, when)


# The causes.


@cause("none", verdict="healthy")
def healthy(job: Job) -> None:
    for rank in range(RANKS):
        job.log(rank, job.ended, "trainer: evaluation done, loss 1.8812")
        job.log(rank, job.ended + timedelta(seconds=9), "trainer: Training completed.")
    job.console(f"{job.ended:%Y-%m-%d %H:%M:%S} launch: all workers finished successfully")


@cause("desync.missing_rank", verdict="hung")
def missing_rank(job: Job) -> None:
    hangs(job, job.ended)


@cause("crash.gpu_oom")
def gpu_oom(job: Job) -> None:
    pid, device = job.pid(job.culprit), job.culprit % job.per_node
    raises(
        job, job.culprit, "loss.backward()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU "
        f"{device} has a total capacity of 79.10 GiB of which 1.17 GiB is free. Process {pid} has "
        "77.92 GiB memory in use. Of the allocated memory 73.81 GiB is allocated by PyTorch, and "
        "2.06 GiB is reserved by PyTorch but unallocated.",
    )  # fmt: skip
    dies(job, 1, job.ended)


@cause("crash.host_oom")
def host_oom(job: Job) -> None:
    pid, host = job.pid(job.culprit), job.host(job.culprit)
    job.kernel(
        host,
        job.ended,
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"Out of memory: Killed process {pid} (python3) total-vm:148223104kB, anon-rss:61231232kB, "
        "file-rss:212992kB, shmem-rss:8388608kB, UID:1000 pgtables:131072kB oom_score_adj:0",
        f"oom_reaper: reaped process {pid} (python3), now anon-rss:0kB, file-rss:0kB",
    )
    dies(job, -9, job.ended)


@cause("crash.killed")
def killed(job: Job) -> None:
    dies(job, -9, job.ended)


@cause("crash.exception")
def exception(job: Job) -> None:
    kinds = (
        ('labels = batch["labels"]', "KeyError: 'labels'"),
        ("x = x.view(batch, heads, -1)", "RuntimeError: shape '[16, 32, -1]' is invalid for input "
         "of size 393215"),
        ("scale = 1 / tokens.sum()", "ZeroDivisionError: division by zero"),
    )  # fmt: skip
    raises(job, job.culprit, *kinds[job.number % len(kinds)])
    dies(job, 1, job.ended)


@cause("crash.native")
def segfault(job: Job) -> None:
    job.say(job.culprit, "Fatal Python error: Segmentation fault", "")
    dies(job, -11, job.ended)


@cause("crash.cuda_error")
def illegal_access(job: Job) -> None:
    raises(
        job, job.culprit, "loss = model(batch).loss",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "CUDA kernel errors might be asynchronously reported at some other API call, so the "
        "stacktrace below might be incorrect.",
    )  # fmt: skip
    dies(job, 1, job.ended)


def _lost_gpu(job: Job, *lines: str) -> None:
    bus = f"0000:{BUSIDS[job.culprit % job.per_node][:-3]}:00"
    pid = str(job.pid(job.culprit))
    rows = [line.replace("BUS", bus).replace("PID", pid) for line in lines]
    job.kernel(job.host(job.culprit), job.ended, *rows)
    hangs(job, job.ended)


@cause("hw.gpu", verdict="hung")
def xid79(job: Job) -> None:
    _lost_gpu(
        job,
        "NVRM: Xid (PCI:BUS): 79, pid=PID, name=python3, GPU has fallen off the bus.",
        "NVRM: GPU BUS.0: GPU has fallen off the bus.",
    )


@cause("hw.gpu", verdict="hung")
def ecc(job: Job) -> None:
    _lost_gpu(
        job,
        "NVRM: Xid (PCI:BUS): 48, pid=PID, name=python3, DBE (double bit error) ECC Error",
        "NVRM: Xid (PCI:BUS): 45, pid=PID, name=python3, Ch 00000008",
    )


@cause("hw.node")
def node_failure(job: Job) -> None:
    job.blame(rank=False)
    host, when = job.host(job.culprit), f"{job.ended + timedelta(seconds=40):%Y-%m-%dT%H:%M:%S}"
    first = next((node for node in job.nodes if node != host), host)
    why = f"CANCELLED AT {when} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
    job.console(
        f"srun: error: Node failure on {host}",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        f"slurmstepd: error: *** STEP {job.number}.0 ON {first} {why}",
        f"slurmstepd: error: *** JOB {job.number} ON {first} {why}",
    )


@cause("desync.mismatch", verdict="hung")
def mismatch(job: Job) -> None:
    hangs(job, job.ended)
    watchdogs(job, [job.culprit], job.ended, "BROADCAST", 56623104)


@cause("desync.uneven_work", verdict="hung")
def uneven(job: Job) -> None:
    job.log(job.culprit, job.ended, f"trainer: epoch 0 done, {job.steps - 16} batches")
    job.log(job.culprit, job.ended, "trainer: finished")
    job.c10(
        job.culprit, job.ended, "ProcessGroupNCCL.cpp:1496",
        "Warning: WARNING: destroy_process_group() was not called before program exit, which can "
        "leak resources. For more info, please see "
        "https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())", "W",
    )  # fmt: skip
    hangs(job, job.ended)


@cause("data.loader")
def loader(job: Job) -> None:
    worker = job.pid(job.culprit) + 8000
    raises(
        job, job.culprit, "for images, targets in loader:",
        f"RuntimeError: DataLoader worker (pid {worker}) is killed by signal: Aborted. ",
        place="train_epoch",
    )  # fmt: skip
    dies(job, 1, job.ended)


@cause("data.preparation", verdict="hung", trains=False)
def tokenizing(job: Job) -> None:
    job.culprit = 0
    onset = job.begin + timedelta(seconds=90)
    total = 1_820_331
    bars = [f"Running tokenizer on dataset (num_proc=16):   0%|          | 0/{total} [00:00<?]"]
    for minute in range(1, 45):
        done = minute * 40_000
        bars.append(
            f"Running tokenizer on dataset (num_proc=16):  {done * 100 // total:2d}%|█         | "
            f"{done}/{total} [{minute:02d}:00<{45 - minute:02d}:12, 666.67 examples/s]"
        )
    job.say(0, "\r".join(bars))
    hangs(job, onset, numel=1)


@cause("slow.checkpoint", verdict="hung")
def save_stall(job: Job) -> None:
    job.culprit = 0
    path = f"/ckpt/{job.name}/checkpoint-{job.steps}"
    job.log(0, job.ended, f"trainer: Saving model checkpoint to {path}")
    hangs(job, job.ended + timedelta(seconds=2), "_ALLGATHER_BASE", 176160768)


@cause("slow.model_load", verdict="hung", trains=False)
def load_stall(job: Job) -> None:
    job.culprit = 0
    for rank in range(RANKS):
        last, each = (11, 162) if rank == 0 else (30, 3)
        bars = [
            f"Loading checkpoint shards: {n * 100 // 30:3d}%|█         | {n}/30 "
            f"[{n * each // 60:02d}:{n * each % 60:02d}<30:00, {each}.00s/it]"
            for n in range(last + 1)
        ]
        job.say(rank, "\r".join(bars))
    hangs(job, job.begin + timedelta(seconds=100), numel=1)


@cause("slow.storage", "slow.checkpoint", verdict="hung")
def nfs(job: Job) -> None:
    host, path = job.host(job.culprit), f"/nfs/ckpt/{job.name}/global_step{job.steps}"
    for rank in range(RANKS):
        part = f"{path}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        engine = "torch_checkpoint_engine: [Torch]"
        job.log(rank, job.ended, f"{engine} Saving {part}...")
        if rank != job.culprit:
            job.log(rank, job.ended + timedelta(seconds=36), f"{engine} Saved {part}.")
    job.kernel(
        host, job.ended + timedelta(seconds=30),
        "nfs: server filer01 not responding, still trying",
        f"INFO: task python3:{job.pid(job.culprit)} blocked for more than 120 seconds.",
        f"task:python3         state:D stack:    0 pid: {job.pid(job.culprit)} ppid:  7700",
        " nfs_wb_all+0x27/0xf0 [nfs]",
    )  # fmt: skip
    hangs(job, job.ended + timedelta(seconds=37), numel=1)


@cause("stall.host", verdict="hung")
def stuck_gil(job: Job) -> None:
    job.blame()
    when = job.ended + timedelta(seconds=480)
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {job.culprit}]"
    job.c10(
        job.culprit, when, "ProcessGroupNCCL.cpp:1685",
        f"{group} ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in "
        "monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., "
        "CudaEventDestroy) hang blocking the watchdog, and could be triggered by another thread "
        "holding the GIL inside a CUDA api (for example, CudaEventDestroy), or other deadlock-prone "
        "behaviors.",
    )  # fmt: skip
    job.c10(
        job.culprit, when, "ProcessGroupNCCL.cpp:1551",
        "Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
    )  # fmt: skip
    job.c10(
        job.culprit, when + timedelta(seconds=60), "ProcessGroupNCCL.cpp:1748",
        f"{group} Terminating the process after attempting to dump debug info, due to "
        "ProcessGroupNCCL watchdog hang.", "F",
    )  # fmt: skip
    torchrun(job, job.culprit, -6, when + timedelta(seconds=62))


@cause("checkpoint.corrupt", trains=False)
def corrupt(job: Job) -> None:
    path = f"/ckpt/{job.name}/step-12000/rank_{job.culprit}.pt"
    for rank in range(RANKS):
        job.log(rank, job.begin + timedelta(seconds=95), f"trainer: Resuming from {path[:-9]}")
    raises(
        job, job.culprit, "state = torch.load(path, map_location='cpu', mmap=True)",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central "
        "directory", place="load",
    )  # fmt: skip
    # A file that is broken says nothing of the host which reads it.
    dies(job, 1, job.begin + timedelta(seconds=99))


@cause("net.shm", trains=False)
def shm_full(job: Job) -> None:
    rank = job.culprit
    pid, device = job.pid(rank), rank % job.per_node
    segment = f"/dev/shm/nccl-{job.rng.randrange(16**6):06x}"
    warn = f"{job.host(rank)}:{pid}:{pid + 900} [{device}] misc/shmutils.cc"
    job.say(
        rank, "",
        f"{warn}:72 NCCL WARN Error: failed to extend {segment} to 9637892 bytes, error: No space "
        "left on device (28)", "",
        f"{warn}:113 NCCL WARN Error while creating shared memory segment {segment} "
        "(size 9637888)",
    )  # fmt: skip
    raises(
        job, rank, "model = DDP(model, device_ids=[local_rank])",
        "torch.distributed.DistBackendError: NCCL error in: "
        "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled system error (run "
        f"with NCCL_DEBUG=INFO for details), NCCL version {job.nccl.partition('+')[0]}",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or "
        "device error. ",
        "Last error:",
        f"Error while creating shared memory segment {segment} (size 9637888)",
    )  # fmt: skip
    job.blame()
    torchrun(job, rank, 1, job.begin + timedelta(seconds=90))


@cause("scheduler.limit")
def time_limit(job: Job) -> None:
    when = f"{job.ended:%Y-%m-%dT%H:%M:%S} DUE TO TIME LIMIT ***"
    job.console(
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        f"slurmstepd: error: *** STEP {job.number}.0 ON {job.nodes[0]} CANCELLED AT {when}",
        f"slurmstepd: error: *** JOB {job.number} ON {job.nodes[0]} CANCELLED AT {when}",
    )


@cause("scheduler.preempted")
def preempted(job: Job) -> None:
    when = f"{job.ended:%Y-%m-%dT%H:%M:%S} DUE TO PREEMPTION ***"
    job.console(
        f"slurmstepd: error: *** JOB {job.number} ON {job.nodes[0]} CANCELLED AT {when}",
        "srun: Job step aborted: Waiting up to 62 seconds for job step to finish.",
        f"slurmstepd: error: *** STEP {job.number}.0 ON {job.nodes[0]} CANCELLED AT {when}",
    )


# What all jobs have in common.


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
    short = {job.culprit: 16} if job.cause == "uneven" else {}
    rng, begin = job.rng, job.begin + timedelta(seconds=120)
    for step in range(job.steps):
        when = begin + timedelta(seconds=step * job.step_s)
        stamp = f"{when:%Y-%m-%d %H:%M:%S},"
        head = f" INFO trainer: step {step}/{job.steps if job.cause == 'healthy' else 100_000} "
        for rank, log in enumerate(logs):
            if step >= job.steps - short.get(rank, 0):
                continue
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
    """The archive's bytes; `form` is a suffix."""
    sink = io.BytesIO()
    if form == "zip":
        date = datetime.fromtimestamp(mtime, UTC).timetuple()[:6]
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in files.items():
                info = zipfile.ZipInfo(name, date)
                info.compress_type = zipfile.ZIP_DEFLATED
                zipped.writestr(info, data)
        return sink.getvalue()
    mode = "w" if form == "tar" else f"w:{form.removeprefix('tar.')}"
    with tarfile.open(fileobj=sink, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), int(mtime)
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


@dataclass(frozen=True)
class Writer:
    """Writes one job after the other; sent to the worker processes."""

    out: Path
    form: str
    tails: list[str]

    def __call__(self, job: Job) -> dict[str, str]:
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
    parser.add_argument(
        "--form", default="tar.gz", choices=("tar.gz", "tar.bz2", "tar.xz", "tar", "zip", "folder")
    )
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
