"""Scan a fleet of archives and compare: with rg over the same archives, one worker with two.

    python benchmarks/batch.py --count 2000                  # makes the fleet of make_archives.py
    python benchmarks/batch.py --fleet /tmp/fleet --jobs 200 # an existing one, its first 200 jobs

rg searches what `tar xzOf` unpacks, once per archive: for the catalog's own patterns (without group
names, which rg refuses), and for the words of peers.py. rg compiles its patterns anew for each
archive and takes seconds with the whole catalog, so it runs over a sample (`--sample`), one archive
at a time as in the shell loop, and its time is multiplied up to the number of jobs.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from peers import WORDS

from diagnose.batch import executors, run
from diagnose.batch.jobs import JobRef, find_jobs
from diagnose.batch.progress import Tally
from diagnose.batch.results import open_results
from diagnose.batch.work import Options
from diagnose.catalog.load import load_catalog
from diagnose.match.rows import hyperscan_form, patterns_of

HERE = Path(__file__).parent


def patterns() -> dict[str, list[str]]:
    """Lists of expressions for rg by name."""
    signatures = load_catalog().signatures
    forms = [hyperscan_form(found.expression).decode() for found in patterns_of(signatures)]
    words = [re.escape(word).replace("\\ ", " ") for word in WORDS]  # rg takes no escaped blank
    return {"catalog": list(dict.fromkeys(forms)), f"{len(words)} words": words}


def rg_seconds(archives: Sequence[str], expressions: Sequence[str]) -> Cost:
    """The shell loop for one archive, on average."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(expressions) + "\n")
        file.flush()
        # rg exits with 1 where it finds nothing, with 2 where it searched nothing.
        loop = (
            'f=$1; shift; for a in "$@"; do tar xzOf "$a" '
            '| rg --regex-size-limit 4G -c -f "$f" >/dev/null; '
            "[ $? -le 1 ] || exit 2; done"
        )
        begin, cpu = time.perf_counter(), children()
        subprocess.run(["sh", "-c", loop, "sh", file.name, *archives], check=True)
        wall = time.perf_counter() - begin
        return Cost(wall / len(archives), (children() - cpu) / len(archives))


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds by the clock and of CPU; MiB that the largest process held."""

    wall: float
    cpu: float
    peak: float = 0.0


def children() -> float:
    """Seconds of CPU of all processes that this one started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def scan(refs: Sequence[JobRef], out: Path, workers: int, memory: int) -> Cost:
    """A whole scan; run it in a process of its own."""
    shutil.rmtree(out, ignore_errors=True)
    begin = time.perf_counter()
    with open_results(out, resume=False) as results:
        run.scan(
            refs, results, executors.local(workers),
            workers=workers, options=Options(memory=memory << 20), progress=Tally(),
        )  # fmt: skip
    wall = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return Cost(wall, children() + time.process_time(), peak)


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


def measured(refs: Sequence[JobRef], out: Path, workers: int, memory: int) -> Cost:
    """`scan` in a process of its own, so that the peak is that of its workers only."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_one, args=(refs, out, workers, memory, queue))
    process.start()
    found: Cost = queue.get()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--fleet", type=Path, help="what make_archives.py wrote; else made anew")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, help="scan only so many of them")
    parser.add_argument("--sample", type=int, default=10, help="archives for rg")
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
        costs = []
        for workers in options.workers:
            out = Path(scratch) / "results"
            cost = measured(refs, out, workers, options.memory)
            costs.append(cost)
            print(
                f"{workers} worker(s): {cost.wall:.1f} s, {cost.cpu:.1f} s CPU, "
                f"{len(refs) / cost.wall:.1f} jobs/s, {1000 * cost.cpu / len(refs):.0f} ms CPU a "
                f"job, peak {cost.peak:.0f} MiB a worker; {accuracy(out, fleet / 'truth.csv')}"
            )
        for name, expressions in patterns().items():
            some = refs[:: max(1, len(refs) // options.sample)][: options.sample]
            each = rg_seconds([ref.source for ref in some], expressions)
            wall = min(cost.wall for cost in costs) / (each.wall * len(refs))
            cpu = min(cost.cpu for cost in costs) / (each.cpu * len(refs))
            print(
                f"rg, {name}: {1000 * each.wall:.0f} ms an archive, {1000 * each.cpu:.0f} ms CPU, "
                f"over {len(some)}; scan takes {wall:.2f} times that, of CPU {cpu:.2f}"
            )


if __name__ == "__main__":
    main()
