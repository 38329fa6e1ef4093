"""Failures that come again, the versions with which they began, and those that nobody explained.

Jobs with the same fingerprint failed alike. A version is said to have begun it where all of these
jobs that tell the package have that version (or, with several, that one or a later one), jobs
without it do not fail so, and earlier passing ones did not have it. Chance must not explain it:
that k of k failing incidents all fall among the jobs that have the version is hypergeometric, held
against the number of pairs of fingerprint and package looked at (Bonferroni).

Jobs that nobody could explain are grouped by how they end, as are those that could not be read.
What differs from job to job (numbers, addresses, paths, hosts) is taken out of the text; what then
reads alike is one group, and its `pattern` is a first draft of the signature to write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from diagnose.fleet.blame import hypergeometric
from diagnose.fleet.causes import hours
from diagnose.fleet.columns import UNKNOWN, Coded, span, split, total
from diagnose.fleet.jobs import Jobs

ALPHA = 0.05
MIN_INCIDENTS = 3
MIN_EARLIER = 5  # passing jobs before it that tell the package
MAX_EXAMPLES = 5

MAX_KEY = 300  # characters of a normalised text
_HIDDEN = "\x00"

# In this order; each is written as its name in the normalised text and as its regex in the pattern.
_VARIABLE = (
    ("uuid", r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", r"[0-9a-fA-F-]{36}"),
    (
        "time",
        r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?",
        r"\S+(?: \S+)?",
    ),
    ("time", r"\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?", r"\S+"),
    ("address", r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b", r"\S+"),
    ("path", r"(?<![\w.])(?:[\w.-]{0,40}:/)?/[\w.+=@-]{1,200}(?:/[\w.+=@-]{1,200})*/?", r"\S+"),
    ("hex", r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}\b", r"\w+"),
    ("n", r"\d+(?:[.,]\d+)*", r"[\d.,]+"),
)
_NUMBERS = re.compile(r"\d{1,9}")


@dataclass(frozen=True, slots=True)
class Began:
    """A version with which a failure began; `or_later` where later versions fail too.

    `before` counts earlier passing jobs that tell this package, all with another version. `p` is
    adjusted.
    """

    package: str
    version: str
    or_later: bool
    before: int
    p: float


@dataclass(frozen=True, slots=True)
class Recurring:
    """One fingerprint with at least two jobs. `hosts` counts the hosts that were blamed."""

    fingerprint: str
    title: str
    cause: str
    signature: str
    jobs: int
    incidents: int
    first_seen: str | None
    last_seen: str | None
    gpu_hours_lost: float | None
    hosts: int
    began_with: list[Began]
    examples: list[str]


def recurring(jobs: Jobs) -> list[Recurring]:
    """Failures of two jobs or more: first those that a version began, then by incidents."""
    known = jobs.troubled & jobs.fingerprint.where(bool) & ~jobs.cause.where(UNKNOWN.__eq__)
    rows = jobs.in_time(np.flatnonzero(known))
    groups = [(mark, rows[at]) for mark, at in split(jobs.fingerprint.codes[rows]) if len(at) > 1]
    with_packages = [(mark, group, _looked_at(jobs, group)) for mark, group in groups]
    packages = _packages(jobs)
    pairs = max(1, sum(len(names) for _, _, names in with_packages))
    found = [
        _recurring(jobs, group, [packages[name].began(mark, name, pairs) for name in names])
        for mark, group, names in with_packages
    ]
    found.sort(
        key=lambda item: (not item.began_with, -item.incidents, -item.jobs, item.fingerprint)
    )
    return found


def _looked_at(jobs: Jobs, rows: np.ndarray) -> list[str]:
    codes = np.unique(jobs.versions.codes[rows]).tolist()
    return sorted({package for code in codes for package in jobs.versions.values[code]})


def _recurring(jobs: Jobs, rows: np.ndarray, began: Sequence[Began | None]) -> Recurring:
    """One failure; `rows` are in the order of time."""
    first, last = span(jobs.time[rows])
    costs = jobs.gpu_hours_lost[rows]
    costs = costs[~np.isnan(costs)]
    return Recurring(
        fingerprint=jobs.fingerprint.of(rows[:1])[0],
        title=_most_common(jobs.title, rows),
        cause=_most_common(jobs.cause, rows),
        signature=_most_common(jobs.signature, rows),
        jobs=len(rows),
        incidents=len(np.unique(jobs.incident[rows])),
        first_seen=first,
        last_seen=last,
        gpu_hours_lost=hours(total(costs)),
        hosts=len(np.unique(jobs.culprit_hosts.among(rows))),
        began_with=sorted(filter(None, began), key=lambda found: (found.p, found.package)),
        examples=jobs.names(rows[-MAX_EXAMPLES:])[::-1],
    )


def _most_common(column: Coded[str], rows: np.ndarray) -> str:
    """The value that most of the rows have; the first of those which are as many."""
    codes, first, count = np.unique(column.codes[rows], return_index=True, return_counts=True)
    value: str = column.values[codes[np.lexsort((first, -count))[0]]]
    return value


class _Package:
    """The incidents that tell the version of one package, counted so that a question is quick."""

    def __init__(
        self, versions: Sequence[str], version: np.ndarray, mark: np.ndarray, time: np.ndarray,
        passing: np.ndarray,
    ) -> None:  # fmt: skip
        """Each incident's `version` (its place in `versions`), fingerprint, time (NaT: none)."""
        self.versions = versions
        self.size = len(version)
        self.having = np.bincount(version, minlength=len(versions))
        dated = passing & ~np.isnat(time)
        self.passed_at = [np.sort(time[dated & (version == at)]) for at in range(len(versions))]
        self.failing = {
            code: (set(version[at].tolist()), len(at), np.fmin.reduce(time[at]))
            for code, at in split(mark)
        }

    def began(self, mark: int, name: str, pairs: int) -> Began | None:
        """The version of this package that all failures `mark` share and earlier jobs lack."""
        failing, drawn, begin = self.failing.get(mark, (set(), 0, np.datetime64("NaT", "us")))
        if drawn < MIN_INCIDENTS:
            return None
        first = min((self.versions[at] for at in failing), key=order)
        later = len(failing) > 1
        having = [
            order(version) >= order(first) if later else version == first
            for version in self.versions
        ]
        many = int(self.having[having].sum())
        p = float(hypergeometric(self.size, many, drawn)[drawn]) * pairs
        passed = self._passed(begin)
        lacking = int(passed[~np.array(having)].sum())
        # A few had the version already, but had not met the failure yet.
        if p > ALPHA or lacking < MIN_EARLIER or lacking < passed.sum() - lacking:
            return None
        return Began(name, first, later, lacking, p)

    def _passed(self, before: np.datetime64) -> np.ndarray:
        """How many incidents with each version passed before a time; none before no time."""
        if np.isnat(before):
            return np.zeros(len(self.versions), dtype=np.int64)
        return np.array([np.searchsorted(times, before) for times in self.passed_at])


def _packages(jobs: Jobs) -> dict[str, _Package]:
    """For each package what the incidents that tell its version say."""
    rows = np.flatnonzero(~jobs.unreadable & (jobs.incident == np.arange(len(jobs))))
    codes, marks, times = jobs.versions.codes[rows], jobs.fingerprint.codes[rows], jobs.time[rows]
    passing = ~jobs.troubled[rows]
    found = {}
    for package in {package for versions in jobs.versions.values for package in versions}:
        stated = [versions_of.get(package) for versions_of in jobs.versions.values]
        versions = list(dict.fromkeys(name for name in stated if name is not None))
        places: dict[str | None, int] = {name: at for at, name in enumerate(versions)}
        place = np.array([places.get(name, -1) for name in stated])[codes]
        has = place >= 0
        found[package] = _Package(versions, place[has], marks[has], times[has], passing[has])
    return found


@lru_cache(maxsize=4096)
def order(version: str) -> tuple[tuple[int, ...], str]:
    """A key by which versions sort as people number them: 2.9 < 2.10 < 2.10+cu128."""
    numbers = _NUMBERS.findall(re.split(r"[+-]", version, maxsplit=1)[0])
    return tuple(map(int, numbers)), version


@dataclass(frozen=True, slots=True)
class Gap:
    """Jobs that end alike. `text` is normalised, `example` as it stood, `pattern` a regex."""

    text: str
    pattern: str
    example: str
    jobs: int
    gpu_hours_lost: float | None
    first_seen: str | None
    last_seen: str | None
    frameworks: list[str]
    examples: list[str]


def unknowns(jobs: Jobs) -> list[Gap]:
    """The groups of jobs of class `unknown` that were read in full, the largest first."""
    rows = jobs.troubled & jobs.cause.where(UNKNOWN.__eq__) & ~jobs.error.where(bool)
    return _grouped(jobs, np.flatnonzero(rows), jobs.ending, frozenset(jobs.hosts.values))


def unreadable(jobs: Jobs) -> list[Gap]:
    """The groups of errors of archives that could not be read, or not enough for a verdict."""
    in_part = jobs.troubled & jobs.cause.where(UNKNOWN.__eq__) & jobs.error.where(bool)
    errors = jobs.error.renamed(lambda text: text or "no error was recorded")
    return _grouped(jobs, np.flatnonzero(jobs.unreadable | in_part), errors, frozenset())


def _grouped(jobs: Jobs, rows: np.ndarray, texts: Coded[str], hosts: frozenset[str]) -> list[Gap]:
    rows = jobs.in_time(rows)
    codes, which = np.unique(texts.codes[rows], return_inverse=True)
    normal = Coded(which, [texts.values[code] for code in codes.tolist()]).renamed(
        lambda text: normalise(text, hosts)
    )
    found = []
    for code, at in split(normal.codes):
        group, text = rows[at], normal.values[code]
        first, last = span(jobs.time[group])
        names = np.unique(jobs.frameworks.among(group)).tolist()
        found.append(
            Gap(
                text=text,
                pattern=pattern(text),
                example=texts.of(group[-1:])[0],
                jobs=len(group),
                gpu_hours_lost=hours(total(jobs.gpu_hours_lost[group])),
                first_seen=first,
                last_seen=last,
                frameworks=sorted(jobs.frameworks.values[name] for name in names),
                examples=jobs.names(group[-MAX_EXAMPLES:])[::-1],
            )
        )
    found.sort(key=lambda gap: (-gap.jobs, -(gap.gpu_hours_lost or 0.0), gap.text))
    return found


def normalise(text: str, hosts: Collection[str] = frozenset()) -> str:
    """One line with `<n>`, `<path>`, `<host>` … for what differs from job to job."""
    line = " ".join(text[: 4 * MAX_KEY].replace(_HIDDEN, "").split())
    line = re.sub(
        r"[A-Za-z][\w.-]{0,252}", lambda m: f"<{_HIDDEN}h>" if m[0] in hosts else m[0], line
    )
    for place, (_, wanted, _) in enumerate(_VARIABLE):
        line = re.sub(wanted, f"<{_HIDDEN}{chr(65 + place)}>", line)
    line = line.replace(f"<{_HIDDEN}h>", "<host>")
    for place, (name, _, _) in enumerate(_VARIABLE):
        line = line.replace(f"<{_HIDDEN}{chr(65 + place)}>", f"<{name}>")
    return line if len(line) <= MAX_KEY else line[: MAX_KEY - 1].rstrip() + "…"


def pattern(normal: str) -> str:
    """A regular expression for lines like a normalised one: a draft for `match` of a signature."""
    regexes = {name: regex for name, _, regex in reversed(_VARIABLE)} | {"host": r"\S+"}
    parts = re.split(r"<(uuid|time|address|path|hex|n|host)>", normal.removesuffix("…"))
    return "".join(
        regexes[part] if index % 2 else re.escape(part).replace(r"\ ", " ")
        for index, part in enumerate(parts)
    )
