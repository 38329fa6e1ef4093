"""Scan a fleet of archives with one worker and with two, against `tar | rg` over the same archives.

    python benchmarks/batch.py --count 2000                  # makes the fleet of make_archives.py
    python benchmarks/batch.py --fleet /tmp/fleet --jobs 200 # an existing one, its first 200 jobs

Compared is what a user pays: seconds of CPU of the whole command `diagnose scan`, its start and its
workers included, against those of a shell loop that runs `tar xzOf A | rg -c -f WORDS` once for
each archive, all of them together. The words are those of peers.py. Each is run in turn, `--rounds`
times, and the least of each counts: other work on the machine only ever adds.

`--catalog N` also searches N archives for the catalog's own patterns (without group names, which
rg refuses): rg compiles them anew for each archive, which takes it many seconds.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from as_used import Cost, keep_byte_code, least, timed
from peers import WORDS

from diagnose.batch.results import tables

HERE = Path(__file__).parent
# rg exits with 1 where it finds nothing, with 2 where it searched nothing.
LOOP = (
    'f=$1; shift; for a in "$@"; do tar xzOf "$a" | rg --regex-size-limit 4G -c -f "$f" >/dev/null;'
    " [ $? -le 1 ] || exit 2; done"
)


def scan(archives: Sequence[Path], out: Path, workers: int) -> Cost:
    shutil.rmtree(out, ignore_errors=True)
    command: list[str | Path] = [sys.executable, "-m", "diagnose", "scan", *archives, "-o", out]
    return timed([*command, "--workers", str(workers)])


def search(archives: Sequence[Path], expressions: Sequence[str]) -> Cost:
    """The shell loop."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(expressions) + "\n")
        file.flush()
        return timed(["sh", "-c", LOOP, "sh", file.name, *archives])


def accuracy(out: Path, truth: Path) -> str:
    """Shares of jobs with the right class and hosts."""
    told = {row["archive"]: row for row in csv.DictReader(truth.open())}
    rows = pa.concat_tables(tables(out)).to_pandas()
    wanted = [told[source.rpartition("/")[2]] for source in rows["source"]]
    classes = [
        found in row["class"].split("|") for found, row in zip(rows["class"], wanted, strict=True)
    ]
    hosts = [
        sorted(found) == sorted(row["culprit_hosts"].split())
        for found, row in zip(rows["culprit_hosts"], wanted, strict=True)
    ]
    return f"classes {sum(classes) / len(rows):.1%}, hosts {sum(hosts) / len(rows):.1%} right"


def catalog_patterns() -> list[str]:
    """The expressions of the catalog, for rg."""
    from diagnose.catalog.load import load_catalog  # noqa: PLC0415  see `timed`
    from diagnose.match.rows import hyperscan_form, patterns_of  # noqa: PLC0415

    found = patterns_of(load_catalog().signatures)
    return list(dict.fromkeys(hyperscan_form(one.expression).decode() for one in found))


def main() -> None:
    keep_byte_code()
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--fleet", type=Path, help="what make_archives.py wrote; else made anew")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, help="scan only so many of them")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--catalog", type=int, default=0, help="archives for all patterns")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        fleet = options.fleet or Path(scratch, "fleet")
        if options.fleet is None:
            command = [sys.executable, HERE / "make_archives.py", fleet]
            subprocess.run([*command, "--count", str(options.count)], check=True)
        archives = sorted(fleet.glob("*.tar.gz"))[: options.jobs]
        measure(options, archives, fleet / "truth.csv", Path(scratch, "results"))


def measure(options: argparse.Namespace, archives: list[Path], truth: Path, out: Path) -> None:
    """Print what the scans and the searches cost."""
    words = [re.escape(word).replace("\\ ", " ") for word in WORDS]  # rg takes no escaped blank
    searches: list[Cost] = []
    scans: dict[int, list[Cost]] = {workers: [] for workers in options.workers}
    for _ in range(options.rounds):
        searches.append(search(archives, words))
        for workers, costs in scans.items():
            costs.append(scan(archives, out, workers))
    right = accuracy(out, truth)
    print(f"{len(archives)} archives, the least of {options.rounds} rounds; {right}")
    loop = least(searches)
    told(f"tar | rg, {len(words)} words", loop, len(archives), loop)
    for workers, costs in scans.items():
        told(f"scan, {workers} worker(s)", least(costs), len(archives), loop)
    if options.catalog:
        some = archives[:: max(1, len(archives) // options.catalog)][: options.catalog]
        each = search(some, catalog_patterns()).cpu / len(some)
        print(f"tar | rg, the catalog: {each:.1f} s CPU an archive, over {len(some)}")


def told(what: str, found: Cost, archives: int, loop: Cost) -> None:
    """Print a line; `loop` is what it is compared with."""
    print(
        f"{what:20} {found.cpu:6.1f} s CPU, {1000 * found.cpu / archives:4.1f} ms an archive, "
        f"{found.cpu / loop.cpu:.2f} of tar | rg; {found.wall:.1f} s by the clock, "
        f"largest process {found.peak:.0f} MiB"
    )


if __name__ == "__main__":
    main()
