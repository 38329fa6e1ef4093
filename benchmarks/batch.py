"""Scan a fleet of archives and compare: with rg over the same archives, one worker with two.

    python benchmarks/batch.py --count 2000                  # makes the fleet of make_archives.py
    python benchmarks/batch.py --fleet /tmp/fleet --jobs 200 # an existing one, its first 200 jobs

rg searches what `tar xzOf` unpacks, once per archive: for the catalog's own patterns (without group
names, which rg refuses), and for a short list of words. rg compiles its patterns anew for each
archive and takes seconds with the whole catalog, so it runs over a sample (`--sample`), one archive
at a time as in the shell loop, and its time is multiplied up to the number of jobs.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from diagnose.batch import executors, run
from diagnose.batch.jobs import JobRef, find_jobs
from diagnose.batch.progress import Tally
from diagnose.batch.results import open_results
from diagnose.batch.work import Options
from diagnose.catalog.load import load_catalog
from diagnose.match.compile import hyperscan_form, patterns_of

HERE = Path(__file__).parent
WORDS = (
    "ERROR", "Error:", "Exception", "Traceback", "NCCL WARN", "Xid", "timeout", "timed out",
    "out of memory", "OutOfMemory", "oom-kill", "SIGKILL", "SIGSEGV", "Segmentation fault",
    "illegal memory access", "Watchdog caught", "No space left", "CANCELLED AT", "not responding",
    "Connection refused",
)  # fmt: skip


def patterns() -> dict[str, list[str]]:
    """Lists of expressions for rg by name."""
    signatures = load_catalog().signatures
    forms = [hyperscan_form(found.expression).decode() for found in patterns_of(signatures)]
    return {"catalog": list(dict.fromkeys(forms)), "20 words": list(WORDS)}


def rg_seconds(archives: Sequence[str], expressions: Sequence[str]) -> float:
    """Seconds of the shell loop for one archive, on average."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(expressions) + "\n")
        file.flush()
        loop = 'f=$1; shift; for a in "$@"; do tar xzOf "$a" | rg -c -f "$f" >/dev/null; done'
        begin = time.perf_counter()
        subprocess.run(["sh", "-c", loop, "sh", file.name, *archives], check=False)
        return (time.perf_counter() - begin) / len(archives)


def scan(refs: Sequence[JobRef], out: Path, workers: int, memory: int) -> tuple[float, float]:
    """Seconds of a whole scan, and the most MiB that a worker held."""
    shutil.rmtree(out, ignore_errors=True)
    begin = time.perf_counter()
    with open_results(out, resume=False) as results:
        run.scan(
            refs, results, executors.local(workers),
            workers=workers, options=Options(memory=memory << 20), progress=Tally(),
        )  # fmt: skip
    seconds = time.perf_counter() - begin
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def accuracy(out: Path, truth: Path) -> str:
    """Shares of jobs with the right class and hosts."""
    told = {row["archive"]: row for row in csv.DictReader(truth.open())}
    rows = pd.read_parquet(out / "jobs.parquet")
    wanted = [told[source.rpartition("/")[2]] for source in rows["source"]]
    classes = [
        found in row["class"].split("|") for found, row in zip(rows["class"], wanted, strict=True)
    ]
    hosts = [
        sorted(found) == sorted(row["culprit_hosts"].split())
        for found, row in zip(rows["culprit_hosts"], wanted, strict=True)
    ]
    return f"classes {sum(classes) / len(rows):.1%}, hosts {sum(hosts) / len(rows):.1%} right"


def _one(refs: Sequence[JobRef], out: Path, workers: int, memory: int, queue: object) -> None:
    queue.put(scan(refs, out, workers, memory))  # type: ignore[attr-defined]


def measured(refs: Sequence[JobRef], out: Path, workers: int, memory: int) -> tuple[float, float]:
    """`scan` in a process of its own, so that the peak is that of its workers only."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_one, args=(refs, out, workers, memory, queue))
    process.start()
    found: tuple[float, float] = queue.get()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--fleet", type=Path, help="what make_archives.py wrote; else made anew")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, help="scan only so many of them")
    parser.add_argument("--sample", type=int, default=10, help="archives for rg with the catalog")
    parser.add_argument("--memory", type=int, default=500, help="MiB that a worker may hold")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        fleet = options.fleet or Path(scratch) / "fleet"
        if options.fleet is None:
            command = [sys.executable, HERE / "make_archives.py", fleet]
            subprocess.run([*command, "--count", str(options.count)], check=True)
        begin = time.perf_counter()
        refs = list(find_jobs([str(fleet)]))[: options.jobs]
        print(f"{len(refs)} jobs found in {time.perf_counter() - begin:.2f} s")
        best = float("inf")
        for workers in options.workers:
            out = Path(scratch) / "results"
            seconds, peak = measured(refs, out, workers, options.memory)
            print(
                f"{workers} worker(s): {seconds:.1f} s, {len(refs) / seconds:.1f} jobs/s, "
                f"peak {peak:.0f} MiB a worker; {accuracy(out, fleet / 'truth.csv')}"
            )
            best = min(best, seconds)
        for name, expressions in patterns().items():
            some = refs[:: max(1, len(refs) // options.sample)][: options.sample]
            each = rg_seconds([ref.source for ref in some], expressions)
            print(
                f"rg, {name} ({len(expressions)} patterns): {1000 * each:.0f} ms an archive over "
                f"{len(some)}, so {each * len(refs):.0f} s for all; scan takes "
                f"{best / (each * len(refs)):.2f} times that"
            )


if __name__ == "__main__":
    main()
