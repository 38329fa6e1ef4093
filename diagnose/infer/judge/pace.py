"""Which rank is slower than its peers, and since which step a job is slower than it was.

Where every step ends in a collective, all ranks take the same time for it, so that a whole step
names nobody. What does is a rank's own work before it meets the others, when it enters a
collective, and that it waits there for less time than they do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from math import inf

from diagnose.infer.judge.slow import (
    COMPUTE,
    FACTOR,
    MANY,
    SHARE,
    SLOW_IN,
    SLOWER,
    Basis,
    Slow,
    Slowdown,
    clocks,
    is_often,
    last_stretch,
    reported,
)
from diagnose.parse.pace import kinds
from diagnose.stories.work import median
from diagnose.timeline.pace import Pace, Track

_PARTS = ("forward", "backward")
_TWO = 1.5  # of two ranks, of which either may be the usual one
_STEP_SHARE = 0.05  # of a step that is lost by it, in one step
_LEAST = 8  # steps
_BEFORE = 0.25  # of what a rank loses, as much as it may have lost before
# Steps over which it is followed how alike they are, and how little is no likeness.
_MEMORY, _UNLIKE = 64, 0.05
# Times as long as any peer ever was slow: whose peers are so for a while may be so by chance,
# who lost then little less than it does.
_AS_LONG, _AS_MUCH = 2.5, 0.6
_QUIET = 0.1  # share of steps in which peers are slow, at least
_PEERS = 64  # ranks with which each one is compared
_PRESENT = 0.7  # of the ranks that have a step
# Times what a rank loses by computing: by anything else, where that is named; and times what other
# slow ranks cost in all their steps: ranks that alone are named then.
_HEAVY = 2.0
_BUCKETS = 120  # of a job's steps, whose medians are compared
_CHANGED, _APART = 1.3, 1.15  # times what a step took before: mostly, and of quartiles
# The last few steps, each of which takes so many times what most took before, and so long as at
# most this share of them.
_FEW, _FAR, _STRAY = 3, 2.0, 0.04
_NS = 1e-9

Grid = dict[int, dict[int, float]]  # key of a step → rank → seconds


def find_slow(pace: Pace, hosts: Mapping[int, str]) -> Slow | None:
    """Who is slow, by whatever names a rank; None where nobody is, or witnesses disagree."""
    step_s = _step_seconds(pace)
    clock = clocks(pace, step_s)
    least = _waits_least(pace, step_s, hosts)
    found = (
        _own_work(pace, step_s, hosts)
        or reported(pace, step_s)
        or _arrives_last(pace, hosts)
        or (None if _work_known(pace) else least)
        or _total(pace, step_s, hosts)
    )
    if found is None:
        return clock
    if least is not None and least.ranks != found.ranks:
        return None
    if clock is not None and clock.ranks == found.ranks:
        found = replace(
            found, clock=clock.clock, gpus=clock.gpus, places=(*found.places, *clock.places)
        )
    return replace(found, agreed=least is not None and found is not least)


def _work_known(pace: Pace) -> bool:
    """Whether ranks print their own work: where that is alike, waits alone name nobody."""
    of_rank = [phase for track in pace.ranks.values() for phase in track.phases]
    return any(kinds()[phase] == "own" for phase in of_rank)


def find_slowdown(pace: Pace, *, ended: bool = False) -> Slowdown | None:
    """Since when steps take much longer than before; None where they do not, up to the last.

    The last few steps of a job that ended well may save and evaluate.
    """
    series = _series(pace)
    return _changed(series) or (None if ended else _late(series))


def _late(series: Sequence[tuple[int, float]]) -> Slowdown | None:
    """The last few steps, if each of them took far longer than those before."""
    if len(series) < 2 * _FEW:
        return None
    earlier, lately = ([took for _, took in part] for part in (series[:-_FEW], series[-_FEW:]))
    before, least = median(earlier), min(lately)
    strays = sum(took >= least for took in earlier)
    if least < _FAR * before or strays > _STRAY * len(earlier):
        return None
    return Slowdown(abs(series[-_FEW][0]), before, median(lately))


def _changed(series: Sequence[tuple[int, float]]) -> Slowdown | None:
    """The two stretches that differ most, if the later one is slower."""
    if len(series) < 2 * _LEAST:
        return None
    size = -(-len(series) // _BUCKETS)
    parts = [series[at : at + size] for at in range(0, len(series), size)]
    values = [median(seconds for _, seconds in part) for part in parts]
    few = max(4, -(-_LEAST // size))
    at = min(
        range(few, len(values) - few + 1),
        key=lambda split: _spread(values[:split]) + _spread(values[split:]),
        default=None,
    )
    if at is None:
        return None
    before, after = sorted(values[:at]), sorted(values[at:])
    one, other = median(before), median(after)
    least = after[len(after) // 4]
    if other < _CHANGED * one or least < _APART * before[3 * len(before) // 4]:
        return None
    # Of times that only vary, some stretch is always slower than the rest.
    chance = max(1, sum(took >= least for took in before)) / len(before)
    share = sum(took >= least for took in after) / len(after)
    if not is_often(share, len(after), chance, len(values)):
        return None
    return Slowdown(abs(parts[at][0][0]), one, other)


# ------------------------------------------------------------------------------ what is compared


def _grid(tracks: Mapping[int, Track], phases: Sequence[str]) -> Grid:
    """Seconds that ranks need for some parts together, for steps that most ranks have."""
    rows: Grid = defaultdict(dict)
    for rank, track in tracks.items():
        columns = [dict(track.of(phase)) for phase in phases]
        for step in columns[0]:
            values = [column.get(step) for column in columns]
            if None not in values:
                rows[step][rank] = sum(value for value in values if value is not None)
    return _common(rows)


def _common(rows: Grid) -> Grid:
    ranks = {rank for row in rows.values() for rank in row}
    enough = max(2, _PRESENT * len(ranks))
    return {step: rows[step] for step in sorted(rows, key=abs) if len(rows[step]) >= enough}


def _step_seconds(pace: Pace) -> float:
    """What a step takes, as far as times of whole steps or of their parts are printed."""
    series = _series(pace)
    recent = [seconds for _, seconds in series[len(series) // 2 :]]
    return median(recent) if recent else 0.0


def _series(pace: Pace) -> list[tuple[int, float]]:
    """Steps in order with what each took."""
    tracks = [track for track in pace.tracks if track.steps] or [*pace.tracks]
    rows: dict[int, list[float]] = defaultdict(list)
    whole = [track for track in tracks if "total" in track.phases]
    for track in whole:
        for step, seconds in track.of("total"):
            rows[step].append(seconds)
    if not rows:
        parts = kinds()
        for track in tracks:
            columns = [dict(track.of(name)) for name in track.phases if name in parts]
            for step in columns[0] if columns else ():
                rows[step].append(sum(column.get(step, 0.0) for column in columns))
    if not rows:
        for track in tracks:
            for step, seconds in _between_marks(track):
                rows[step].append(seconds)
    return [(step, median(rows[step])) for step in sorted(rows, key=abs)]


def _between_marks(track: Track) -> Iterable[tuple[int, float]]:
    """Seconds a step by the times of the lines of one kind, of which there are most."""
    steps, times = max(track.marks.values(), key=lambda mark: len(mark[0]), default=((), ()))
    for (step, time), (later, then) in pairwise(zip(steps, times, strict=True)):
        if later > step and then > time:
            yield later, (then - time) * _NS / (later - step)


# ------------------------------------------------------------------------------ who is slow


@dataclass(frozen=True, slots=True)
class _Lag:
    """How a rank compares from its step `at` on: typical values; `before_s`: its loss before."""

    at: int
    steps: int
    since: int
    seconds: float
    peers_s: float
    lost_s: float
    before_s: float


def _own_work(pace: Pace, step_s: float, hosts: Mapping[int, str]) -> Slow | None:
    """By what a rank does before it meets the others. Who waits for it seems slow afterwards."""
    named: dict[str, dict[int, _Lag]] = {}
    for phase, kind in kinds().items():
        if kind in ("own", "exchange"):
            named[phase] = _slow_ranks(_grid(pace.ranks, [phase]), step_s, hosts)
    together = _slow_ranks(_grid(pace.ranks, _PARTS), step_s, hosts)
    first = next((set(lags) for lags in named.values() if lags), set(together))
    others = {rank for lags in named.values() for rank in lags} - first
    if not first or (others and len(pace.ranks) < MANY):
        return None
    lost = {phase: _most(lags, first) for phase, lags in named.items() if first <= lags.keys()}
    if first <= together.keys():
        for part in _PARTS:
            lost.pop(part, None)
        lost[COMPUTE], named[COMPUTE] = _most(together, first), together
    if COMPUTE in lost and max(lost.values()) < _HEAVY * lost[COMPUTE]:
        phase = COMPUTE
    else:
        phase = max(lost, key=lost.__getitem__)
    found = _slow("own_work", phase, {r: named[phase][r] for r in first}, pace, step_s)
    # Stages of a pipeline have different work from the first step on.
    staged = any(kinds()[name] == "stage" for track in pace.ranks.values() for name in track.phases)
    return None if staged and found.since is None else found


def _most(lags: Mapping[int, _Lag], ranks: Iterable[int]) -> float:
    return max(lags[rank].lost_s for rank in ranks)


def _total(pace: Pace, step_s: float, hosts: Mapping[int, str]) -> Slow | None:
    """By times of whole steps, which differ only where ranks do not wait for each other."""
    lags = _slow_ranks(_grid(pace.ranks, ["total"]), step_s, hosts)
    return _slow("own_work", "total", lags, pace, step_s) if lags else None


def _waits_least(pace: Pace, step_s: float, hosts: Mapping[int, str]) -> Slow | None:
    """By the time for which ranks wait for each other: who comes last waits for nobody."""
    grid = _grid(pace.ranks, ["wait"])
    longest = {step: max(row.values()) for step, row in grid.items()}
    turned = {step: {r: longest[step] - v for r, v in row.items()} for step, row in grid.items()}
    lags = _slow_ranks(turned, step_s, hosts, ratio=False)
    return _slow("waits_least", None, lags, pace, step_s) if lags else None


def _slow(
    basis: Basis, phase: str | None, lags: Mapping[int, _Lag], pace: Pace, step_s: float
) -> Slow:
    ranks = tuple(sorted(lags))
    worst = max(lags.values(), key=lambda lag: lag.lost_s)
    first = min(lags.values(), key=lambda lag: lag.at)
    places = [place for rank in ranks for place in pace.ranks[rank].places[-1:]]
    return Slow(
        basis, ranks, phase, worst.seconds, worst.peers_s, worst.lost_s, step_s,
        abs(first.since) if first.at and first.since >= 0 else None, places=tuple(places[:4]),
    )  # fmt: skip


def _slow_ranks(
    grid: Grid, step_s: float, hosts: Mapping[int, str], *, ratio: bool = True
) -> dict[int, _Lag]:
    """Ranks that need much longer than their peers in most steps from some step on to the last.

    With `ratio` the times themselves are compared, else only what is lost. Of a rank that was as
    fast as its peers before, half as much counts.
    """
    ranks = sorted({rank for row in grid.values() for rank in row})
    if len(ranks) < 2 or len(grid) < _LEAST:
        return {}
    whole = step_s or median(max(row.values()) for row in grid.values())
    found = _lags(grid, ranks, whole, 1.0, ratio=ratio)
    if not found:
        found = _lags(grid, ranks, whole, 0.5, ratio=ratio)
        found = {rank: lag for rank, lag in found.items() if lag.before_s < _BEFORE * lag.lost_s}
    return _few(found, ranks, hosts)


def _lags(
    grid: Grid, ranks: Sequence[int], whole: float, much: float, *, ratio: bool
) -> dict[int, _Lag]:
    """How ranks lag that lose `much` times what counts otherwise, of steps that take `whole`."""
    usual = {step: _low(row.values()) for step, row in grid.items()}
    least, slower = much * (_STEP_SHARE if ratio else SHARE) * whole, 1 + much * (SLOWER - 1)
    flags: dict[int, list[bool]] = {rank: [] for rank in ranks}
    for step, row in grid.items():
        for rank in ranks:
            value, peers = row.get(rank, usual[step]), usual[step]
            flags[rank].append(value - peers >= least and (not ratio or value >= slower * peers))
    found: dict[int, _Lag] = {}
    compared = ranks[:: -(-len(ranks) // _PEERS)]
    for rank in ranks:
        others = [flags[other] for other in compared if other != rank]
        at = _since(flags[rank], others, len(ranks) - 1)
        if at is None:
            continue
        steps = [step for step in [*grid][at:] if rank in grid[step]]
        seconds, peers_s = median(grid[s][rank] for s in steps), median(usual[s] for s in steps)
        lost = median(grid[s][rank] - usual[s] for s in steps)
        earlier = [grid[s][rank] - usual[s] for s in [*grid][:at] if rank in grid[s]]
        before = median(earlier) if len(earlier) >= _LEAST else lost
        factor = 1 + much * (FACTOR - 1)
        if lost >= much * SHARE * whole and (not ratio or seconds >= factor * peers_s):
            found[rank] = _Lag(at, len(steps), steps[0], seconds, peers_s, lost, before)
    usual_ones = [rank for rank in compared if rank not in found] if found else []
    losses = [[row.get(r, -inf) - usual[s] for s, row in grid.items()] for r in usual_ones]
    return {rank: lag for rank, lag in found.items() if not _as_long(lag, losses)}


def _few(found: dict[int, _Lag], ranks: Sequence[int], hosts: Mapping[int, str]) -> dict[int, _Lag]:
    """Those that are slow, if they are few, or those of one host among several."""
    if len(ranks) == 2:
        return {rank: lag for rank, lag in found.items() if lag.seconds >= _TWO * lag.peers_s}
    most = max((lag.lost_s * lag.steps for lag in found.values()), default=0.0)
    worst = {rank: lag for rank, lag in found.items() if _HEAVY * lag.lost_s * lag.steps >= most}
    if len(worst) <= len(ranks) // MANY:
        return worst
    own = {hosts.get(rank) for rank in found}
    rest = {hosts.get(rank) for rank in ranks if rank not in found}
    return found if len(own) == 1 and None not in own and not own & rest else {}


def _since(flags: Sequence[bool], others: Sequence[Sequence[bool]], many: int) -> int | None:
    """From which step on to the last a rank is slow in most of them, and its peers are not.

    `others` are peers, of `many`. 0 where it is so all along; None where it is not.
    """
    at = last_stretch(flags)
    if at is None or len(flags) - at < max(_LEAST, len(flags) // 8):
        return None
    count = len(flags) - at
    lately = flags[-max(_LEAST, count // 8) :]
    if 2 * sum(lately) < len(lately):
        return None  # it was
    share = sum(flags[at:]) / count
    usual = [one for one in others if sum(one[at:]) < SLOW_IN * count] or [*others]
    then = sum(map(sum, (one[at:] for one in usual))) / (count * len(usual))
    ever = sum(map(sum, usual)) / (len(flags) * len(usual))
    chance = max(_QUIET, 1 / (1 + many), then, ever)
    if not is_often(share, count / _apart(usual), chance, many * len(flags)):
        return None
    return 0 if at < max(4, len(flags) // 10) else at


def _as_long(lag: _Lag, losses: Iterable[list[float]]) -> bool:
    """Whether a peer, whose losses these are, lost little less in nearly as many steps in a row."""
    least, most = _AS_MUCH * lag.lost_s, lag.steps / _AS_LONG
    late = ([lost >= least for lost in own] for own in losses)
    return any(_longest(one) > most for one in late if 2 * sum(one) > most)  # mostly of none


def _longest(flags: Sequence[bool]) -> int:
    """The most steps in a row in most of which a rank is slow."""
    first: dict[int, int] = {}  # by how many more are set than not, up to a step: that step
    more = longest = 0
    for at, slow in enumerate(flags):
        first.setdefault(more, at)
        more += 1 if slow else -1
        begin = 0 if more > 0 else first.get(more - 1, at + 1)
        longest = max(longest, at + 1 - begin)
    return longest


def _apart(flags: Sequence[Sequence[bool]]) -> float:
    """How many steps of usual ranks say as much as one, as who was late may stay so for a while.

    The sum of how alike steps are that lie ever further apart, as far as they are.
    """
    shares = [sum(one) / len(one) for one in flags]
    varied = sum(share * (1 - share) * len(one) for one, share in zip(flags, shares, strict=True))
    apart = 1.0
    for lag in range(1, min(_MEMORY, len(flags[0]) // 4)) if varied else ():
        alike = (
            sum(
                sum(compress(one[lag:], one)) - share * share * (len(one) - lag)
                for one, share in zip(flags, shares, strict=True)
            )
            / varied
        )
        if alike <= _UNLIKE:
            break
        apart += 2 * alike
    return apart


def _low(values: Iterable[float]) -> float:
    """The median; of an even count the smaller of the middle two."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(value - middle) for value in values)


def _arrives_last(pace: Pace, hosts: Mapping[int, str]) -> Slow | None:
    """By who writes last that it has come to a place, though not to the place after it.

    The clock of a host may be ahead: what a rank is late by everywhere is its clock.
    """
    by_kind: dict[str, Grid] = defaultdict(lambda: defaultdict(dict))
    for rank, track in pace.ranks.items():
        for kind, (steps, times) in track.marks.items():
            for step, time in zip(steps, times, strict=True):
                by_kind[kind][step][rank] = time * _NS
    grids = {kind: _common(rows) for kind, rows in by_kind.items()}
    grids = {kind: grid for kind, grid in grids.items() if len(grid) > 1}
    if len(grids) < 2 and len({hosts.get(rank) for rank in pace.ranks}) != 1:
        return None
    late = {kind: {s: _lateness(row) for s, row in grid.items()} for kind, grid in grids.items()}
    usual: dict[int, float] = {}
    if len(grids) > 1:
        for rank in pace.ranks:
            own = [[row[rank] for row in rows.values() if rank in row] for rows in late.values()]
            late_by = [median(values) for values in own if values]
            # Who is early at one place and late at another has no clock of its own.
            same = bool(late_by) and (min(late_by) > 0 or max(late_by) < 0)
            usual[rank] = min(late_by) if same else 0.0
    elif None in {hosts.get(rank) for rank in pace.ranks}:
        return None
    found: list[Slow] = []
    for kind, grid in grids.items():
        middles = [_low(row.values()) for row in grid.values()]
        gaps = [other - one for one, other in pairwise(middles) if other > one]
        step_s = median(gaps) if gaps else 0.0
        rows = {
            step: {rank: max(0.0, value - usual.get(rank, 0.0)) for rank, value in row.items()}
            for step, row in late[kind].items()
        }
        lags = _slow_ranks(rows, step_s, hosts, ratio=False) if step_s else {}
        if lags:
            found.append(_slow("arrives_last", None, lags, pace, step_s))
    return max(found, key=lambda one: one.lost_s, default=None)


def _lateness(row: Mapping[int, float]) -> dict[int, float]:
    usual = _low(row.values())
    return {rank: time - usual for rank, time in row.items()}
