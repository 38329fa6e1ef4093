"""Planted first bad versions, and fleets without any: `python benchmarks/first_bad.py`.

Small fleets of `make_fleet`, of which each version has 20 jobs or more. Named is right where the
surest line of `since` names the label and the first bad version; false is any such line in a fleet
where nothing was planted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.make_fleet import SHAPES, TORCH, plant, write
from diagnose.fleet import read
from diagnose.fleet.since import since

LEAST = 20  # jobs of a version
NODES = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0-99", help="0-99")
    parser.add_argument("--kinds", default="since,version,none")
    parser.add_argument("--jobs", type=int, default=320)
    parser.add_argument("--times", type=float, default=12.0)
    parser.add_argument("--mtbf", type=float, default=6000.0, help="hours of one GPU")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    made: Counter[str] = Counter()
    right: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for kind in options.kinds.split(","):
        for seed in range(int(first), int(last or first) + 1):
            rng = np.random.default_rng([seed, len(kind)])
            found = plant(rng, kind, options.times, options.mtbf, options.jobs, NODES)
            with tempfile.TemporaryDirectory() as scratch:
                write(rng, Path(scratch) / "fleet", found, SHAPES["training"], NODES)
                jobs = read(Path(scratch) / "fleet")
            counts = Counter(one.get("torch") for one in jobs.versions.of(np.arange(len(jobs))))
            if min(counts[one] for one in TORCH) < LEAST:
                continue
            answers = since(jobs)
            made[kind] += 1
            named[kind] += bool(answers)
            best = answers[0] if answers else None
            right[kind] += best is not None and (best.label, best.first) == ("torch", found.unit)
            if kind != "none" and (best is None or best.first != found.unit):
                print(seed, kind, found.unit, best)
            elif kind == "none" and best is not None:
                print(seed, kind, best)
    for kind in made:
        print(f"{kind}: {right[kind]} right, {named[kind]} named of {made[kind]}")


if __name__ == "__main__":
    main()
