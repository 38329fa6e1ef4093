"""What jobs are grouped and filtered by: cause, host, week, size, framework, or any label.

Labels are those that `diagnose scan` took from paths, and what the logs state of the job: versions
of packages by the name of the package, launcher, GPU type and so on. A label of the path has the
last word. What is not known has one spelling, NOT_KNOWN.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from diagnose.errors import InputError
from diagnose.fleet.columns import Coded, Lists
from diagnose.fleet.jobs import NEVER, Jobs

CAUSE, HOST, WEEK, SIZE, FRAMEWORK = "cause", "host", "week", "size", "framework"
FINGERPRINT = "fingerprint"
USER_LABEL = "user-label"  # the label `user`, however it is spelt in the paths
_USER = ("user", "owner", "account")
NOT_KNOWN = "unknown"
ORDERED = (WEEK, SIZE)  # groups that have an order of their own
_SHOWN = 20  # names of labels in a message


@dataclass(frozen=True, slots=True)
class Places:
    """The places of jobs in groups: `rows[at]` is in the group called `names[keys[at]]`.

    `paid` marks where the cost of the job is put on this group, None for all.
    """

    rows: np.ndarray
    keys: np.ndarray
    names: Sequence[str]
    paid: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs are asked for. Times are seconds since 1970; `labels` pairs of name and value.

    Of one name any of its values is enough. With `causes` the other jobs stay, as a rate needs
    them, but only these causes count as trouble.
    """

    since: float | None = None
    until: float | None = None
    causes: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


def chosen(jobs: Jobs, wanted: Filter) -> Jobs:
    """The jobs of a filter; raises InputError for a label that no job has, and for no job left."""
    mask = np.ones(len(jobs), dtype=bool)  # a comparison with no time is false
    if wanted.since is not None:
        mask &= jobs.time >= np.datetime64(int(wanted.since * 1_000_000), "us")
    if wanted.until is not None:
        mask &= jobs.time < np.datetime64(int(wanted.until * 1_000_000), "us")
    for name in dict.fromkeys(name for name, _ in wanted.labels):
        mask &= _having(jobs, name, {value for key, value in wanted.labels if key == name})
    if not mask.any():
        raise InputError("no job passes these filters")
    found = jobs.only(mask)
    return found.of_causes(_causes(jobs, wanted.causes)) if wanted.causes else found


def _causes(jobs: Jobs, wanted: Sequence[str]) -> set[str]:
    """The classes with these names, or below them: `hw` is `hw.gpu` and `hw.node`."""
    known = set(filter(None, jobs.cause.values)) - {"none"}
    found = {one: {name for name in known if name == one or name.startswith(f"{one}.")}
             for one in wanted}  # fmt: skip
    missing = [one for one, names in found.items() if not names]
    if missing:
        raise InputError(f"no job has the class {missing[0]}: there are {', '.join(sorted(known))}")
    return set().union(*found.values())


def _having(jobs: Jobs, name: str, values: Collection[str]) -> np.ndarray:
    places = places_of(jobs, name)
    named = np.fromiter((one in values for one in places.names), bool, len(places.names))
    mask = np.zeros(len(jobs), dtype=bool)
    mask[places.rows[named[places.keys]]] = True
    return mask


def places_of(jobs: Jobs, by: str) -> Places:
    """In which groups each readable job is. Raises InputError for a word that is none."""
    readable = np.flatnonzero(~jobs.unreadable)
    if by == CAUSE:
        causes = jobs.cause.renamed(lambda name: name or NOT_KNOWN)
        rows = np.flatnonzero(jobs.troubled)
        return Places(rows, causes.codes[rows], causes.values)
    if by == WEEK:
        days, keys = np.unique(jobs.week[readable], return_inverse=True)
        return Places(readable, keys, [date(int(day)) or NOT_KNOWN for day in days])
    if by == SIZE:
        keys, names = sizes(jobs.ranks[readable])
        return Places(readable, keys, names)
    if by == HOST:
        return _host_places(jobs)
    if by == FRAMEWORK:
        return _listed(jobs, jobs.frameworks)
    column = jobs.fingerprint if by == FINGERPRINT else label(jobs, by)
    named = column.renamed(lambda text: text or NOT_KNOWN)
    return Places(readable, named.codes[readable], named.values)


def date(day: int) -> str:
    """A day since 1970 as ISO 8601; "" for NEVER."""
    return "" if day == NEVER else str(np.datetime64(day, "D"))


def sizes(ranks: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The place of each job among sizes, and their names: GPUs up to a power of two, from 8 on."""
    known = np.nan_to_num(ranks, nan=0)
    powers = np.ceil(np.log2(np.maximum(known, 1))).astype(np.int64)
    keys = np.where(known < 1, 0, np.where(known == 1, 1, np.maximum(powers, 3) - 1))
    tops = range(3, int(keys.max(initial=1)) + 2)
    return keys, [
        NOT_KNOWN,
        "1",
        *(f"{(1 << top - 1) + 1 if top > 3 else 2}-{1 << top}" for top in tops),
    ]


def _host_places(jobs: Jobs) -> Places:
    """Hosts and culprits of each job."""
    hosts, culprits = (lists.only(~jobs.unreadable) for lists in (jobs.hosts, jobs.culprit_hosts))
    both = hosts.union(culprits)
    places = _listed(jobs, both)
    paid = np.zeros(len(places.rows), dtype=bool)
    paid[both.find(culprits)[1]] = True
    return replace(places, paid=paid)


def _listed(jobs: Jobs, lists: Lists) -> Places:
    """A group for each item: a job with several is in each, one without any in that of those."""
    lists = lists.only(~jobs.unreadable)
    alone = np.flatnonzero(~jobs.unreadable & (lists.lengths() == 0))
    rows = np.concatenate((lists.rows, alone))
    keys = np.concatenate((lists.items, np.full(len(alone), len(lists.values))))
    return Places(rows, keys, [*lists.values, NOT_KNOWN])


def label(jobs: Jobs, name: str) -> Coded[str]:
    """A label of each job, "" where it has none. Raises InputError where no job has it."""
    of_paths = {key for one in jobs.labels.values for key in one}
    of_logs = {key for one in jobs.versions.values for key in one}
    if name == USER_LABEL:
        name = next((one for one in _USER if one in of_paths), name)
    if name not in of_paths | of_logs:
        known = sorted(of_paths) + sorted(of_logs - of_paths)
        more = f" or a label of these jobs: {', '.join(known[:_SHOWN])}"
        none = "; these jobs have no labels (`diagnose scan` takes them from paths and logs)"
        raise InputError(
            f"cannot group by {name!r}: choose {', '.join((CAUSE, HOST, WEEK, SIZE, FRAMEWORK))}"
            f"{more if known else none}"
        )
    columns = [jobs.labels.renamed(lambda one: one.get(name, ""))] * (name in of_paths)
    columns += [jobs.versions.renamed(lambda one: one.get(name, ""))] * (name in of_logs)
    return reduce(_else, columns)


def _else(first: Coded[str], second: Coded[str]) -> Coded[str]:
    """The values of one column, and of another where the first is empty."""
    values = [*first.values, *second.values]
    empty = ~first.where(bool)
    codes = np.where(empty, second.codes + len(first.values), first.codes)
    return Coded(codes, values).renamed(str)
