"""Cost against size: `python benchmarks/growth.py [log ranks dumps jobs] [--most N] [--work DIR]`.

Runs the whole command on generated input of growing size and prints, for each size, the input,
seconds of CPU (workers included), wall time, peak memory of one process, and the slope: the
exponent with which the CPU time above that of a small job grows with the input (1 is linear), from
the size before and, below the table, over all sizes. A dump grows with the ranks, too: it lists the
members of its groups.

    log     MiB of one interleaved log of 128 ranks   1 to 1,024      (--most 16384)
    ranks   ranks in one log that hangs               8 to 16,384
    dumps   Flight Recorder dumps of 200 entries      8 to 2,048
    jobs    archives in a scan, 50 of them repeated   100 to 1,000    (--most 100000)
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from as_used import keep_byte_code, timed

HERE = Path(__file__).parent
DIAGNOSE = [sys.executable, "-m", "diagnose"]
ARCHIVES = 50
_LEAST_S = 0.1  # of CPU above a small job; less is noise


@dataclass(frozen=True)
class Series:
    """One thing that grows: `make` writes input of a size and returns the command for it."""

    unit: str
    sizes: tuple[int, ...]
    default: int
    make: Callable[[int, Path], list[str]]


def main() -> None:
    keep_byte_code()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="*", default=[*SERIES], help=", ".join(SERIES))
    parser.add_argument("--most", type=int, help="the largest size, instead of the default one")
    parser.add_argument("--work", type=Path, help="where to write (and to remove) the input")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        small = Path(folder, "small.log")
        generate("make_log.py", "--ranks", 8, "--missing", 3, "--size", "64KiB", "--out", small)
        tries = [timed([*DIAGNOSE, "triage", str(small)]) for _ in range(4)]  # compiles the catalog
        nothing = min(tries, key=lambda found: found.cpu)
        print(f"a log of 64 KiB: {nothing.cpu:.2f} s CPU, {nothing.peak:.0f} MiB")
        for name in options.series:
            grow(SERIES[name], nothing.cpu, options.most, Path(folder))


def grow(series: Series, nothing: float, most: int | None, work: Path) -> None:
    """Print the table of a series."""
    titles = (series.unit, "input MiB", "CPU s", "wall s", "peak MiB", "slope")
    print("\n" + " ".join(f"{title:>11}" for title in titles))
    points: list[tuple[float, float]] = []  # MiB and CPU above a small job, where it says anything
    for size in series.sizes:
        if size > (most or series.default):
            break
        folder = work / "input"
        folder.mkdir()
        command = series.make(size, folder)
        read = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
        found = timed(command)
        shutil.rmtree(folder)
        says = found.cpu - nothing > _LEAST_S
        points += [(read, found.cpu - nothing)] * says
        row = (f"{size:,}", f"{read:,.1f}", f"{found.cpu:.2f}", f"{found.wall:.2f}")
        cells = (*row, f"{found.peak:.0f}", slope(points[-2:] if says else []))
        print(" ".join(f"{cell:>11}" for cell in cells), flush=True)
    print(f"{series.unit}: slope {slope(points)} over all sizes")


def slope(points: list[tuple[float, float]]) -> str:
    """The exponent from the first point to the last, if there are two."""
    if len(points) < 2:
        return "-"
    (size, cpu), (larger, more) = points[0], points[-1]
    return f"{math.log(more / cpu) / math.log(larger / size):.2f}"


def log(mib: int, folder: Path) -> list[str]:
    generate("make_log.py", "--size", f"{mib}MiB", "--out", folder / "job.log")
    return triage(folder)


def ranks(count: int, folder: Path) -> list[str]:
    """A log with some steps of each rank."""
    size = ["--size", f"{count * 8}KiB", "--missing", count // 3]
    generate("make_log.py", "--ranks", count, *size, "--out", folder / "job.log")
    return triage(folder)


def dumps(count: int, folder: Path) -> list[str]:
    rest = ["--entries", 200, "--culprit", count * 3 // 10, "--out", folder]
    generate("make_dumps.py", "--ranks", count, *rest)
    return triage(folder)


def jobs(count: int, folder: Path) -> list[str]:
    """A scan of archives: the same few, linked under many names."""
    made, fleet = folder.parent / "made", folder / "fleet"
    if not made.exists():
        generate("make_archives.py", made, "--count", ARCHIVES, "--kib", 50)
    fleet.mkdir()
    archives = sorted(made.glob("*.tar.gz"))
    for number in range(count):
        os.link(archives[number % len(archives)], fleet / f"job-{number:06}.tar.gz")
    out = folder / "results"
    return [*DIAGNOSE, "scan", str(fleet), "-o", str(out), "--workers", "2"]


def triage(folder: Path) -> list[str]:
    return [*DIAGNOSE, "triage", "--format", "json", str(folder)]


def generate(script: str, *options: object) -> None:
    command = [sys.executable, str(HERE / script), *map(str, options)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


SERIES = {
    "log": Series("MiB of log", (1, 4, 16, 64, 256, 1024, 4096, 16384), 1024, log),
    "ranks": Series("ranks", (8, 64, 512, 2048, 8192, 16384), 16384, ranks),
    "dumps": Series("dumps", (8, 32, 128, 512, 2048), 2048, dumps),
    "jobs": Series("jobs", (100, 300, 1000, 10_000, 100_000), 1000, jobs),
}

if __name__ == "__main__":
    main()
