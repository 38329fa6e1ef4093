"""The smallest unit of the topology that explains why some nodes are blamed too often.

A unit is held against the rest of the fleet as a node is (`nodes`), with the blame and the places
in jobs of all its nodes. Of a unit with an excess one looks for a smaller one inside, without which
nothing is left of the excess: that one is named. So a bad node is not its rack, and a bad leaf is
not sixty bad nodes. p is adjusted for all units and nodes (Bonferroni); the jobs of a named unit
are taken out before the next one is looked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.fleet.blame import (
    ALPHA,
    LEAST_EXPECTED,
    MIN_INCIDENTS,
    Places,
    Tally,
    chance,
    counted,
)
from diagnose.parse.topology import Topology, placed

NODE = "node"
MIN_RATIO = 1.5  # a large unit has many nodes that are well
MAX_UNITS = 5
LEFT_ALPHA = 0.001  # of what a unit shows without a part of it


@dataclass(frozen=True, slots=True)
class Unit:
    """A rack, a switch … whose nodes are blamed too often; its numbers are as those of a Suspect.

    `places` counts its nodes once for each job they took part in. `rail` is the GPU of each node,
    and so the adapter, that has the excess, None where it is not one.
    """

    level: str
    name: str
    nodes: int
    places: int
    blamed: int
    expected: float
    ratio: float
    p: float
    rail: int | None


class _Level:
    """The units of one level: the number of each host's unit, one for all hosts without any."""

    def __init__(self, name: str, hosts: Sequence[str], units: Mapping[str, str]) -> None:
        self.name = name
        stated = placed(units, hosts)
        self.names = ["", *sorted({*stated} - {""})]
        number = {unit: at for at, unit in enumerate(self.names)}
        self.of = np.array([number[unit] for unit in stated], dtype=np.int64)

    def summed(self, counts: Tally) -> Tally:
        """Places and blame by unit."""
        found = Tally(*np.zeros((2, len(self.names), counts.places.shape[1]), np.int64))
        np.add.at(found.places, self.of, counts.places)
        np.add.at(found.blamed, self.of, counts.blamed)
        return found


def suspect_units(places: Places, topology: Topology) -> tuple[list[Unit], Places]:
    """The units that explain an excess, the strongest first, and the places without their jobs."""
    levels = [_Level(NODE, places.hosts, {host: host for host in places.hosts})]
    levels += [_Level(name, places.hosts, units) for name, units in topology.levels.items()]
    tests = sum(len(level.names) - 1 for level in levels)
    widths = int(places.width.max(initial=0)) + 1
    found: list[Unit] = []
    rest = places
    for _ in range(MAX_UNITS):
        counts = counted(rest, widths)
        inside = _excess(counts, levels[1:], tests)
        if inside is None:
            break
        level, hosts = _smallest(counts, levels, inside, tests)
        p, expected = _group(counts, hosts)
        rail = rest.rail_of(hosts, expected)
        others = rest.without(hosts)
        if level.name == NODE:
            rest = others
            continue  # it becomes a suspect
        places, rest = others if places is rest else places.without(hosts), others
        blamed = int(counts.blamed[hosts].sum())
        name = level.names[level.of[np.flatnonzero(hosts)[0]]]
        found.append(
            Unit(
                level.name, name, int(hosts.sum()), int(counts.places[hosts].sum()), blamed,
                round(expected, 3), round(blamed / max(expected, LEAST_EXPECTED), 2),
                min(1.0, p * tests), rail,
            )
        )  # fmt: skip
    return found, places


def _excess(counts: Tally, levels: Sequence[_Level], tests: int) -> np.ndarray | None:
    """The hosts of the largest unit that is blamed too often, as a mask; None where none is."""
    for level in reversed(levels):
        summed = level.summed(counts)
        total, expected = summed.blamed.sum(axis=1), summed.expected()
        worth = (total >= MIN_INCIDENTS) & (total >= MIN_RATIO * expected)
        chances = {int(at): chance(summed, int(at)) for at in np.flatnonzero(worth) if at}
        worst = min(chances, key=lambda at: (chances[at], at), default=0)
        if worst and chances[worst] * tests <= ALPHA:
            found: np.ndarray = level.of == worst
            return found
    return None


def _smallest(
    counts: Tally, levels: Sequence[_Level], hosts: np.ndarray, tests: int
) -> tuple[_Level, np.ndarray]:
    """The smallest unit inside these hosts without which they show no excess, and its hosts."""
    smallest = next(level for level in reversed(levels) if len(np.unique(level.of[hosts])) == 1)
    for level in reversed(levels):
        numbers = [number for number in np.unique(level.of[hosts]).tolist() if number]
        if len(numbers) < 2:
            continue
        masks = [hosts & (level.of == number) for number in numbers]
        best = min(masks, key=lambda mask: _group(counts, mask)[0])
        others = hosts & ~best
        left, expected = _group(counts, others)
        more = left <= LEFT_ALPHA and counts.blamed[others].sum() >= MIN_RATIO * expected
        if _group(counts, best)[0] * tests <= ALPHA and not more:
            hosts, smallest = best, level
    return (smallest if hosts.sum() > 1 else levels[0]), hosts  # a unit of one node is that node


def _group(counts: Tally, hosts: np.ndarray) -> tuple[float, float]:
    """The chance of at least as much blame on these hosts, and how much the rest would have."""
    both = [np.stack((one[hosts].sum(axis=0), one[~hosts].sum(axis=0)))
            for one in (counts.places, counts.blamed)]  # fmt: skip
    two = Tally(*both)
    return chance(two, 0), float(two.expected()[0])
