"""Time and memory to diagnose a folder of Flight Recorder dumps, beside torch's own analyzer.

    python benchmarks/dumps.py                      # 256 × 2,000 against torchfrtrace (needs torch)
    python benchmarks/dumps.py --ranks 1024 --alone # time and peak memory of our own reading

The dumps come from make_dumps.py. Each reader runs in a process of its own, imports included.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from make_dumps import FAULTS, Plan, write

ANALYZER = "torch.distributed.flight_recorder.fr_trace"


def read(folder: Path) -> None:
    """Read and judge all dumps of a folder, as `diagnose` does, and print the verdict."""
    from diagnose.infer.collectives.analyze import judge  # noqa: PLC0415
    from diagnose.infer.collectives.table import table  # noqa: PLC0415
    from diagnose.parse.flight_recorder import read_dump  # noqa: PLC0415

    begin = time.perf_counter()
    dumps = [read_dump(path.read_bytes(), path.name) for path in sorted(folder.iterdir())]
    parsed = time.perf_counter()
    whole = table(dumps)
    verdict = judge(whole)
    end = time.perf_counter()
    if verdict is None:
        sys.exit("nothing is pending in these dumps")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{verdict.kind} {list(verdict.ranks)}: {verdict.why}")
    print(
        f"{len(whole.rows):,} entries: read {parsed - begin:.1f} s, judged {end - parsed:.1f} s, "
        f"peak {peak:,.0f} MiB"
    )


def timed(command: list[str], quiet: bool) -> float:
    """Wall time of a command in seconds; its output is shown unless `quiet`."""
    sink = subprocess.DEVNULL if quiet else None
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=sink, stderr=sink)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--fault", choices=FAULTS, default="stuck_host")
    parser.add_argument("--alone", action="store_true", help="without torch's analyzer")
    parser.add_argument("--read", type=Path, help="only read this folder")
    options = parser.parse_args()
    if options.read is not None:
        read(options.read)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, culprit = Path(name), options.ranks * 3 // 10
        plan = Plan(options.ranks, options.entries, culprit, options.fault)
        size = write(plan, folder)
        print(f"{options.ranks} ranks × {options.entries:,} entries, {size / 2**20:.0f} MiB")
        ours = timed([sys.executable, __file__, f"--read={folder}"], quiet=False)
        print(f"diagnose      {ours:7.1f} s")
        if options.alone:
            return
        prefix = "nccl_trace_rank_"
        theirs = timed([sys.executable, "-m", ANALYZER, str(folder), "--prefix", prefix], True)
        print(f"torchfrtrace  {theirs:7.1f} s   ratio {ours / theirs:.3f} (at most 0.25)")


if __name__ == "__main__":
    main()
