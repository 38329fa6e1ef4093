"""Time and memory to diagnose a folder of Flight Recorder dumps, beside a bare unpickler.

    python benchmarks/dumps.py                      # 256 × 2,000
    python benchmarks/dumps.py --torch PYTHON       # and torch's own analyzer, by a Python with it

Seconds are of CPU, the least of three rounds. The bare unpickler is that of Python's C library
which refuses every global, and does nothing with what it builds.

The dumps come from make_dumps.py. Each reader runs in a process of its own, imports included.
"""

from __future__ import annotations

import argparse
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from as_used import keep_byte_code
from make_dumps import FAULTS, Plan, write

DIAGNOSE = [sys.executable, "-m", "diagnose"]
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


class _Bare(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name}")


def bare(folder: Path) -> None:
    """Only unpickle."""
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            _Bare(file).load()


def timed(command: Sequence[str], *, quiet: bool = True) -> float:
    """Seconds of CPU that a command takes."""
    sink = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen(command, stdout=sink, stderr=sink)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    keep_byte_code()
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--fault", choices=FAULTS, default="stuck_host")
    parser.add_argument("--torch", help="a Python that has torch, for its analyzer")
    parser.add_argument("--read", type=Path, help="only read this folder")
    parser.add_argument("--bare", type=Path, help="only unpickle this folder")
    options = parser.parse_args()
    if options.read or options.bare:
        read(options.read) if options.read else bare(options.bare)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, culprit = Path(name), options.ranks * 3 // 10
        size = write(Plan(options.ranks, options.entries, culprit, options.fault), folder)
        print(f"{options.ranks} ranks × {options.entries:,} entries, {size / 2**20:.0f} MiB")
        mine = [sys.executable, __file__]
        timed([*mine, f"--read={folder}"], quiet=False)
        commands = {
            "bare unpickler": [*mine, f"--bare={folder}"],
            "reading and judging": [*mine, f"--read={folder}"],
            "diagnose triage": [*DIAGNOSE, "triage", "--format", "json", name],
        }
        if options.torch:
            trace = [options.torch, "-m", ANALYZER, name, "--prefix", "nccl_trace_rank_"]
            commands["torchfrtrace"] = trace
        rounds = [{what: timed(command) for what, command in commands.items()} for _ in range(3)]
        least = {what: min(found[what] for found in rounds) for what in commands}
        for what, seconds in least.items():
            print(f"{what:20} {seconds:6.2f} s   {seconds / least['bare unpickler']:5.2f} ×")


if __name__ == "__main__":
    main()
