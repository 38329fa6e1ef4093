"""Blame by node or unit, and how likely chance alone gives as much; `nodes` says what counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnose.fleet.columns import tally

ALPHA = 0.01
MIN_INCIDENTS = 3
RAIL_SHARE = 2 / 3  # of the excess, on one rail
LEAST_EXPECTED = 0.5  # below, a ratio says little


@dataclass(frozen=True, slots=True)
class Places:
    """One entry for each place of a node in a job."""

    hosts: list[str]
    job: np.ndarray
    host: np.ndarray
    width: np.ndarray  # 0: only who is blamed is known; 1: one node, 2: two, 3: up to four …
    blamed: np.ndarray
    rail: np.ndarray  # which GPU of the node is to blame; -1: not known, or the node is not

    def without(self, hosts: np.ndarray) -> Places:
        """The places without the jobs in which any of the hosts of a mask took part."""
        gone = np.zeros(int(self.job.max(initial=0)) + 1, dtype=bool)
        gone[self.job[hosts[self.host]]] = True
        keep = ~gone[self.job]
        columns = (self.job, self.host, self.width, self.blamed, self.rail)
        return Places(self.hosts, *(column[keep] for column in columns))

    def rail_of(self, hosts: np.ndarray, expected: float) -> int | None:
        """The rail (a GPU of each host, and its adapter) that has the excess of these hosts.

        None where blame is not on one rail more often than elsewhere, or much of it without it.
        """
        known = self.rail >= 0
        own, rest = (
            np.bincount(self.rail[known & there], minlength=1)
            for there in (hosts[self.host], ~hosts[self.host])
        )
        count, rails = int(own.sum()), max(len(own), len(rest))
        if count < MIN_INCIDENTS or rails < 2:
            return None
        rail = int(own.argmax())
        blamed = int(own[rail])
        share = (float(rest[rail : rail + 1].sum()) + 1) / (float(rest.sum()) + rails)
        p = float(binomial(count, share)[blamed:].sum()) * rails
        explained = blamed - share * expected >= RAIL_SHARE * (count - expected)
        return rail if p <= ALPHA and explained else None


@dataclass(frozen=True, slots=True)
class Tally:
    """Places and blame by node and width; `places[node, width]`."""

    places: np.ndarray
    blamed: np.ndarray

    def share(self) -> np.ndarray:
        """The share that each node has of the places in jobs whose hosts are known."""
        known = self.places[:, 1:].sum(axis=1) + self.places.any(axis=1)
        found: np.ndarray = known / max(1, known.sum())
        return found

    def expected(self) -> np.ndarray:
        """Blame that each node would have if it were like the rest, in widths the rest had too."""
        rest = self.places.sum(axis=0) - self.places
        with np.errstate(divide="ignore", invalid="ignore"):
            others = self.blamed.sum(axis=0) - self.blamed
            alike = np.where(rest > 0, others / rest * self.places, self.blamed)
            share = self.share()
            alike[:, 0] = np.where(share < 1, others[:, 0] * share / (1 - share), self.blamed[:, 0])
        found: np.ndarray = alike.sum(axis=1)
        return found


def counted(places: Places, widths: int) -> Tally:
    """Places and blame by host and width."""
    cells = places.host * np.int32(widths) + places.width
    size = len(places.hosts)
    some = (cells, cells[places.blamed])
    return Tally(*(tally(one, size * widths).reshape(size, widths) for one in some))


def chance(counts: Tally, node: int) -> float:
    """P(a node with these places has at least this much blame), all places being alike."""
    chances = binomial(int(counts.blamed[:, 0].sum()), float(counts.share()[node]))
    for width in 1 + np.flatnonzero(counts.places[node, 1:]):
        all_places, all_blamed = counts.places[:, width].sum(), counts.blamed[:, width].sum()
        chances = np.convolve(
            chances,
            hypergeometric(int(all_places), int(all_blamed), int(counts.places[node, width])),
        )
    return float(min(1.0, chances[int(counts.blamed[node].sum()) :].sum()))


def hypergeometric(population: int, marked: int, drawn: int) -> np.ndarray:
    """P(0), P(1), … marked ones among `drawn` of a `population` without putting back."""
    count = np.arange(min(marked, drawn) + 1)
    possible = drawn - count <= population - marked

    def choose(n: int, k: np.ndarray) -> np.ndarray:
        found: np.ndarray = log_factorial(np.array(n)) - log_factorial(k) - log_factorial(n - k)
        return found

    chance = np.zeros(len(count))
    some = count[possible]
    chance[possible] = np.exp(
        choose(marked, some)
        + choose(population - marked, drawn - some)
        - choose(population, np.array([drawn]))
    )
    return chance


def binomial(drawn: int, share: float) -> np.ndarray:
    """P(0), P(1), … of `drawn` that each fall on something with this probability."""
    count = np.arange(drawn + 1)
    ways = log_factorial(np.array(drawn)) - log_factorial(count) - log_factorial(drawn - count)
    with np.errstate(divide="ignore", invalid="ignore"):  # a share of 0 or 1
        hits = np.where(count > 0, count * np.log(share), 0.0)
        misses = np.where(count < drawn, (drawn - count) * np.log1p(-share), 0.0)
    found: np.ndarray = np.exp(ways + hits + misses)
    return found


_FEW = np.log(np.cumprod(np.arange(1.0, 16.0)))  # of 1! to 15!


def log_factorial(count: np.ndarray) -> np.ndarray:
    """The logarithms of factorials, to fifteen digits (Stirling's series), without a table."""
    n = np.maximum(count, 1).astype(np.float64)
    large = n * np.log(n) - n + np.log(2 * np.pi * n) / 2
    large += 1 / (12 * n) - 1 / (360 * n**3) + 1 / (1260 * n**5) - 1 / (1680 * n**7)
    found: np.ndarray = np.where(
        n < len(_FEW), _FEW[np.minimum(n, len(_FEW)).astype(int) - 1], large
    )
    return found
