"""Is the smallest bad unit of a fleet named? `python benchmarks/planted_fleets.py --seed 900000`.

Makes the tables of fleets in memory as `make_fleet` does: by turns with a bad node, adapter, NVLink
domain, rack, leaf switch or rail, and half as many with none (of these each second one has a bad
team or season instead, which no node is to blame for). Right is the one planted unit and nothing
else; a false blame is any unit or suspect in a fleet without a bad unit.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from benchmarks.make_fleet import SHAPES, UNITS, plant, rows, topology
from diagnose.batch.results import COLUMNS, table_of
from diagnose.catalog.load import load_catalog
from diagnose.fleet.columns import part
from diagnose.fleet.jobs import Jobs, joined
from diagnose.fleet.nodes import Nodes, nodes
from diagnose.parse.topology import topology_of

# How many times as often the units fail: about as many incidents of each.
TIMES = {"node": 60, "nic": 300, "nvlink": 20, "rack": 12, "leaf": 6, "rail": 12}
NONE = ("none", "team", "none", "season")
MTBF = 20_000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fleets", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=1024)
    options = parser.parse_args()
    causes = load_catalog().node_causes
    where = topology_of(topology(options.nodes))
    all_of: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for number in range(options.fleets):
        kind = UNITS[number // 3 * 2 % 6 + number % 3] if number % 3 < 2 else NONE[number // 3 % 4]
        rng = np.random.default_rng([options.seed, number])
        times = TIMES.get(kind, 10)
        unit, jobs = planted(rng, kind, times, options.jobs, options.nodes)
        found = named(nodes(jobs, causes, where))
        wanted = [unit] if kind in UNITS else []
        all_of[kind] += 1
        right[kind] += found == wanted
        if found != wanted:
            print(f"  {number:3} {kind}: planted {unit or 'nothing'}, named {found or 'nothing'}")
    print(f"{'planted':<8} fleets  right")
    for kind, count in all_of.items():
        print(f"{kind:<8} {count:6} {right[kind]:6}")
    bad = sum(all_of[kind] for kind in UNITS)
    good = all_of.total() - bad
    hits = sum(right[kind] for kind in UNITS)
    print(f"smallest unit named: {hits} of {bad} ({hits / max(1, bad):.1%})")
    false = good - (right.total() - hits)
    print(f"false blame: {false} of {good} ({false / max(1, good):.1%})")


def planted(
    rng: np.random.Generator, kind: str, times: float, jobs: int, count: int
) -> tuple[str, Jobs]:
    """The planted unit of a fleet, and its jobs."""
    one = plant(rng, kind, times, MTBF, jobs, count)
    table = [*rows(rng, one, SHAPES["training"], count, 0, jobs, np.zeros((2, 20)))]
    made = table_of(dict(zip(COLUMNS, zip(*table, strict=True), strict=True)))
    return one.unit, joined([part(made)], {})


def named(found: Nodes) -> list[str]:
    """The units and suspects, as `make_fleet` calls them."""
    units = [(one.name, one.rail) for one in found.units]
    units += [(one.host, one.rail) for one in found.suspects]
    return [name if rail is None else f"{name}-rail{rail}" for name, rail in units]


if __name__ == "__main__":
    main()
