"""What the patterns cost: `python benchmarks/pattern_cost.py [LOG ...] [--of marks rest bulk]`.

Searches logs (by default 32 MiB of a generated one) and prints, in seconds of CPU:

- each database of the matcher: how long it takes to compile, and bytes a second that it searches;
- each file of patterns/ by itself, and the words of the vocabularies: the same;
- of the databases named with --of, the patterns (in marks: the literals) that take longest to
  search for, found by bisection: the costliest group is halved until single ones are left, each
  timed alone against a database of nothing; those that take longest to compile, and the literals
  that are found most often.

Figures of single patterns are not additive: an automaton shares work between its patterns.
"""

from __future__ import annotations

import argparse
import heapq
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from diagnose.catalog.document import read_files
from diagnose.catalog.load import catalog_files, default_dir, load_catalog
from diagnose.catalog.schema import Catalog, Signature
from diagnose.match import build
from diagnose.match.build import rows_of
from diagnose.match.rows import DATABASES, LITERAL, Row, patterns_of
from diagnose.search import hits_of

HERE = Path(__file__).parent
Cost = Callable[[Sequence[Row]], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="*")
    parser.add_argument("--of", nargs="*", default=["marks", "rest", "bulk"])
    parser.add_argument("--bytes", type=int, default=32 << 20, help="searched of the logs")
    parser.add_argument("--part", type=int, default=1 << 20, help="searched for single patterns")
    parser.add_argument("--shown", type=int, default=10)
    options = parser.parse_args()
    data = read(options.logs, options.bytes)
    catalog = load_catalog()
    print(f"{len(data) / 2**20:.0f} MiB, {len(catalog.signatures)} signatures")
    databases(catalog, data)
    groups(catalog, data)
    for name in options.of:
        costliest(catalog, name, data[: options.part], options.shown)


def read(logs: Sequence[Path], size: int) -> bytes:
    """The same share of each log, or the start and the end of a generated one."""
    if logs:
        return b"\n".join(log.open("rb").read(size // len(logs)) for log in logs)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "job.log")
        make = [sys.executable, str(HERE / "make_log.py"), "--ranks", "128", "--out", str(log)]
        subprocess.run([*make, "--size", f"{size >> 20}MiB"], check=True, capture_output=True)
        return log.read_bytes()


def databases(catalog: Catalog, data: bytes) -> None:
    """Print a line for each database."""
    print(f"\n{'database':<28}{'rows':>7}{'compile':>10}{'MB/s':>8}{'hits':>9}")
    for name in DATABASES:
        rows = rows_of(catalog, name)
        if rows:
            line(name, rows, data, literal=name in LITERAL)


def groups(catalog: Catalog, data: bytes) -> None:
    """Print a line for each file of the catalog, those first that are searched slowest."""
    print(f"\n{'file, all of it at once':<28}{'rows':>7}{'compile':>10}{'MB/s':>8}{'hits':>9}")
    found = []
    for path, text in catalog_files([default_dir()]):
        entries = [one.entry for one in read_files([(path, text)])]
        own = [one for one in entries if isinstance(one, Signature)]
        if own:
            part = Catalog(own, [], {}, "")
            rows = [row for name in ("bulk", "rest", "everywhere") for row in rows_of(part, name)]
            if rows:  # not where all of it is of each step
                name = str(path.relative_to(default_dir()))
                found.append((scan_seconds(rows, data[: 4 << 20]), name, rows))
    for _, name, rows in sorted(found, key=lambda one: -one[0])[:25]:
        line(name, rows, data[: 4 << 20])
    print(f"({len(found)} files)")


def line(name: str, rows: Sequence[Row], data: bytes, *, literal: bool = False) -> None:
    begin = time.process_time()
    database = build.compile_rows(rows, literal=literal)
    built = time.process_time() - begin
    seconds = min(timed(database, data) for _ in range(3))
    rate = len(data) / seconds / 1e6
    hits = len(hits_of(database, data))
    print(f"{name:<28}{len(rows):>7}{built:>8.2f} s{rate:>8,.0f}{hits:>9,}")


def timed(database: object, data: bytes) -> float:
    begin = time.process_time()
    hits_of(database, data)
    return time.process_time() - begin


def scan_seconds(rows: Sequence[Row], data: bytes, *, literal: bool = False) -> float:
    database = build.compile_rows(rows, literal=literal)
    return min(timed(database, data) for _ in range(2))


def compile_seconds(rows: Sequence[Row]) -> float:
    begin = time.process_time()
    build.compile_rows(rows)
    return time.process_time() - begin


def costliest(catalog: Catalog, name: str, data: bytes, shown: int) -> None:
    """Print the rows of a database that cost most."""
    rows, literal = rows_of(catalog, name), name in LITERAL
    patterns = patterns_of(catalog.signatures)

    def told(row: Row) -> str:
        known = not literal and row[1] < len(patterns)
        owner = f"{catalog.signatures[patterns[row[1]].signature].id}: " if known else ""
        return f"{owner}{row[0].decode()[:90]!r}"

    nothing = scan_seconds([(b"no pattern at all", 0, 0)], data, literal=literal)
    whole = scan_seconds(rows, data, literal=literal)
    print(f"\n{name}: {whole / len(data) * 1e9:.2f} ns a byte; alone, above nothing:")
    for cost, row in bisected(rows, shown, lambda some: scan_seconds(some, data, literal=literal)):
        extra = cost - nothing
        print(
            f"  {extra / len(data) * 1e9:6.2f} ns a byte {100 * extra / whole:5.0f} %  {told(row)}"
        )
    if literal:
        print(f"{name}: found most, each a second look at a line:")
        numbered = [(form, number, flags) for number, (form, _, flags) in enumerate(rows)]
        met = Counter(n for n, _ in hits_of(build.compile_rows(numbered, literal=True), data))
        for number, times in met.most_common(shown):
            print(f"  {times:>9,}  {told(rows[number])}")
        return
    print(f"{name}: to compile:")
    for cost, row in bisected(rows, shown, compile_seconds):
        print(f"  {1000 * cost:6.1f} ms  {told(row)}")


def bisected(rows: Sequence[Row], shown: int, cost: Cost) -> list[tuple[float, Row]]:
    """The rows that cost most by themselves: always the costliest group is halved."""
    order = count()
    heap = [(-cost(rows), next(order), list(rows))]
    found: list[tuple[float, Row]] = []
    while heap and len(found) < shown:
        negative, _, group = heapq.heappop(heap)
        if len(group) == 1:
            found.append((-negative, group[0]))
            continue
        middle = len(group) // 2
        for part in (group[:middle], group[middle:]):
            heapq.heappush(heap, (-cost(part), next(order), part))
    return found


if __name__ == "__main__":
    main()
