"""Since which version, image or week a cause is more frequent, and until which.

Labels whose values have an order (versions, images by their tags, weeks) are split at every value,
and at every two for what was fixed again. The likelihood of two rates against one, divided by how
much more the values of a label vary than chance explains, finds the split; Fisher's exact test is
asked as well, as counts are small. How many independent looks all splits of a label are worth is
read off the same jobs with the incidents dealt anew; labels and causes count one by one
(Bonferroni), half of it for all causes together. What fits nearly as well is the interval of the
first value; another label that does is named beside it, a version before a week, as nothing tells
them apart. Retries count once.
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
_FIXED = 6.0  # more of it, for an end as well
_DEALT, _SEED = 300, 1  # times that incidents are dealt anew
_SHARE = 0.05  # of these times, by which looks are counted
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


@dataclass(frozen=True, slots=True)
class _Ordered:
    """A label: its values in their order, and the place of each job among them, -1 without."""

    name: str
    values: Sequence[str]
    at: np.ndarray


@dataclass(frozen=True, slots=True)
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
    found = []
    for name, mask in asked:
        tests = 2 * len(labels) * (1 if name == ALL else len(asked) - 1)
        splits = [split for one in labels if (split := _best(one, mask, jobs)) is not None]
        sure = [split for split in splits if split.p * tests < _ALPHA]
        if sure:
            found.append(_since(name, _explaining(sure), tests))
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


# --- splits ---------------------------------------------------------------------------------------


def _best(one: _Ordered, mask: np.ndarray, jobs: Jobs) -> _Split | None:
    """The likeliest values between which the cause is more frequent than elsewhere."""
    here = (one.at >= 0) & ~jobs.unreadable
    size = len(one.values)
    total = np.bincount(one.at[here], minlength=size)
    having = np.bincount(one.at[here & mask], minlength=size)
    first, end = np.triu_indices(size + 1, 1)
    first, end = first[first > 0], end[first > 0]
    gain, counted = _gains(having[None, :], total, first, end)
    gain, (k0, n0, k1, n1) = gain[0], (one[0] for one in counted)
    best = int(np.argmax(gain))
    if gain[best] == -inf:
        return None
    spread = _spread(having, total, int(first[best]), int(end[best]))
    counts = int(k0[best]), int(n0[best]), int(k1[best]), int(n1[best])
    p = max(_fisher(*counts), _tail(float(gain[best]) / spread))
    if p < _ALPHA:  # what is none at once is none among many
        p = min(1.0, p * _looks(having, total, first, end))
    same = (end == end[best]) & (gain >= gain[best] - _NEAR * spread)
    near = int(first[same].min()), int(first[same].max())
    return _Split(
        one, int(first[best]), int(end[best]), float(gain[best]) / spread, p, near, counts
    )


def _gains(
    having: np.ndarray, total: np.ndarray, first: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """By row of `having` and split: the gain of two rates, less where there is an end as well.

    And what is counted: incidents and jobs elsewhere, and between.
    """
    of = np.concatenate(([0], total.cumsum()))
    some = np.pad(having.cumsum(axis=1), ((0, 0), (1, 0)))
    n1, k1 = of[end] - of[first], some[:, end] - some[:, first]
    n0, k0 = of[-1] - n1, some[:, -1:] - k1
    usable = (n0 >= _LEAST_JOBS) & (n1 >= _LEAST_JOBS) & (k1 >= _LEAST) & (k1 * n0 > k0 * n1)
    one = _likelihood(some[:, -1:], of[-1:])
    gain = 2 * (_likelihood(k0, n0) + _likelihood(k1, n1) - one)
    gain = np.where(usable, gain - np.where(end == len(total), 0.0, _FIXED), -inf)
    wide = np.broadcast_to(n0, k0.shape), np.broadcast_to(n1, k1.shape)
    return gain, (k0, wide[0], k1, wide[1])


def _looks(having: np.ndarray, total: np.ndarray, first: np.ndarray, end: np.ndarray) -> float:
    """How many independent looks the best of all splits is worth."""
    dealt = np.random.default_rng(_SEED).multivariate_hypergeometric(
        total, int(having.sum()), size=_DEALT, method="marginals"
    )
    best = np.sort(_gains(dealt, total, first, end)[0].max(axis=1))[::-1]
    reached = _tail(float(best[int(_SHARE * _DEALT)]))
    return max(1.0, _SHARE / max(reached, 1e-9))


def _likelihood(some: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The log of how likely so many are, at their own rate."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = some / of
        parts = np.where(some > 0, some * np.log(share), 0.0)
        found: np.ndarray = parts + np.where(of > some, (of - some) * np.log1p(-share), 0.0)
    return found


def _spread(having: np.ndarray, total: np.ndarray, first: int, end: int) -> float:
    """How much more the counts of values vary around the two rates than chance does."""
    inside = np.zeros(len(total), dtype=bool)
    inside[first:end] = True
    expected = np.zeros(len(total))
    for part in (inside, ~inside):
        expected[part] = total[part] * (having[part].sum() / max(1, total[part].sum()))
    return intervals.dispersion(having, expected, 2)


def _fisher(k0: int, n0: int, k1: int, n1: int) -> float:
    """The chance that as many or more of all that have it are among the second, by nothing else."""
    every, some = n0 + n1, k0 + k1

    def chosen(of: int, count: int) -> float:
        return lgamma(of + 1) - lgamma(count + 1) - lgamma(of - count + 1)

    whole = chosen(every, some)
    top = min(some, n1)
    first = chosen(n1, k1) + chosen(n0, k0) - whole
    term, found = 1.0, 0.0
    for count in range(k1, top + 1):
        found += term
        left = some - count
        term *= (n1 - count) * left / ((count + 1) * (n0 - left + 1))
        if term < 1e-12 * found:
            break
    return min(1.0, exp(first + log(found)))


def _tail(gain: float) -> float:
    """The chance of as much twice the log-likelihood, to one side."""
    return 1 - intervals.cdf(max(0.0, gain) ** 0.5) if gain < 64 else 0.0


def _explaining(sure: Sequence[_Split]) -> list[_Split]:
    """The splits that explain a rise about as well as the best, versions before weeks."""
    most = max(one.worth for one in sure)
    near = [one for one in sure if one.worth >= most - _NEAR]
    return sorted(near, key=lambda one: (one.label.name == WEEK, -one.worth))


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
