"""Speed and memory of the whole command: `python benchmarks/speed.py [--public FOLDER]`.

Times `diagnose triage` on three generated logs (`make_log.py`; the same where 16 of 128 ranks print
NCCL's call lines; `make_public.py` of the whole logs in a folder), one where all ranks print them
and one in a file per rank. Against `rg -j1 -c -f` with 60 words, as people grep a log for them, and
with `-F`, which few know of; on one core, and on two against one. Then a scan of archives against
`tar xzO | rg` over each, 200 pasted lines against `python -c "import pandas"`, and the slowest
single signature on adversarial lines.

What is compared takes turns, `--rounds` times, and the least of each counts: other work on the
machine only ever adds. Prints ratios of CPU time, which hold on noisy machines, beside those of the
clock. Needs ripgrep.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from as_used import Cost, keep_byte_code, least, timed

from diagnose.catalog.load import load_catalog
from diagnose.match.compile import compile_matcher
from diagnose.match.scanner import LINE_BUDGET_S

HERE = Path(__file__).parent
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
MOST_MIB = 150  # of the largest process


def main() -> None:
    keep_byte_code()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--public", type=Path, help="a folder with whole public logs")
    parser.add_argument("--archives", type=int, default=2000, help="0: no scan of archives")
    parser.add_argument("--work", type=Path, default=None, help="keep the generated logs here")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="diagnose-speed-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        logs(work, options.size, options.public, options.rounds)
        if options.archives:
            archives(work, options.archives, options.rounds)
        small(work, options.rounds * 3)
        slowest_signature()
    finally:
        if options.work is None:
            shutil.rmtree(work)


def logs(work: Path, size: str, public: Path | None, rounds: int) -> None:
    words = work / "words.txt"
    words.write_text("\n".join(FIXED) + "\n")
    job = ["make_log.py", "--ranks", "128"]
    made = {
        "ours": (work / "ours.log", [*job, "--out"], 1.0),
        "few ranks print calls": (work / "few.log", [*job, "--calls", "16", "--out"], 1.2),
        "all ranks print calls": (work / "calls.log", [*job, "--calls", "128", "--out"], 1.2),
        "128 files": (work / "ranks", [*job, "--split"], 1.0),
    }
    if public is not None:
        make = ["make_public.py", "--of", str(public), "--out"]
        made["public logs repeated"] = (work / "public.log", make, 1.0)
    for number, (name, (target, (script, *rest), most)) in enumerate(made.items()):
        if not target.exists():
            generate(script, *rest, str(target), "--size", size)
        if not number:
            timed([*COMMAND, str(target)])  # keeps the byte code
        log(name, target, words, most, rounds)


def log(name: str, target: Path, words: Path, most: float, rounds: int) -> None:
    """Print a line for a log or a folder of logs."""
    ripgrep = ["rg", "-c", "-j1", "-f", str(words), str(target)]
    ours = [*COMMAND, str(target), "--workers"]
    commands = [[*ours, "1"], ripgrep, [*ripgrep, "-F"], [*ours, "2"]]
    one, theirs, fixed, two = turns(commands, rounds, cores=[1, 1, 1, 2])
    files = [*target.iterdir()] if target.is_dir() else [target]
    mib = sum(file.stat().st_size for file in files) / 2**20
    print(
        f"{name}: {mib:,.0f} MiB, {one.cpu:.2f} s CPU ({mib / one.cpu:,.0f} MiB/s), rg "
        f"{theirs.cpu:.2f} s; ratio {one.cpu / theirs.cpu:.2f} of CPU, "
        f"{one.wall / theirs.wall:.2f} by the clock (at most {most}); with -F "
        f"{one.cpu / fixed.cpu:.2f}; 2 cores {one.wall / two.wall:.2f} x faster (at least 1.7), "
        f"with {two.cpu / one.cpu:.2f} of the CPU; "
        f"peak {max(one.peak, two.peak):.0f} MiB (at most {MOST_MIB})",
        flush=True,
    )


def archives(work: Path, count: int, rounds: int) -> None:
    """Print a line for a scan of archives by two workers."""
    fleet, out, words = work / "fleet", work / "results", str(work / "words.txt")
    if not fleet.exists():
        generate("make_archives.py", str(fleet), "--count", str(count), "--kib", "160")
    packed = sorted(map(str, fleet.glob("*.tar.gz")))[:count]
    scan = [sys.executable, "-m", "diagnose", "scan", *packed, "-o", str(out), "--workers", "2"]
    commands = [["sh", "-c", 'rm -rf "$0"; exec "$@"', str(out), *scan]]
    commands += [["sh", "-c", LOOP, how, words, *packed] for how in ("", "-F")]
    ours, theirs, fixed = turns(commands, rounds, cores=[2, 2, 2])
    print(
        f"{len(packed):,} archives: scan {ours.cpu:.1f} s CPU, tar | rg {theirs.cpu:.1f} s, ratio "
        f"{ours.cpu / theirs.cpu:.2f} (at most 1.6), with -F {ours.cpu / fixed.cpu:.2f}",
        flush=True,
    )


# rg exits with 1 where it finds nothing.
LOOP = (
    'f=$1; shift; for a in "$@"; do tar xzOf "$a" | rg -c $0 -f "$f" >/dev/null;'
    " [ $? -le 1 ] || exit 2; done"
)


def small(work: Path, rounds: int) -> None:
    log = (work / "ours.log").open("rb").read(40_000_000).splitlines()[:150]
    tail = (work / "ours.log").open("rb")
    tail.seek(-40_000, os.SEEK_END)
    paste = work / "paste.log"
    paste.write_bytes(b"\n".join([*log, *tail.read().splitlines()[-50:]]))
    ours, pandas = turns([[*COMMAND, str(paste)], [sys.executable, "-c", "import pandas"]], rounds)
    print(
        f"200 pasted lines: diagnose {ours.wall:.3f} s, import pandas {pandas.wall:.3f} s, "
        f"ratio {ours.wall / pandas.wall:.2f} (at most 0.6)"
    )


def slowest_signature() -> None:
    """The worst time of one signature, with all its patterns, on one line made to hurt."""
    matcher = compile_matcher(load_catalog())
    numbers: dict[int, list[int]] = {}
    for number, pattern in enumerate(matcher.patterns):
        numbers.setdefault(pattern.signature, []).append(number)
    worst = (0.0, "")
    for index, signature in enumerate(matcher.signatures):
        for line in adversarial(signature.match[0]) if signature.match else ():
            start = time.perf_counter()
            for number in numbers[index]:
                matcher.confirm(number, line, line)
                if time.perf_counter() - start > LINE_BUDGET_S:
                    break  # as the scan does
            worst = max(worst, (time.perf_counter() - start, signature.id))
    print(f"slowest signature: {worst[1]} {worst[0] * 1000:.1f} ms on one line (at most 50)")


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


def turns(
    commands: Sequence[Sequence[str]], rounds: int, cores: Sequence[int] | None = None
) -> list[Cost]:
    """What commands cost that take turns; `cores` is on how many each may run, else on one."""
    many = cores or [1] * len(commands)
    results = [
        [timed(command, own) for command, own in zip(commands, many, strict=True)]
        for _ in range(rounds)
    ]
    return [least(costs) for costs in zip(*results, strict=True)]


def generate(script: str, *options: str) -> None:
    subprocess.run([sys.executable, str(HERE / script), *options], check=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
