"""Fuzz by hand: `python -m tests.fuzz --minutes 10 --seed 1`.

Prints the counts, the slowest inputs and every violation. `--only N` makes the one input again,
shrinks what it fails and, with `--keep FOLDER`, writes the files there for `diagnose triage`.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.fuzz.case import Case
from tests.fuzz.driver import Tally, check, made, note, recipe, total
from tests.fuzz.shrink import shorter, smaller

_COMPARED = ("same", "steady", "drift")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default 1)")
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="how many at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", type=int, help="one input, shrunk")
    parser.add_argument("--keep", type=Path, help="with --only: where to write its files")
    options = parser.parse_args()
    if options.only is not None:
        return _one(options.seed, options.only, options.keep)
    tally = Tally()
    end = time.monotonic() + options.minutes * 60
    number = options.first
    with suppress(KeyboardInterrupt):
        while time.monotonic() < end and tally.inputs < options.inputs:
            for found in note(tally, number, recipe(options.seed, number)):
                print(f"{found.oracle}: input {number}: {found.recipe}: {found.words}", flush=True)
            number += 1
    print("\n".join([f"seed {options.seed}", *total(tally)]))
    return 1 if tally.violations else 0


def _one(seed: int, number: int, keep: Path | None) -> int:
    """Make one input again; print and write the smallest form of what it fails."""
    what = recipe(seed, number)
    _, failed, spent = check(what)
    print(f"{what}: {spent:.2f} s of CPU time")
    for oracle, words in failed:
        print(f"{oracle}: {words}")
        short = shorter(what, oracle)
        case, before, _ = made(short)
        if oracle not in _COMPARED:
            case = smaller(case, oracle)
        print(f"  is enough: {short}, {len(case.files)} files, {case.size} bytes")
        if keep is not None:
            _write(case, keep / oracle)
            if oracle in _COMPARED:
                _write(before, keep / f"{oracle}-before")
    return 1 if failed else 0


def _write(case: Case, folder: Path) -> None:
    for file in case.files:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    print(f"  written: {folder}")


if __name__ == "__main__":
    sys.exit(main())
