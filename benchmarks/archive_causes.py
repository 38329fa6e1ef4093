"""How jobs fail: the logs of twenty causes for make_archives.py, in the words of real ones.

The wordings are those of the repository's fixtures: torch 2.6's watchdog, torchrun's table, NCCL,
Slurm and the kernel. Each cause is a function that writes the end of a job and says whom to blame.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from make_log import BUSIDS

RANKS = 8


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
        """Ranks on each node."""
        return RANKS // len(self.nodes)

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return 2.0 + self.number % 5 / 2

    @property
    def ended(self) -> datetime:
        """When the last step was done."""
        return self.begin + timedelta(seconds=120 + self.steps * self.step_s)

    def host(self, rank: int) -> str:
        """The node of a rank."""
        return self.nodes[rank // self.per_node]

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return 40_000 + self.number % 500 * 40 + rank

    def others(self) -> list[int]:
        """All ranks but the culprit."""
        return [rank for rank in range(RANKS) if rank != self.culprit]

    def say(self, rank: int, *lines: str) -> None:
        """Lines in the log of a rank."""
        self.files.setdefault(f"{self.host(rank)}/rank_{rank}.log", []).extend(lines)

    def console(self, *lines: str) -> None:
        """Lines of the launchers."""
        self.files.setdefault(f"slurm-{self.number}.out", []).extend(lines)

    def kernel(self, host: str, when: datetime, *lines: str) -> None:
        """Lines in the kernel log of a node."""
        stamp = f"{when:%b} {when.day:2d} {when:%H:%M:%S}"
        rows = [f"{stamp} {host} kernel: {line}" for line in lines]
        self.files.setdefault(f"journal/{host}.txt", []).extend(rows)

    def log(self, rank: int, when: datetime, text: str) -> None:
        """A line of Python's logging."""
        self.say(rank, f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d} INFO {text}")

    def c10(self, rank: int, when: datetime, place: str, text: str, level: str = "E") -> None:
        """A C++ line of torch 2.4 and later."""
        stamp = f"{when.month}{when:%d %H:%M:%S}.{self.rng.randrange(10**9):09d}"
        self.say(rank, f"[rank{rank}]:[{level}{stamp} {place}] {text}")

    def blame(self, *, rank: bool = True) -> None:
        """The culprit's node is to blame, and as a rule the culprit."""
        self.blamed = [self.culprit] if rank else []
        self.hosts = [self.host(self.culprit)]


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
        "holding the GIL inside a CUDA api (for example, CudaEventDestroy), or other "
        "deadlock-prone behaviors.",
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
