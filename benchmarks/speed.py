"""Speed and memory of the whole command: `python benchmarks/speed.py [--size 1GiB]`.

Times `diagnose triage` against `rg -c -f` with the catalog's own patterns on the same generated
log, both pinned to one core, in the same run; the same log as one file per rank; 200 pasted lines
against `python -c "import pandas"`; and the slowest single signature on adversarial lines. Prints
ratios, which hold on noisy machines, beside the seconds. Needs ripgrep.
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
from pathlib import Path

from diagnose.catalog.load import load_catalog
from diagnose.match.compile import compile_matcher, hyperscan_form, patterns_of
from diagnose.match.scanner import LINE_BUDGET_S

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "diagnose", "triage", "--format", "json"]


def main() -> None:
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
    log, split = work / "job.log", work / "ranks"
    make = [sys.executable, str(HERE / "make_log.py"), "--size", size, "--ranks", "128"]
    if not log.exists():
        subprocess.run([*make, "--out", str(log)], check=True)
    if not split.exists():
        subprocess.run([*make, "--split", str(split)], check=True)
    patterns = work / "patterns.txt"
    lines = sorted({hyperscan_form(p.expression) for p in patterns_of(load_catalog().signatures)})
    patterns.write_bytes(b"\n".join(lines) + b"\n")
    limits = ["--regex-size-limit", "2G", "--dfa-size-limit", "2G"]
    ripgrep = ["rg", "-c", "-j1", *limits, "-f", str(patterns)]
    timed([*COMMAND, str(log)])  # compiles the catalog, warms the page cache
    for name, target in (("one file", log), ("128 files", split)):
        ours, memory = best([*COMMAND, str(target)], rounds)
        theirs, _ = best([*ripgrep, str(target)], rounds)
        mib = sum(f.stat().st_size for f in ([log] if target == log else split.iterdir())) / 2**20
        print(
            f"{name}: {mib:,.0f} MiB, diagnose {ours:.2f} s ({mib / ours:,.0f} MiB/s), "
            f"rg {theirs:.2f} s, ratio {ours / theirs:.2f} (target <= 0.8), "
            f"peak {memory:.0f} MiB (target <= 400)"
        )


def small(work: Path, rounds: int) -> None:
    log = (work / "job.log").read_bytes()[:40_000_000].splitlines()[:150]
    tail = (work / "job.log").open("rb")
    tail.seek(-40_000, os.SEEK_END)
    paste = work / "paste.log"
    paste.write_bytes(b"\n".join([*log, *tail.read().splitlines()[-50:]]))
    ours, _ = best([*COMMAND, str(paste)], rounds)
    pandas, _ = best([sys.executable, "-c", "import pandas"], rounds)
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


def best(command: list[str], rounds: int) -> tuple[float, float]:
    results = [timed(command) for _ in range(rounds)]
    return min(seconds for seconds, _ in results), max(memory for _, memory in results)


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds and peak MiB of a command pinned to one core."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, {0})
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(command)} failed")
    return seconds, usage.ru_maxrss / 1024


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
