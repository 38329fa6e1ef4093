"""Since which version, image or week a cause is more frequent, and until which.

Labels whose values have an order (versions, images by their tags, weeks) are split at every value,
and at every two for what was fixed again. The likelihood of two rates against one finds the split;
jobs are compared with others of their size, as large ones fail more often. How much the rates of
weeks vary without any split is taken off; Fisher's exact test is asked as well, as counts are
small. How many independent looks all splits of a label are worth is read off the same jobs with the
incidents dealt anew; labels and causes count one by one (Bonferroni), half of it for all causes
together. What fits nearly as well is the interval of the first value; another label that does is
named beside it. A week and a version that came in it are separated by jobs of both versions in one
week; where these do not, the version is named. Retries count once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, lgamma, log

import numpy as np

from diagnose.fleet import intervals
from diagnose.fleet.grouping import NOT_KNOWN, WEEK, Places, label, places_of
from diagnose.fleet.jobs import Jobs
from diagnose.fleet.trend import ALL

_ALPHA = 0.01  # chance that a fleet in which nothing changed has any
_LEAST_JOBS, _LEAST = 10, 5  # on either side, and incidents that are more frequent
_NEAR = 3.84  # of twice the log-likelihood: 95 % for one place
_RISEN = 2.7  # the same: 95 % for a rise
_FIXED = 6.0  # more of it, for an end as well
_DEALT, _SEED = 300, 1  # times that incidents are dealt anew
_SHARE = 0.05  # of these times, by which looks are counted
_APART = 0.05  # chance of a difference among jobs that are alike otherwise
_MANY = 400.0  # variance above which a count is as good as normal
_FAR = 20  # standard deviations, and one more, beyond which no count is looked at
_LEAST_WEEKS = 8  # of which one can tell how much weeks vary
_MOST_LABELS, _MOST_VALUES = 24, 80
_KNOWN = 0.8  # of the jobs that have a label
_NAMED = frozenset({"version", "image", "tag", "commit", "build", "release", "driver", "date"})
_NUMBERS = re.compile(r"\d+(?:[._\-]\d+)+|\d{2,}|\d+")
_BEFORE = re.compile(r"[._\-]?(?:rc|a|b|alpha|beta|dev|pre)[._\-]?\d")


@dataclass(frozen=True, slots=True)
class Since:
    """A cause that is more frequent since a value of a label.

    `name` is the cause class, or all causes; `first` the first value that has more, which may as
    well be any from `earliest` to `latest`; `until` the first without, None where it goes on.
    `before` of `jobs_before` jobs had it on other values, `now` of `jobs_now` on these; `ratio` is
    how many times as large the rate is, None where it was 0, with its interval. `also` are other
    labels that explain it nearly as well. `p` is the chance, for as many as were looked at.
    """

    name: str
    label: str
    first: str
    earliest: str
    latest: str
    until: str | None
    before: int
    jobs_before: int
    now: int
    jobs_now: int
    ratio: float | None
    low: float
    high: float | None
    also: list[str]
    p: float


@dataclass(frozen=True, slots=True, eq=False)
class _Ordered:
    """A label: its values in their order, and the place of each job among them, -1 without."""

    name: str
    values: Sequence[str]
    at: np.ndarray


@dataclass(frozen=True, slots=True)
class _Asked:
    """A cause: which jobs have it, which count, and the class of size and the week of each job."""

    has: np.ndarray
    usable: np.ndarray
    size: np.ndarray
    week: np.ndarray


@dataclass(frozen=True, slots=True)
class _Table:
    """Jobs, and those that have the cause, by stratum (row) and value of a label (column).

    Of a stratum each job has it as likely as another, if the label means nothing.
    """

    jobs: np.ndarray
    having: np.ndarray

    @property
    def expected(self) -> np.ndarray:
        """How many of each value would have the cause, if the label meant nothing."""
        found: np.ndarray = (self.having.sum(axis=1) / self.jobs.sum(axis=1)) @ self.jobs
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    """The best split of a label for a cause: from `first` to before `end`."""

    label: _Ordered
    first: int
    end: int
    gain: float
    p: float
    near: tuple[int, int]
    counts: tuple[int, int, int, int]

    @property
    def worth(self) -> float:
        """The gain, less what a label with more values gains by chance."""
        return self.gain - 2 * log(len(self.label.values))


def since(jobs: Jobs) -> list[Since]:
    """What is more frequent since a version, an image or a week; the surest first."""
    labels = [*_labels(jobs)]
    once = jobs.troubled & (jobs.incident == np.arange(len(jobs)))
    causes = jobs.cause.codes
    totals = np.bincount(causes[once], minlength=len(jobs.cause.values))
    asked = [(ALL, once)] + [
        (jobs.cause.values[code] or NOT_KNOWN, once & (causes == code))
        for code in np.argsort(-totals, kind="stable").tolist()
        if totals[code] >= _LEAST
    ]
    weeks = next((one.at for one in labels if one.name == WEEK), None)
    size, week = _sizes(jobs), np.full(len(jobs), -1, np.int8) if weeks is None else weeks
    found = []
    for name, mask in asked:
        tests = 2 * len(labels) * (1 if name == ALL else len(asked) - 1)
        of = _Asked(mask, ~jobs.unreadable, size, week)
        splits = [split for one in labels if (split := _best(one, of)) is not None]
        sure = [split for split in splits if split.p * tests < _ALPHA]
        if sure:
            found.append(_since(name, _explaining(sure, splits, of), tests))
    return sorted(found, key=lambda one: (one.p, one.name != ALL))


# --- labels that have an order --------------------------------------------------------------------


def _labels(jobs: Jobs) -> Iterator[_Ordered]:
    weeks = places_of(jobs, WEEK)
    names = [name for name in weeks.names if name != NOT_KNOWN]
    yield from _label(WEEK, len(jobs), weeks, names)
    every = {key for one in (*jobs.labels.values, *jobs.versions.values) for key in one}
    for name in sorted(every)[:_MOST_LABELS]:
        column = label(jobs, name)
        order = _order(name, column.values, np.bincount(column.codes, minlength=len(column.values)))
        if order:
            rows = np.flatnonzero(~jobs.unreadable)
            yield from _label(
                name, len(jobs), Places(rows, column.codes[rows], column.values), order
            )


def _label(name: str, size: int, places: Places, order: Sequence[str]) -> Iterator[_Ordered]:
    """The label, where it has values enough; of very many the last ones."""
    kept = [*order][-_MOST_VALUES:]
    numbers = {value: number for number, value in enumerate(kept)}
    at = np.full(size, -1, dtype=np.int8)  # of a million jobs and two dozen labels
    codes = np.array([numbers.get(value, -1) for value in places.names], dtype=np.int8)
    at[places.rows] = codes[places.keys]
    if len(kept) > 1:
        yield _Ordered(name, kept, at)


def _order(name: str, values: Sequence[str], counts: np.ndarray) -> list[str]:
    """The values in the order of their versions; none where they are no versions or dates."""
    keys: dict[str, tuple[str, tuple[int, ...]]] = {}
    for value in filter(None, values):
        found = _NUMBERS.search(value)
        if found and (name.lower() in _NAMED or "." in found[0] or len(found[0]) >= 8):
            text = value[found.start() :].partition("+")[0]
            early = _BEFORE.search(text)
            numbers = tuple(
                map(int, re.findall(r"\d{1,18}", text[: early.start() if early else None]))
            )
            late = tuple(map(int, re.findall(r"\d{1,18}", early[0]))) if early else ()
            keys[value] = value[: found.start()], (*numbers, -1 if early else 0, *late)
    weights: dict[str, int] = {}
    for value, count in zip(values, counts.tolist(), strict=True):
        if value in keys:
            weights[keys[value][0]] = weights.get(keys[value][0], 0) + count
    if not weights:
        return []
    most = max(weights, key=lambda one: weights[one])
    known = sum(count for value, count in zip(values, counts.tolist(), strict=True) if value)
    if weights[most] < _KNOWN * known:
        return []
    chosen = [value for value, (stem, _) in keys.items() if stem == most]
    return sorted(chosen, key=lambda value: (keys[value][1], value))


def _sizes(jobs: Jobs) -> np.ndarray:
    """Classes of jobs that fail as often by their size: a power of two of ranks each."""
    found: np.ndarray = np.log2(1 + np.maximum(0, np.nan_to_num(jobs.ranks))).astype(np.int8)
    return found


# --- splits ---------------------------------------------------------------------------------------


def _best(one: _Ordered, of: _Asked) -> _Split | None:
    """The likeliest values between which the cause is more frequent than elsewhere."""
    here = (one.at >= 0) & of.usable
    size = len(one.values)
    table = _table(of.size[here], one.at[here], of.has[here], size)
    splits = _splits(table)
    having = table.having.sum(axis=0)
    best = int(np.argmax(gain := splits.gains(having[None])[0]))
    if gain[best] == -inf:
        return None
    gain = splits.gains(having[None], _vary(one, of, here, splits, best))[0]
    best = int(np.argmax(gain))
    values = slice(int(splits.first[best]), int(splits.end[best]))
    p = max(_exact(table, values), _tail(float(gain[best])))
    if p < _ALPHA:  # what is none at once is none among many
        p = min(1.0, p * _looks(table, splits))
    same = (splits.end == values.stop) & (gain >= gain[best] - _NEAR)
    near = int(splits.first[same].min()), int(splits.first[same].max())
    k1, n1 = int(having[values].sum()), int(table.jobs[:, values].sum())
    counts = int(having.sum()) - k1, int(table.jobs.sum()) - n1, k1, n1
    return _Split(one, values.start, values.stop, float(gain[best]), p, near, counts)


def _table(strata: np.ndarray, at: np.ndarray, has: np.ndarray, size: int) -> _Table:
    """Counted by stratum and by value of a label that has `size` of them."""
    rows = int(strata.max(initial=0)) + 1
    cell = strata.astype(np.int64) * size + at
    jobs, having = (np.bincount(one, minlength=rows * size) for one in (cell, cell[has]))
    jobs, having = jobs.reshape(rows, size), having.reshape(rows, size)
    some = jobs.any(axis=1)
    return _Table(jobs[some], having[some])


def _between(counts: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """By row of counts of each value: their sums from one value to before another."""
    sums = np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1)
    found: np.ndarray = sums[:, end] - sums[:, first]
    return found


@dataclass(frozen=True, slots=True)
class _Splits:
    """All splits of a label, from `first` to before `end`.

    `expected` are inside and `before` below `first`, `every` of all, and `variance` is that of
    those inside, if each job of a stratum has the cause as likely as another; `wide` says where
    there are jobs enough on both sides.
    """

    first: np.ndarray
    end: np.ndarray
    expected: np.ndarray
    before: np.ndarray
    every: float
    variance: np.ndarray
    wide: np.ndarray
    open: np.ndarray

    def gains(self, having: np.ndarray, vary: np.ndarray | float = 0.0) -> np.ndarray:
        """Twice the log-likelihood of two rates by row of `having` and split.

        Less where there is an end as well, and where the log of their ratio may `vary` by more.
        """
        k1 = _between(having, self.first, self.end)
        k0, e1 = having.sum(axis=1, keepdims=True) - k1, self.expected
        e0 = self.every - e1
        usable = self.wide & (k1 >= _LEAST) & (k1 * e0 > k0 * e1) & self._risen(having, k1)
        with np.errstate(divide="ignore", invalid="ignore"):
            # a job has a cause once: where many do, chance is less than among independent events
            gain = 2 * (_likelier(k0, e0) + _likelier(k1, e1))
            gain *= e1 * e0 / self.every / self.variance
            gain /= 1 + vary * gain / np.log((k1 / e1) / (np.maximum(k0, 0.5) / e0)) ** 2
        return np.where(usable, gain - np.where(self.open, 0.0, _FIXED), -inf)

    def _risen(self, having: np.ndarray, k1: np.ndarray) -> np.ndarray:
        """Whether the rate is higher than on the values before alone, by more than a little."""
        start = np.zeros_like(self.first)
        k0, e1 = _between(having, start, self.first), self.expected
        with np.errstate(divide="ignore", invalid="ignore"):
            both = (k0 + k1) / (self.before + e1)
            gain = 2 * (_likelier(k0, both * self.before) + _likelier(k1, both * e1))
        found: np.ndarray = (k1 * self.before > k0 * e1) & (gain >= _RISEN)
        return found


def _splits(table: _Table) -> _Splits:
    size = len(table.expected)
    first, end = np.triu_indices(size + 1, 1)
    first, end = first[first > 0], end[first > 0]
    of, some = table.jobs.sum(axis=1)[:, None], table.having.sum(axis=1)[:, None]
    inside = _between(table.jobs, first, end)
    variance = some * (of - some) / np.maximum(1, of - 1) * (inside / of) * (1 - inside / of)
    n1, every = inside.sum(axis=0), table.jobs.sum()
    expected = _between(table.expected[None], first, end)[0]
    variance = variance.sum(axis=0)
    wide = (n1 >= _LEAST_JOBS) & (every - n1 >= _LEAST_JOBS) & (variance > 0)
    before = _between(table.expected[None], np.zeros_like(first), first)[0]
    return _Splits(first, end, expected, before, float(some.sum()), variance, wide, end == size)


def _likelier(some: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The log of how much likelier so many are than if as many as expected were due."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = np.where(some > 0, some * np.log(some / expected), 0.0)
    return found


def _looks(table: _Table, splits: _Splits) -> float:
    """How many independent looks the best of all splits is worth."""
    random = np.random.default_rng(_SEED)
    dealt = np.zeros((_DEALT, len(table.expected)), dtype=np.int64)
    for jobs, some in zip(table.jobs, table.having.sum(axis=1).tolist(), strict=True):
        dealt += random.multivariate_hypergeometric(jobs, some, size=_DEALT, method="marginals")
    best = np.sort(splits.gains(dealt).max(axis=1))[::-1]
    reached = _tail(float(best[int(_SHARE * _DEALT)]))
    return max(1.0, _SHARE / max(reached, 1e-9))


def _vary(
    one: _Ordered, of: _Asked, here: np.ndarray, splits: _Splits, best: int
) -> np.ndarray | float:
    """The variance that differences between weeks give to the log of the ratio of each split."""
    here = here & (of.week >= 0)
    size, has, at = of.size[here], of.has[here], one.at[here]
    week = of.week[here].astype(np.int64)
    if np.count_nonzero(np.bincount(week)) < _LEAST_WEEKS:
        return 0.0
    due = (np.bincount(size, has) / np.maximum(1, np.bincount(size)))[size]
    inside = (at >= splits.first[best]) & (at < splits.end[best])
    for part in (inside, ~inside):
        due[part] *= has[part].sum() / max(1e-9, due[part].sum())
    between = _between_weeks(np.bincount(week, has), week, np.minimum(due, 1.0))
    values = len(one.values)
    shares = np.bincount(week * values + at, due, (int(week.max()) + 1) * values)
    inner = _between(shares.reshape(-1, values), splits.first, splits.end)
    outer = shares.reshape(-1, values).sum(axis=1, keepdims=True) - inner
    with np.errstate(divide="ignore", invalid="ignore"):
        uneven = inner / inner.sum(axis=0) - outer / outer.sum(axis=0)
    found: np.ndarray = np.nan_to_num(np.log1p(between) * (uneven**2).sum(axis=0))
    return found


def _between_weeks(count: np.ndarray, week: np.ndarray, due: np.ndarray) -> float:
    """The variance of the rates of weeks, of their mean: what chance does not explain.

    One standard error more than the estimate, so that few weeks promise no calm.
    """
    mean, chance = np.bincount(week, due), np.bincount(week, due * (1 - due))
    every = max(1e-9, float((mean**2).sum()))
    found = max(0.0, float(((count - mean) ** 2 - chance).sum()) / every)
    error = float(np.sqrt((2 * (chance + found * mean**2) ** 2).sum())) / every
    return found + error


def _exact(table: _Table, values: slice) -> float:
    """The chance that as many or more of those that have it are of these values, by nothing else.

    Fisher's exact test over all strata; where there are many, the normal distribution instead.
    """
    of, some = table.jobs.sum(axis=1), table.having.sum(axis=1)
    inside, k1 = table.jobs[:, values].sum(axis=1), int(table.having[:, values].sum())
    mean = float((some * inside / of).sum())
    rest = (1 - inside / of) * (of - some) / np.maximum(1, of - 1)
    variance = float((some * inside / of * rest).sum())
    if variance > _MANY:
        return 1 - intervals.cdf((k1 - 0.5 - mean) / variance**0.5)
    least, chances = 0, np.ones(1)
    for n, k, n1 in zip(of.tolist(), some.tolist(), inside.tolist(), strict=True):
        first, dealt = _dealt(n, k, n1)
        least, chances = least + first, np.convolve(chances, dealt)
    return min(1.0, float(chances[max(0, k1 - least) :].sum()))


def _dealt(n: int, k: int, n1: int) -> tuple[int, np.ndarray]:
    """The chances that so many and more of `k` that have it are among `n1` of `n` jobs.

    And of how many the first is: what is far from likely, of many jobs nearly all, is left out.
    """

    def chosen(of: int, count: int) -> float:
        return lgamma(of + 1) - lgamma(count + 1) - lgamma(of - count + 1)

    mean = k * n1 / n
    wide = _FAR * (1 + (mean * (1 - k / n) * (1 - n1 / n)) ** 0.5)
    least, most = max(0, k + n1 - n, int(mean - wide)), min(k, n1, int(mean + wide))
    counts = range(least, most + 1)
    whole = chosen(n, n1)
    return least, np.array(
        [exp(chosen(k, one) + chosen(n - k, n1 - one) - whole) for one in counts]
    )


def _tail(gain: float) -> float:
    """The chance of as much twice the log-likelihood, to one side."""
    return 1 - intervals.cdf(max(0.0, gain) ** 0.5) if gain < 64 else 0.0


def _explaining(sure: Sequence[_Split], splits: Sequence[_Split], of: _Asked) -> list[_Split]:
    """The splits that explain a rise about as well as the best, versions before weeks.

    Jobs of both versions in one week decide between a version and the week it came.
    """
    likely = [*sure, *(one for one in splits if one not in sure and one.p < _ALPHA)]
    beside = []
    for week in [one for one in likely if one.label.name == WEEK]:
        for one in [one for one in likely if one is not week and {one, week} & {*sure}]:
            apart, still = _within(one, week, of), _within(week, one, of)
            if apart < _APART and apart <= still and week in likely:
                likely.remove(week)
                beside += [week] if still < _APART else []  # both matter
            elif still < _APART <= apart and week in sure and week.worth > one.worth:
                likely.remove(one)
    most = max(one.worth for one in likely)
    near = [one for one in likely if one.worth >= most - _NEAR]
    return [*sorted(near, key=lambda one: (one.label.name == WEEK, -one.worth)), *beside]


def _within(split: _Split, other: _Split, of: _Asked) -> float:
    """The chance of a split among jobs that are alike in size and in the value of another label."""
    here = (split.label.at >= 0) & (other.label.at >= 0) & of.usable
    alike = of.size[here].astype(np.int64) * len(other.label.values) + other.label.at[here]
    table = _table(alike, split.label.at[here], of.has[here], len(split.label.values))
    return _exact(table, slice(split.first, split.end))


def _since(name: str, near: Sequence[_Split], tests: int) -> Since:
    best, *others = near
    k0, n0, k1, n1 = best.counts
    values = best.label.values
    ratio, low, high = intervals.ratio(k0, n0, k1, n1)
    also = [f"{one.label.name} {one.label.values[one.first]}" for one in others]
    return Since(
        name, best.label.name, values[best.first], values[best.near[0]], values[best.near[1]],
        values[best.end] if best.end < len(values) else None, k0, n0, k1, n1,
        None if ratio is None else round(ratio, 2), round(low, 2),
        None if high == inf else round(high, 2), also, float(f"{min(1.0, best.p * tests):.2g}"),
    )  # fmt: skip
