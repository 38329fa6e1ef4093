"""What a slow rank is, and what others report of slow ranks: detectors, and the clocks of GPUs.

Pauses that come and go, or that meet all ranks alike, are no slow rank: one is so in most of its
steps, up to the last, and its peers are not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, log
from typing import Literal

from diagnose.parse.pace import Extreme
from diagnose.stories.work import median
from diagnose.timeline.pace import Pace, Watched

# By what a rank is known to be slow.
Basis = Literal["own_work", "reports", "arrives_last", "waits_least", "clock"]

COMPUTE = "compute"
SLOWER = 1.25  # times what its peers need, in one step
FACTOR = 1.3  # the same of most steps
SHARE = 0.1  # of a step that is lost by it, in most
MANY = 3  # at most one of so many ranks is slow, or those of one host
SLOW_IN = 0.55  # share of the steps in which a slow rank is slow
_HALF = 0.5
_SURE = 8.0  # twice the log of how much less often chance alone shows it
_RANKS = 4  # at least so many ranks may be named by a detector
_BACKWARD = 2  # times a forward pass, which detectors time alone: what slows one slows both
_THROTTLED, _CLOCK, _IDLE = 0.5, 0.85, 10.0


@dataclass(frozen=True, slots=True)
class Slow:
    """Ranks that are slower than their peers, or GPUs whose clock is.

    `phase`: the part of a step; None where only the loss is known. `seconds` is what they need for
    it, `peers_s` what the others do, `lost_s` what a step of `step_s` seconds loses by it. `since`:
    the step from which on; None: from the first. `clock`: hardware holds a clock down there, too.
    """

    basis: Basis
    ranks: tuple[int, ...]
    phase: str | None
    seconds: float
    peers_s: float
    lost_s: float
    step_s: float
    since: int | None = None
    agreed: bool = False
    clock: tuple[float, float] | None = None
    gpus: tuple[tuple[str | None, int], ...] = ()
    places: tuple[tuple[str, int], ...] = ()

    @property
    def factor(self) -> float:
        """How many times what its peers need."""
        return self.seconds / self.peers_s if self.peers_s else 0.0

    @property
    def cost(self) -> float:
        """How many times what a step would take without it."""
        rest = self.step_s - self.lost_s
        return self.step_s / rest if rest > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Slowdown:
    """From `since` on a step takes `after_s` seconds, `before_s` before."""

    since: int
    before_s: float
    after_s: float


def last_stretch(flags: Sequence[bool]) -> int | None:
    """From where on to the last most flags are set; None where none is."""
    best, at, total = 0.0, None, 0.0
    for place in range(len(flags) - 1, -1, -1):
        total += flags[place] - _HALF
        if total > best:
            best, at = total, place
    return at


def is_often(share: float, count: float, chance: float, others: int = 1) -> bool:
    """Whether flags are set in far more of so many steps than by chance, by Chernoff's bound.

    The more `others` there are, ranks and steps from which on it might be so, the sooner chance
    alone makes one of them look so.
    """
    if share < max(SLOW_IN, chance) or not 0 < chance < 1:
        return False
    odds = share * log(share / chance)
    odds += (1 - share) * log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return 2 * count * odds >= _SURE + 2 * log(max(1, others))


def reported(pace: Pace, step_s: float) -> Slow | None:
    """By what a detector reports: the slowest of all ranks, again and again the same."""
    reports: dict[tuple[str, int], list[Extreme]] = defaultdict(list)
    for extreme, place in pace.extremes:
        reports[place].append(extreme)
    phases = dict.fromkeys(extreme.phase for extreme, _ in pace.extremes)
    for chosen in ([*phases], *([phase] for phase in phases)):
        rows = [[one for one in row if one.phase in chosen] for row in reports.values()]
        found = _named_in([row for row in rows if row], len(chosen), step_s)
        if found is not None:
            return replace(found, places=([*reports][-1],))
    return None


def _named_in(rows: Sequence[Sequence[Extreme]], phases: int, step_s: float) -> Slow | None:
    """The rank that most of the last reports name for any of so many parts of a step."""
    names = [one.most_rank for row in rows[len(rows) // 2 :] for one in row if _far(one)]
    if not names:
        return None
    ((rank, _),) = Counter(names).most_common(1)
    own = [[one for one in row if one.most_rank == rank and _far(one)] for row in rows]
    ranks = max(max(one.most_rank, one.least_rank) for row in rows for one in row) + 1
    at = _named_often([bool(row) for row in own], 1 - (1 - 1 / max(_RANKS, ranks)) ** phases)
    if at is None:
        return None
    lost: dict[str, float] = defaultdict(float)
    for one in (one for row in own[at:] for one in row):
        lost[one.phase] += (one.most_s - one.least_s) / len(own[at:])
    phase = max(lost, key=lost.__getitem__)
    alike = [one for row in own[at:] for one in row if one.phase == phase]
    most, least = median(one.most_s for one in alike), median(one.least_s for one in alike)
    total = sum(lost.values())
    if most < FACTOR * least or total + _BACKWARD * lost["forward"] < SHARE * step_s:
        return None
    return Slow("reports", (rank,), phase, most, least, total, step_s)


def _far(one: Extreme) -> bool:
    return one.most_s >= SLOWER * one.least_s


def _named_often(flags: Sequence[bool], chance: float) -> int | None:
    """From where on a rank is named far oftener than by chance, up to the last report."""
    at = last_stretch(flags)
    if at is None:
        return None
    count = len(flags) - at
    if not is_often(sum(flags[at:]) / count, count, chance, len(flags)):
        return None
    return at


def clocks(pace: Pace, step_s: float) -> Slow | None:
    """By GPUs that hardware holds far below the clock of the others in most of the last samples."""
    speeds = {key: median(one.mhz[len(one.mhz) // 2 :]) for key, one in pace.gpus.items()}
    if len(speeds) < 2:
        return None
    usual = median(speeds.values())
    slow = [
        key for key, one in pace.gpus.items() if _held_down(one) and speeds[key] <= _CLOCK * usual
    ]
    hosts = {host for host, _ in pace.gpus}
    if not slow or len(slow) > max(1, len(speeds) // MANY):
        return None
    known = (
        len(hosts) == 1
        and len(pace.ranks) <= len(speeds)
        and max(pace.ranks, default=0) < len(speeds)
    )
    ranks = tuple(sorted(index for _, index in slow)) if known else ()
    worst = min(speeds[key] for key in slow)
    return Slow(
        "clock", ranks, COMPUTE, 0.0, 0.0, 0.0, step_s, clock=(worst, usual), gpus=tuple(slow),
        places=tuple(pace.gpus[key].place for key in slow[:4]),
    )  # fmt: skip


def _held_down(one: Watched) -> bool:
    recent = one.throttled[len(one.throttled) // 2 :]
    used = [share for share in one.used[len(one.used) // 2 :] if not isnan(share)]
    busy = not used or median(used) >= _IDLE
    return busy and sum(recent) >= _THROTTLED * len(recent) > 0
