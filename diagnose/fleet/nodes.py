"""Suspect nodes: blamed more often than their share of the work explains.

A node that runs many jobs sees many failures. So each node is compared with what the rest of the
fleet had in jobs of similar width: of the job places (a node in a job) of a width, so many were
blamed; had blame fallen at random, a node's count would be hypergeometric in each width and their
sum the convolution of these. p is the exact chance of at least as many. A suspect needs

- p × (nodes compared) ≤ ALPHA: Bonferroni, the chance of any innocent node in the list;
- MIN_RATIO times what the rest had in such jobs, and MIN_INCIDENTS incidents.

The strongest suspect is taken out first, with all jobs it took part in, and the others are compared
anew: its own count would raise what is thought normal, and its neighbours are blamed in its stead
now and then (the 22 % in which the evidence points at the wrong one).

What counts as blame: a cause that stays with the node (`causes`), at least medium confidence,
and hosts named that are at most half of the job's (or its only one). Retries on the same hosts
with the same fingerprint on the same day are one incident.

Of many jobs only the blamed host is known: the launcher names the node it lost and no other. Such
blame is not compared with the width of jobs but would fall at random by each node's share of the
places known from other jobs (one is added to each node, as some are known from blame alone), which
makes a node's count binomial. Jobs that name no host at all are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from diagnose.fleet.blame import ALPHA, LEAST_EXPECTED, MIN_INCIDENTS, Places, chance, counted
from diagnose.fleet.columns import Lists, pair_keys, pairs, span, tally, total
from diagnose.fleet.jobs import Jobs
from diagnose.fleet.units import Unit, suspect_units
from diagnose.parse.topology import Topology
from diagnose.parse.topology import placed as units_of

MIN_RATIO = 3.0


@dataclass(frozen=True, slots=True)
class Node:
    """A node's record. `jobs` counts incidents and other jobs once each; see the module."""

    host: str
    jobs: int
    blamed: int
    victim: int  # took part in a job where another node was blamed
    unit: str | None = None  # where it is, of the level `Nodes.level`


@dataclass(frozen=True, slots=True)
class Suspect:
    """A node that somebody should look at.

    `jobs`, `blamed` and `expected` (blamed incidents, had it been like the rest) are without the
    jobs of stronger suspects. `p` is adjusted for the number of nodes. `gpu_hours_lost` sums the
    jobs in which it was blamed, None if no cost is known. `rail` is the number of the GPU, and so
    of the adapter, that nearly all the blame is on, None where it is not one.
    """

    host: str
    jobs: int
    blamed: int
    expected: float
    ratio: float
    p: float
    victim: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    blamed_jobs: list[str] = field(default_factory=list)
    gpu_hours_lost: float | None = None
    first_seen: str | None = None
    last_seen: str | None = None
    rail: int | None = None


@dataclass(frozen=True, slots=True)
class Nodes:
    """All nodes, most suspect first, and what the comparison rests on.

    `units` are those of the topology that explain an excess; their nodes are no suspects for it.
    `level` is the one by which a map of the nodes is drawn, None without a topology.

    Of the `jobs_without_hosts`, of which it is not known where they ran, `blamed_without_hosts` are
    compared as well, by the host they blame.
    """

    units: list[Unit]
    suspects: list[Suspect]
    nodes: list[Node]
    level: str | None
    jobs_compared: int
    jobs_without_hosts: int
    blamed_without_hosts: int


def nodes(jobs: Jobs, causes: Collection[str], topology: Topology | None = None) -> Nodes:
    """The nodes of the jobs; `causes` are the classes that stay with a node."""
    named = blamed_hosts(jobs, causes)
    unknown = ~jobs.unreadable & (jobs.hosts.lengths() == 0)
    blamed_only = unknown & (named.lengths() > 0)
    placed = ~jobs.unreadable & (~unknown | blamed_only)
    places = _places(jobs, named, placed)
    hosts = places.hosts
    took_part, blamed, victims = _counts(places)
    units, places = suspect_units(places, topology) if topology else ([], places)
    suspects = _suspects(places)
    level = _drawn(topology) if topology else None
    of = units_of(topology.levels[level] if topology and level else {}, hosts)
    records = [
        Node(host, took_part[at], blamed[at], victims[at], of[at] or None)
        for at, host in enumerate(hosts)
    ]
    flagged = {suspect.host: order for order, suspect in enumerate(suspects)}
    records.sort(
        key=lambda node: (flagged.get(node.host, len(flagged)), -node.blamed, -node.jobs, node.host)
    )
    victim = {node.host: node.victim for node in records}

    return Nodes(
        units=units,
        suspects=[
            _completed(one, victim[one.host], jobs, named.rows_of(one.host)) for one in suspects
        ],
        nodes=records,
        level=level,
        jobs_compared=len(np.unique(jobs.incident[placed])),
        jobs_without_hosts=int(unknown.sum()),
        blamed_without_hosts=int(blamed_only.sum()),
    )


def _drawn(topology: Topology) -> str | None:
    """The level of a map: racks, else the smallest units that have several nodes."""
    several = [
        name for name, units in topology.levels.items() if len({*units.values()}) < len(units)
    ]
    return next((name for name in several if name.lower() == "rack"), next(iter(several), None))


def blamed_hosts(jobs: Jobs, causes: Collection[str]) -> Lists:
    """The hosts that each job singles out as broken; `causes` are the classes that stay there."""
    hosts, culprits = jobs.hosts, jobs.culprit_hosts
    asked = (
        jobs.verdict.where(("hung", "failed").__contains__)
        & jobs.cause.where(causes.__contains__)
        & ~jobs.confidence.where("low".__eq__)
    )
    took_part, blamed = hosts.lengths(), culprits.lengths()
    there = hosts.find(culprits)[0]
    both = np.bincount(culprits.rows[there], minlength=hosts.size)
    alone = (took_part == 1) & (blamed == both)  # nobody, or itself
    most = (took_part > 0) & (2 * blamed > took_part + blamed - both)
    return hosts.only(asked & alone).union(culprits.only(asked & ~alone & ~most))


def _places(jobs: Jobs, named: Lists, placed: np.ndarray) -> Places:
    """Incidents as places; the host named by most of the retries of an incident is blamed."""
    rows = np.flatnonzero(placed)
    _, first, number = np.unique(jobs.incident[rows], return_index=True, return_inverse=True)
    order = np.argsort(first)  # an incident's number is a row that may have no place
    first, number = first[order], np.argsort(order)[number]
    hosts = jobs.hosts.at(rows[first])
    # The votes of each incident.
    incident = np.zeros(len(jobs), dtype=np.int64)
    incident[rows] = number
    votes, count = np.unique(
        pair_keys(incident[named.only(placed).rows], named.only(placed).items, named.values),
        return_counts=True,
    )
    jobs_voted = votes // max(1, len(named.values))
    most = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(most, jobs_voted, count)
    accused = pairs(votes[count == most[jobs_voted]], len(first), named.values)
    whole = hosts.union(accused)
    blamed = np.zeros(len(whole.rows), dtype=bool)
    blamed[whole.find(accused)[1]] = True
    known = tally(whole.items, len(whole.values)) > 0
    host = (np.cumsum(known) - 1).astype(np.int32)[whole.items]
    wide = np.searchsorted(1 << np.arange(32), whole.lengths() - 1, side="right").astype(np.int8)
    wide = np.where(hosts.lengths() > 0, wide + 1, 0)
    names = [whole.values[item] for item in np.flatnonzero(known).tolist()]
    rail = np.where(blamed, jobs.rail[rows[first]][whole.rows], -1).astype(np.int8)
    return Places(names, whole.rows, host, wide[whole.rows], blamed, rail)


def _suspects(places: Places) -> list[Suspect]:
    """The suspects, the strongest first, without what only the frame tells."""
    found: list[Suspect] = []
    widths = int(places.width.max(initial=0)) + 1
    counts = counted(places, widths)
    flagged: set[int] = set()
    while True:
        total, expected = counts.blamed.sum(axis=1), counts.expected()
        ratio = total / np.maximum(expected, LEAST_EXPECTED)
        worth = np.flatnonzero((total >= MIN_INCIDENTS) & (ratio >= MIN_RATIO))
        chances = {int(at): chance(counts, int(at)) for at in worth if int(at) not in flagged}
        if not chances:
            return found
        worst = min(chances, key=lambda at: (chances[at], -ratio[at], places.hosts[at]))
        p = min(1.0, chances[worst] * len(places.hosts))
        if p > ALPHA:
            return found
        flagged.add(worst)
        mask = np.arange(len(places.hosts)) == worst
        rail = places.rail_of(mask, float(expected[worst]))
        found.append(
            Suspect(
                places.hosts[worst], int(counts.places[worst].sum()), int(total[worst]),
                round(float(expected[worst]), 3), round(float(ratio[worst]), 2), p, rail=rail,
            )
        )  # fmt: skip
        places = places.without(mask)
        counts = counted(places, widths)


def _counts(places: Places) -> tuple[list[int], list[int], list[int]]:
    """For each node its jobs, those in which it was blamed, and those in which another one was."""
    number = len(places.hosts)
    ill = np.zeros(int(places.job.max(initial=-1)) + 1, dtype=bool)
    ill[places.job[places.blamed]] = True
    of = (slice(None), places.blamed, ill[places.job] & ~places.blamed)
    took_part, blamed, victim = (tally(places.host[which], number).tolist() for which in of)
    return took_part, blamed, victim


def _completed(suspect: Suspect, victim: int, jobs: Jobs, rows: np.ndarray) -> Suspect:
    """The suspect with the jobs in which it was blamed, retries and those without hosts too."""
    rows = jobs.in_time(rows)
    cost = total(jobs.gpu_hours_lost[rows])
    first, last = span(jobs.time[rows])
    return replace(
        suspect, victim=victim, causes=dict(Counter(jobs.cause.of(rows)).most_common()),
        blamed_jobs=jobs.names(rows), gpu_hours_lost=None if cost is None else round(cost, 3),
        first_seen=first, last_seen=last,
    )  # fmt: skip
