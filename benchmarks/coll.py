"""Speed and memory of reading NCCL's call lines beside the scan: `python benchmarks/coll.py`.

The text of make_coll.py (64 ranks that hang at the end) as one interleaved file and as 64 files;
each is scanned with and without the reader of call lines. Prints MB/s of CPU time, so of one core;
the whole must reach 150. Each run has a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from as_used import keep_byte_code

TARGET = 150  # MB/s of one core
HERE = Path(__file__).parent


class Deaf:
    """In place of the reader of call lines: takes chunks and tells nothing."""

    def feed(self, chunk: object) -> None:
        """Pass over a chunk."""

    def short(self, line: int) -> dict[bytes, int]:
        """No communicator is short of calls."""
        del line
        return {}

    def unannounced(self) -> bool:
        """No communicator was met."""
        return False

    def result(self) -> list[object]:
        """Nothing."""
        return []


def read(path: Path, alone: bool) -> None:
    """Scan all files, call lines only by the catalog if `alone`, and print what came out."""
    from diagnose.catalog.load import load_catalog  # noqa: PLC0415
    from diagnose.infer.collectives.analyze import judge  # noqa: PLC0415
    from diagnose.infer.collectives.from_counters import dumps_of  # noqa: PLC0415
    from diagnose.infer.collectives.table import table  # noqa: PLC0415
    from diagnose.ingest.find import find_sources  # noqa: PLC0415
    from diagnose.match import calls  # noqa: PLC0415
    from diagnose.match import scanner as scan  # noqa: PLC0415
    from diagnose.match.compile import compile_matcher  # noqa: PLC0415
    from diagnose.parse.comm_rank import CommRank  # noqa: PLC0415

    if alone:
        calls._reader = lambda source: Deaf()  # type: ignore[assignment,return-value]
    matcher = compile_matcher(load_catalog())
    sources = find_sources([path])
    size = sum(source.size for source in sources)
    begin = time.process_time()
    ranks: list[CommRank] = []
    for source in sources:
        ranks += scan.scan_source(source, matcher).comm_ranks
    spent = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    rate = size / spent / 1e6
    print(f"  {rate:5.0f} MB/s a core, {spent:6.2f} s, peak {peak:5.0f} MiB", end="")
    if alone:
        print()
        return
    begin = time.process_time()
    verdict = judge(table(dumps_of(ranks)))
    judged = time.process_time() - begin
    said = f"{verdict.kind} {list(verdict.ranks)}" if verdict else "no verdict"
    print(f", {'reached' if rate >= TARGET else 'MISSED'}; {said}, judged in {judged:.2f} s")


def main() -> None:
    keep_byte_code()
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--read", type=Path, help="only read this file or folder")
    parser.add_argument("--alone", action="store_true", help="without the reader of call lines")
    options = parser.parse_args()
    if options.read is not None:
        read(options.read, options.alone)
        return
    with tempfile.TemporaryDirectory(prefix="diagnose-coll-") as name:
        folder = Path(name)
        make = [sys.executable, str(HERE / "make_coll.py"), "--size", options.size]
        for what, flag, path in (
            ("one file", "--out", folder / "job.log"),
            ("64 files", "--split", folder / "ranks"),
        ):
            print(what, flush=True)
            subprocess.run([*make, flag, str(path)], check=True)
            for _ in range(options.rounds):
                for mode in (["--alone"], []):
                    print("  scan alone " if mode else "  with calls ", end="", flush=True)
                    subprocess.run(
                        [sys.executable, __file__, "--read", str(path), *mode], check=True
                    )
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
