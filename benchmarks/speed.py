"""Speed and memory of the whole command: `python benchmarks/speed.py [--size 1GiB]`.

Times `diagnose triage` against `rg -j1 -c -f` with 60 fixed patterns, as people grep a log for them
(and with `-F`, which few know of), on the same generated log in the same run: without and with
NCCL's call lines, on one core and on two, and as one file per rank; 200 pasted lines against
`python -c "import pandas"`; and the slowest single signature on adversarial lines. Prints ratios,
which hold on noisy machines, beside the seconds of CPU time. Needs ripgrep.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from as_used import keep_byte_code
from make_log import PER_HOST, host_of

from diagnose.catalog.load import load_catalog
from diagnose.match.compile import compile_matcher
from diagnose.match.scanner import LINE_BUDGET_S

HERE = Path(__file__).parent
STEP = re.compile(rb"\[default\d\]:\[rank(\d+)\]: .*? step (\d+)/")
CALLS = ("AllGather", "AllReduce", "ReduceScatter")
# What people grep the log of a failed job for.
FIXED = (
    "CUDA out of memory",
    "NCCL error",
    "Watchdog caught collective operation timeout",
    "Segmentation fault",
    "Traceback (most recent call last)",
    "RuntimeError:",
    "ChildFailedError",
    "exitcode:",
    "SIGTERM",
    "SIGKILL",
    "Killed",
    "oom-kill",
    "Out of memory",
    "uncorrectable ECC",
    "NVRM: Xid",
    "illegal memory access",
    "device-side assert",
    "CUBLAS_STATUS",
    "CUDNN_STATUS",
    "ncclSystemError",
    "ncclInternalError",
    "ncclRemoteError",
    "Connection refused",
    "Connection reset by peer",
    "Connection timed out",
    "No route to host",
    "Broken pipe",
    "Address already in use",
    "Bus error",
    "No space left on device",
    "Disk quota exceeded",
    "Stale file handle",
    "Input/output error",
    "Permission denied",
    "DUE TO TIME LIMIT",
    "DUE TO PREEMPTION",
    "slurmstepd: error",
    "srun: error",
    "NODE_FAIL",
    "heartbeat",
    "Heartbeat monitor timed out",
    "terminate called after",
    "core dumped",
    "double free",
    "ImportError",
    "ModuleNotFoundError",
    "ValueError",
    "KeyError",
    "AssertionError",
    "nan loss",
    "loss is NaN",
    "DataLoader worker",
    "store->get",
    "TCPStore",
    "RendezvousTimeoutError",
    "wait timeout after",
    "last enqueued work",
    "NVLink",
    "IBV_WC_RETRY_EXC_ERR",
    "Fabric Manager",
)
COMMAND = [sys.executable, "-m", "diagnose", "triage", "--format", "json"]


def main() -> None:
    keep_byte_code()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--work", type=Path, default=None, help="keep the generated logs here")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="diagnose-speed-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        big(work, options.size, options.rounds)
        small(work, options.rounds * 3)
        slowest_signature()
    finally:
        if options.work is None:
            shutil.rmtree(work)


def big(work: Path, size: str, rounds: int) -> None:
    log, split, calls = work / "job.log", work / "ranks", work / "calls.log"
    make = [sys.executable, str(HERE / "make_log.py"), "--size", size, "--ranks", "128"]
    if not log.exists():
        subprocess.run([*make, "--out", str(log)], check=True)
    if not split.exists():
        subprocess.run([*make, "--split", str(split)], check=True)
    if not calls.exists():
        with_calls(log, calls, log.stat().st_size)
    patterns = work / "patterns.txt"
    patterns.write_text("\n".join(FIXED) + "\n")
    ripgrep = ["rg", "-c", "-j1", "-f", str(patterns)]
    timed([*COMMAND, str(log)])  # compiles the catalog, warms the page cache
    for name, target in (("one file", log), ("with call lines", calls), ("128 files", split)):
        one = best([*COMMAND, "--workers", "1", str(target)], rounds)
        two = best([*COMMAND, "--workers", "2", str(target)], rounds, cores={0, 1})
        theirs = best([*ripgrep, str(target)], rounds)
        fixed = best([*ripgrep, "-F", str(target)], rounds)
        files = [*split.iterdir()] if target == split else [target]
        mib = sum(file.stat().st_size for file in files) / 2**20
        print(
            f"{name}: {mib:,.0f} MiB, diagnose {one.cpu:.2f} s of CPU time "
            f"({mib / one.cpu:,.0f} MiB/s), rg {theirs.cpu:.2f} s, "
            f"ratio {one.cpu / theirs.cpu:.2f} (with -F {one.cpu / fixed.cpu:.2f}); "
            f"2 workers {one.wall / two.wall:.2f} x faster ({two.wall:.2f} s); "
            f"peak {max(one.mib, two.mib):.0f} MiB (target <= 200)"
        )


def with_calls(log: Path, out: Path, size: int) -> None:
    """The log with NCCL's call lines behind each step of a rank, up to about `size` bytes."""
    counts: Counter[int] = Counter()
    last = b""  # step, which all ranks take
    with log.open("rb") as lines, out.open("wb") as sink:
        left = size
        for line in lines:
            found = STEP.match(line)
            if left < 0 and found and found[2] != last:
                continue  # the end of the log is what follows the steps
            last = found[2] if found else last
            left -= sink.write(line)
            for op in CALLS if found else ():
                rank = int(found[1])
                left -= sink.write(call(rank, counts[rank], op).encode())
                counts[rank] += 1


def call(rank: int, count: int, op: str) -> str:
    """A call line of the communicator of `make_log`'s init lines."""
    dev = rank % PER_HOST
    return (
        f"[default{dev}]:{host_of(rank)}:{4000 + dev}:{4900 + dev} [{dev}] NCCL INFO {op}: opCount "
        f"{count:x} sendbuff 0x7f51{count & 0xFFF:03x}00000 recvbuff 0x7f5a{count & 0xFFF:03x}00000"
        f" count 67108864 datatype 9 op 0 root 0 comm 0x{0x55AA00000000 + rank * 0x4000:x} "
        f"[nranks=128] stream 0x55d0a0b1c2{dev:02x}\n"
    )


def small(work: Path, rounds: int) -> None:
    log = (work / "job.log").read_bytes()[:40_000_000].splitlines()[:150]
    tail = (work / "job.log").open("rb")
    tail.seek(-40_000, os.SEEK_END)
    paste = work / "paste.log"
    paste.write_bytes(b"\n".join([*log, *tail.read().splitlines()[-50:]]))
    ours = best([*COMMAND, str(paste)], rounds).wall
    pandas = best([sys.executable, "-c", "import pandas"], rounds).wall
    print(
        f"200 pasted lines: diagnose {ours:.3f} s, import pandas {pandas:.3f} s, "
        f"ratio {ours / pandas:.2f} (target <= 2)"
    )


def slowest_signature() -> None:
    """The worst time of one signature, with all its patterns, on one line made to hurt."""
    matcher = compile_matcher(load_catalog())
    numbers: dict[int, list[int]] = {}
    for number, pattern in enumerate(matcher.patterns):
        numbers.setdefault(pattern.signature, []).append(number)
    worst = (0.0, "")
    for index, signature in enumerate(matcher.signatures):
        for line in adversarial(signature.match[0]):
            start = time.perf_counter()
            for number in numbers[index]:
                matcher.confirm(number, line, line)
                if time.perf_counter() - start > LINE_BUDGET_S:
                    break  # as the scan does
            worst = max(worst, (time.perf_counter() - start, signature.id))
    print(f"slowest signature: {worst[1]} {worst[0] * 1000:.1f} ms on one line (target <= 50)")


def adversarial(expression: str) -> list[str]:
    """Lines of 4 KiB that make a backtracking matcher work: repeats of what a pattern loves."""
    words = [
        w for w in "".join(c if c.isalnum() else " " for c in expression).split() if len(w) > 3
    ]
    head = " ".join(words[:3])
    bodies = [
        "1" * 4096,
        " " * 4096,
        "a" * 4096,
        "1, " * 1365,
        "[1" * 2048,
        "(" * 4096,
        "0.0 " * 1024,
    ]
    return [f"{head} {body}"[:4096] for body in bodies] + [(head + " ") * (4096 // (len(head) + 1))]


@dataclass(frozen=True)
class Cost:
    """Seconds of the clock and of CPU time of all processes, and the peak of the largest in MiB."""

    wall: float
    cpu: float
    mib: float


def best(command: list[str], rounds: int, cores: Set[int] = frozenset({0})) -> Cost:
    results = [timed(command, cores) for _ in range(rounds)]
    return Cost(
        min(one.wall for one in results),
        min(one.cpu for one in results),
        max(one.mib for one in results),
    )


def timed(command: list[str], cores: Set[int] = frozenset({0})) -> Cost:
    """What a command costs that is pinned to these cores."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(command)} failed")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
