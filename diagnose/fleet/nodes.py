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

What counts as blame: a cause that moves with the node (NODE_CAUSES), at least medium confidence,
and hosts named that are at most half of the job's (or its only one). Retries on the same hosts
with the same fingerprint on the same day are one incident. Jobs whose hosts are unknown count
neither as blame nor as exposure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd

# The classes whose restart advice is "elsewhere", and p2p, where topology and firmware are the
# node's. Crashes, memory and sockets follow the job: a user's bad code sits on his usual nodes.
NODE_CAUSES = frozenset(
    {"hw.gpu", "hw.node", "net.fabric", "net.p2p", "slow.storage", "slow.straggler"}
)
ALPHA = 0.01
MIN_RATIO = 3.0
MIN_INCIDENTS = 3
_LEAST_EXPECTED = 0.5  # below, a ratio says little


@dataclass(frozen=True, slots=True)
class Node:
    """A node's record. `jobs` counts incidents and other jobs once each; see the module."""

    host: str
    jobs: int
    blamed: int
    victim: int  # took part in a job where another node was blamed


@dataclass(frozen=True, slots=True)
class Suspect:
    """A node that somebody should look at.

    `jobs`, `blamed` and `expected` (blamed incidents, had it been like the rest) are without the
    jobs of stronger suspects. `p` is adjusted for the number of nodes. `gpu_hours_lost` sums the
    jobs in which it was blamed, None if no cost is known.
    """

    host: str
    jobs: int
    blamed: int
    expected: float
    ratio: float
    p: float
    victim: int
    causes: dict[str, int]
    blamed_jobs: list[str]
    gpu_hours_lost: float | None
    first_seen: str | None
    last_seen: str | None


@dataclass(frozen=True, slots=True)
class Nodes:
    """All nodes, most suspect first, and what the comparison rests on."""

    suspects: list[Suspect]
    nodes: list[Node]
    jobs_compared: int
    jobs_without_hosts: int
    blamed_without_hosts: int


@dataclass(frozen=True, slots=True)
class _Places:
    """One entry for each place of a node in a job."""

    hosts: list[str]
    job: np.ndarray
    host: np.ndarray
    width: np.ndarray  # 0: one node, 1: two, 2: up to four, 3: up to eight …
    blamed: np.ndarray


@dataclass(frozen=True, slots=True)
class _Tally:
    """Places and blame by node and width; `places[node, width]`."""

    places: np.ndarray
    blamed: np.ndarray

    def expected(self) -> np.ndarray:
        """Blame that each node would have if it were like the rest, in widths the rest had too."""
        rest = self.places.sum(axis=0) - self.places
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = (self.blamed.sum(axis=0) - self.blamed) / rest
        found: np.ndarray = np.where(rest > 0, rate * self.places, self.blamed).sum(axis=1)
        return found


def nodes(jobs: pd.DataFrame, causes: Collection[str] = NODE_CAUSES) -> Nodes:
    """The nodes of a typed frame of jobs; `causes` are the classes that tell of a node."""
    readable = jobs[~jobs["unreadable"]]
    named = [
        _named(*row)
        for row in zip(
            readable["verdict"], readable["class"], readable["confidence"],
            readable["culprit_hosts"], readable["hosts"], [causes] * len(readable), strict=True,
        )
    ]  # fmt: skip
    readable = readable.assign(named=named)
    known = readable[[bool(hosts) for hosts in readable["hosts"]]]
    places = _places(known)
    suspects = _suspects(places)
    blamed, took_part = _counts(places)
    victims = _victims(places)
    records = [
        Node(host, took_part[at], blamed[at], victims[at]) for at, host in enumerate(places.hosts)
    ]
    flagged = {suspect.host: order for order, suspect in enumerate(suspects)}
    records.sort(
        key=lambda node: (flagged.get(node.host, len(flagged)), -node.blamed, -node.jobs, node.host)
    )
    victim = {node.host: node.victim for node in records}
    unknown = readable[[not hosts for hosts in readable["hosts"]]]
    return Nodes(
        suspects=[_told(suspect, victim[suspect.host], readable) for suspect in suspects],
        nodes=records,
        jobs_compared=int(known["incident"].nunique()),
        jobs_without_hosts=len(unknown),
        blamed_without_hosts=sum(map(bool, unknown["named"])),
    )


def _named(
    verdict: str,
    cause: str,
    confidence: str,
    culprits: list[str],
    hosts: list[str],
    causes: Collection[str],
) -> list[str]:
    """The hosts that a job singles out as broken."""
    if verdict not in ("hung", "failed") or cause not in causes or confidence == "low":
        return []
    if len(hosts) == 1 and culprits in ([], hosts):
        return hosts
    if hosts and 2 * len(culprits) > len(set(hosts) | set(culprits)):
        return []
    return culprits


def _places(known: pd.DataFrame) -> _Places:
    """Incidents as places; the host named by most of the retries of an incident is blamed."""
    hosts: dict[str, int] = {}
    job, host, width, blamed = [], [], [], []
    for number, (_, rows) in enumerate(known.groupby("incident", sort=True)):
        votes = Counter(name for names in rows["named"] for name in names)
        most = max(votes.values(), default=0)
        accused = {name for name, count in votes.items() if count == most}
        taking_part = sorted(set(rows["hosts"].iloc[0]) | accused)
        for name in taking_part:
            job.append(number)
            host.append(hosts.setdefault(name, len(hosts)))
            width.append((len(taking_part) - 1).bit_length())
            blamed.append(name in accused)
    return _Places(
        list(hosts),
        np.array(job, dtype=np.int64),
        np.array(host, dtype=np.int64),
        np.array(width, dtype=np.int64),
        np.array(blamed, dtype=bool),
    )


def _suspects(places: _Places) -> list[Suspect]:
    """The suspects, the strongest first, without what only the frame tells."""
    found: list[Suspect] = []
    inside = np.ones(len(places.job), dtype=bool)
    flagged: set[int] = set()
    while True:
        tally = _tally(places, inside)
        total, expected = tally.blamed.sum(axis=1), tally.expected()
        ratio = total / np.maximum(expected, _LEAST_EXPECTED)
        worth = np.flatnonzero((total >= MIN_INCIDENTS) & (ratio >= MIN_RATIO))
        chances = {int(at): _chance(tally, int(at)) for at in worth if int(at) not in flagged}
        if not chances:
            return found
        worst = min(chances, key=lambda at: (chances[at], -ratio[at], places.hosts[at]))
        p = min(1.0, chances[worst] * len(places.hosts))
        if p > ALPHA:
            return found
        flagged.add(worst)
        found.append(
            Suspect(
                places.hosts[worst], int(tally.places[worst].sum()), int(total[worst]),
                round(float(expected[worst]), 3), round(float(ratio[worst]), 2), p,
                0, {}, [], None, None, None,
            )
        )  # fmt: skip
        its_jobs = places.job[places.host == worst]
        inside &= ~np.isin(places.job, its_jobs)


def _tally(places: _Places, inside: np.ndarray) -> _Tally:
    shape = (len(places.hosts), int(places.width.max(initial=0)) + 1)
    taken, blamed = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    np.add.at(taken, (places.host[inside], places.width[inside]), 1)
    hit = inside & places.blamed
    np.add.at(blamed, (places.host[hit], places.width[hit]), 1)
    return _Tally(taken, blamed)


def _chance(tally: _Tally, node: int) -> float:
    """P(a node with these places has at least this much blame), all places being alike."""
    chances = np.ones(1)
    for width in np.flatnonzero(tally.places[node]):
        all_places, all_blamed = tally.places[:, width].sum(), tally.blamed[:, width].sum()
        chances = np.convolve(
            chances,
            hypergeometric(int(all_places), int(all_blamed), int(tally.places[node, width])),
        )
    return float(min(1.0, chances[int(tally.blamed[node].sum()) :].sum()))


def hypergeometric(population: int, marked: int, drawn: int) -> np.ndarray:
    """P(0), P(1), … marked ones among `drawn` of a `population` without putting back."""
    count = np.arange(min(marked, drawn) + 1)
    possible = drawn - count <= population - marked
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, population + 1)))))

    def choose(n: int, k: np.ndarray) -> np.ndarray:
        found: np.ndarray = logs[n] - logs[k] - logs[n - k]
        return found

    chance = np.zeros(len(count))
    some = count[possible]
    chance[possible] = np.exp(
        choose(marked, some)
        + choose(population - marked, drawn - some)
        - choose(population, np.array([drawn]))
    )
    return chance


def _counts(places: _Places) -> tuple[list[int], list[int]]:
    number = len(places.hosts)
    blamed = np.bincount(places.host[places.blamed], minlength=number)
    return blamed.tolist(), np.bincount(places.host, minlength=number).tolist()


def _victims(places: _Places) -> list[int]:
    """For each node the jobs in which another one was blamed."""
    accused = np.isin(places.job, places.job[places.blamed])
    hit = accused & ~places.blamed
    return [int(count) for count in np.bincount(places.host[hit], minlength=len(places.hosts))]


def _told(suspect: Suspect, victim: int, jobs: pd.DataFrame) -> Suspect:
    """The suspect with the jobs in which it was blamed, retries and those without hosts too."""
    mine = jobs[[suspect.host in named for named in jobs["named"]]].sort_values(["time", "job"])
    cost = mine["gpu_hours_lost"].sum(min_count=1)
    times = mine["time"].dropna()
    return Suspect(
        suspect.host, suspect.jobs, suspect.blamed, suspect.expected, suspect.ratio, suspect.p,
        victim, dict(Counter(mine["class"]).most_common()), list(mine["job"]),
        None if pd.isna(cost) else round(float(cost), 3),
        times.iloc[0].isoformat() if len(times) else None,
        times.iloc[-1].isoformat() if len(times) else None,
    )  # fmt: skip
