"""Floods of one line: `python benchmarks/repeats.py [--repeats 2000] [--bound 1] [ID ...]`.

Of every signature (or those whose id an argument matches, as a glob) the first example is repeated
over 8 ranks in three layouts: lines prefixed with their rank in one file, one file per rank, and no
prefixes at all. A job is read and judged in-process with the catalog compiled once. To be quick,
all signatures run with an eighth and a quarter of the repeats first; with all of them run only
those that may be over `--bound` seconds. Prints the slowest, with seconds by phase.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Catalog
from diagnose.infer.pipeline import diagnose
from diagnose.ingest import find_sources
from diagnose.job.model import Job
from diagnose.match.compile import Matcher, compile_matcher
from diagnose.match.scanner import scan_source

RANKS = 8
_RANK = re.compile(r"^\[rank\d+\]: ?")
LAYOUTS = ("prefixed", "files", "bare")


@dataclass(frozen=True)
class Timing:
    """CPU seconds of the phases of one job."""

    scan: float
    timeline: float
    infer: float

    @property
    def whole(self) -> float:
        """All phases."""
        return self.scan + self.timeline + self.infer


def write(line: str, layout: str, repeats: int, folder: Path, ranks: int = 8) -> None:
    """A job's folder with `repeats` times `line`."""
    if layout == "files":
        for rank in range(ranks):
            (folder / f"rank_{rank}.log").write_text(f"{line}\n" * (repeats // ranks))
        return
    tags = [f"[rank{rank}]: " if layout == "prefixed" else "" for rank in range(ranks)]
    text = "".join(f"{tags[number % ranks]}{line}\n" for number in range(repeats))
    (folder / "job.log").write_text(text)


def measure(catalog: Catalog, matcher: Matcher, folder: Path) -> Timing:
    """CPU seconds of a job's phases, what is read and compiled once not counted."""
    begin = time.process_time()
    sources = find_sources([folder])
    scans = [scan_source(source, matcher) for source in sources]
    scanned = time.process_time()
    job = Job(sources, scans, catalog)
    len(job.timeline)
    built = time.process_time()
    diagnose(job)
    return Timing(scanned - begin, built - scanned, time.process_time() - built)


def measured(catalog: Catalog, matcher: Matcher, line: str, layout: str, repeats: int) -> Timing:
    with tempfile.TemporaryDirectory() as folder:
        write(line, layout, repeats, Path(folder))
        return measure(catalog, matcher, Path(folder))


def suspects(
    catalog: Catalog, matcher: Matcher, examples: dict[str, str], repeats: int, bound: float
) -> Iterator[tuple[str, str]]:
    """(id, layout) of floods that may take longer than `bound`, by what a part of them takes."""
    for id_, line in examples.items():
        for layout in LAYOUTS:
            eighth = measured(catalog, matcher, line, layout, repeats // 8).whole
            quarter = measured(catalog, matcher, line, layout, repeats // 4).whole
            # What a quadratic part among linear ones would come to, from the growth seen.
            growth = max(quarter / eighth, 2.0)
            if quarter * growth**2 > bound:
                yield id_, layout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", default=["*"], help="ids or globs; all without any")
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--bound", type=float, default=1.0, help="seconds that a flood may take")
    parser.add_argument("--shown", type=int, default=20)
    options = parser.parse_args()
    catalog = load_catalog(examples=True)
    matcher = compile_matcher(catalog)
    examples = {
        signature.id: _RANK.sub("", signature.examples[0].line)
        for signature in catalog.signatures
        if signature.examples and any(fnmatchcase(signature.id, glob) for glob in options.ids)
    }
    chosen = list(suspects(catalog, matcher, examples, options.repeats, options.bound))
    results = [
        (measured(catalog, matcher, examples[id_], layout, options.repeats), id_, layout)
        for id_, layout in chosen
    ]
    results.sort(key=lambda result: -result[0].whole)
    over = sum(timing.whole > options.bound for timing, _, _ in results)
    print(
        f"{len(examples)} signatures, {options.repeats} repeats over {RANKS} ranks: "
        f"{over} floods over {options.bound:g} s of CPU, {len(results)} measured in full"
    )
    for timing, id_, layout in results[: options.shown]:
        print(
            f"{timing.whole:6.2f} s  scan {timing.scan:5.2f}  timeline {timing.timeline:5.2f}  "
            f"infer {timing.infer:6.2f}  {layout:8}  {id_}"
        )


if __name__ == "__main__":
    main()
