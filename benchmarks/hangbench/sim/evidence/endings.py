"""When each process of a job that stands still ends, and of what."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.hangbench.sim.evidence.releases import Release
from benchmarks.hangbench.sim.outcome import Outcome, Rank, Work

# Who ends the other processes once one has ended badly:
#   job     the launcher of the whole job, whatever ended the first (`srun -K`, an operator)
#   node    each node's launcher on its own (torchrun on several nodes)
#   abort   the launcher of the whole job, but only once a watchdog has aborted its process
#   none    nobody
Teardown = Literal["job", "node", "abort", "none"]

SIGABRT, SIGKILL, SIGTERM = 6, 9, 15
GRACE_S = 10.0
LINK_S = 32.0  # what an adapter tries before it gives a link up: 7 times 4.3 s and some


@dataclass(frozen=True, slots=True)
class Expiry:
    """A watchdog's finding that `work` has been pending for longer than its timeout.

    peer: where NCCL reported an error of the network instead, the rank at whose end it was.
    """

    time: float
    work: Work
    peer: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a process: its exit status, negative for a signal; `cause`: who brought it."""

    time: float
    status: int
    cause: Literal["own", "abort", "stopped"]


@dataclass(frozen=True, slots=True)
class Endings:
    """ends: by rank, of those that ended. expiries: by rank what its watchdogs found, in order.

    stops: by node when its launcher stopped what still ran, infinite if it never did.
    """

    ends: Mapping[int, Ending]
    expiries: Mapping[int, list[Expiry]]
    stops: list[float]


def watched(work: Work, release: Release) -> bool:
    """Whether a watchdog of this release looks at the work.

    Until 2.1 plain sends and receives were not enqueued for it; until 1.13 no batch of them was.
    """
    if release.torch == "1.13":
        return not work.p2p
    if release.torch == "2.1":
        return not work.p2p or work.op == "coalesced"
    return True


def endings(
    outcome: Outcome,
    release: Release,
    rng: random.Random,
    teardown: Teardown,
    grace_s: float = GRACE_S,
    handling_s: float = 0.2,
    network_errors: bool = False,
) -> Endings:
    """Compute who aborts, and whom a launcher stops before its own deadline.

    handling_s: from a timeout to the abort of its process (longer where dumps are written).
    grace_s: from the first bad end to SIGTERM for all others. network_errors: NCCL notices that
    processes are gone and links dead, so that those who wait for them need no timeout.
    """
    gone = _unreachable(outcome) if network_errors else []
    look = 1.0 if release.torch == "1.13" else 0.1
    own: dict[int, Ending] = {}
    expiries: dict[int, list[Expiry]] = {}
    aborts: dict[int, float] = {}
    for rank in outcome.ranks:
        end = _own_end(rank)
        if end is not None:
            own[rank.rank] = end
        found = [
            Expiry(work.created + outcome.timeout_s + rng.random() * look + 0.002, work)
            for work in _oldest(rank, release)
        ]
        if gone:
            found += _network_errors(outcome, rank, release, rng, gone)
        found = sorted(
            (one for one in found if end is None or one.time < end.time), key=lambda one: one.time
        )
        if found:
            abort = found[0].time + handling_s * (0.6 + 0.8 * rng.random())
            aborts[rank.rank] = abort
            expiries[rank.rank] = [one for one in found if one.time < abort]
    stops = _stops(outcome, release, rng, teardown, grace_s, own, aborts)
    ends: dict[int, Ending] = {}
    for rank in outcome.ranks:
        number, stop = rank.rank, stops[rank.node]
        first = own.get(number) or Ending(aborts.get(number, math.inf), -SIGABRT, "abort")
        if first.time < stop or (number in own and own[number].status == 0):
            if first.time < math.inf:
                ends[number] = first
        elif stop < math.inf:
            ends[number] = Ending(stop + 0.02 * (1 + rank.local_rank), -SIGTERM, "stopped")
        limit = ends[number].time if number in ends else math.inf
        if number in expiries:
            expiries[number] = [one for one in expiries[number] if one.time < limit]
    return Endings(ends, {rank: found for rank, found in expiries.items() if found}, stops)


def _own_end(rank: Rank) -> Ending | None:
    """How a process ended of itself; an exception ends it with status 1."""
    if rank.ended is None:
        return None
    status = {"raised": 1, "left": 0, "lost": -SIGKILL}.get(rank.end)
    if rank.end == "killed":
        status = -int(rank.stuck_in or SIGKILL)
    return None if status is None else Ending(rank.ended, status, "own")


def _oldest(rank: Rank, release: Release) -> list[Work]:
    """The oldest pending work of each group, of those that a watchdog looks at."""
    oldest: dict[str, Work] = {}
    for work in rank.works:
        if work.finished is None and watched(work, release):
            held = oldest.get(work.group)
            if held is None or work.created < held.created:
                oldest[work.group] = work
    return list(oldest.values())


@dataclass(frozen=True, slots=True)
class _Unreachable:
    """Ranks that cannot be reached since `time`, by those on `nodes` (None: by nobody)."""

    time: float
    ranks: frozenset[int]
    nodes: frozenset[int] | None = None


def _unreachable(outcome: Outcome) -> list[_Unreachable]:
    """Processes that have died, and the other ends of a dead link."""
    found = [
        _Unreachable(rank.ended, frozenset((rank.rank,)))
        for rank in outcome.ranks
        if rank.ended is not None and rank.end in ("killed", "raised", "lost")
    ]
    if outcome.link is not None and outcome.fault_at is not None:
        for near, far in (outcome.link, outcome.link[::-1]):
            ranks = frozenset(rank.rank for rank in outcome.ranks if rank.node == far)
            found.append(_Unreachable(outcome.fault_at + LINK_S, ranks, frozenset((near,))))
    return found


def _network_errors(
    outcome: Outcome,
    rank: Rank,
    release: Release,
    rng: random.Random,
    gone: list[_Unreachable],
) -> list[Expiry]:
    """The first error of each group in which a rank waits for one that cannot be reached."""
    found = []
    for work in _oldest(rank, release):
        peers = [peer for _, peer in work.peers] or outcome.groups[work.group].members
        for one in gone:
            lost = one.ranks.intersection(peers) - {rank.rank}
            if lost and (one.nodes is None or rank.node in one.nodes):
                time = max(one.time, work.created) + rng.uniform(0.5, 4.0)
                found.append(Expiry(time, work, min(lost)))
                break
    return found


def _stops(
    outcome: Outcome,
    release: Release,
    rng: random.Random,
    teardown: Teardown,
    grace_s: float,
    own: Mapping[int, Ending],
    aborts: Mapping[int, float],
) -> list[float]:
    """By node, when its launcher stops what still runs."""
    never = [math.inf] * outcome.nodes
    if teardown == "none":
        return never
    if teardown == "node":
        for rank in outcome.ranks:
            end = own.get(rank.rank)
            bad = end.time if end is not None and end.status else aborts.get(rank.rank, math.inf)
            if rank.end == "lost":
                bad = math.inf  # its launcher is lost with it
            never[rank.node] = min(never[rank.node], bad)
        return [time + release.poll_s * rng.uniform(0.2, 1.0) for time in never]
    bad_ends = list(aborts.values())
    if teardown == "job":
        bad_ends += [end.time for end in own.values() if end.status]
    return [min(bad_ends, default=math.inf) + grace_s] * outcome.nodes
