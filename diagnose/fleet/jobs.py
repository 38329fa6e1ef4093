"""The jobs of a fleet by column, read from the results of a scan and made ready for questions.

| column | meaning |
|---|---|
| job | made longer from `source` where jobs have equal names |
| troubled | the job hung, failed, or nobody knows; healthy and unreadable ones are neither |
| unreadable | the scan could not read the job; `error` says why |
| ending | of jobs without a known cause: the first line of evidence, or what was said instead |
| time | UTC, when it went wrong or ended |
| day, week | days since 1970 of that time, and of the Monday before it; NEVER without a time |
| rail | which GPU of its host, and so which adapter, the only culprit has; -1: not known |
| incident | the same number for retries: same hosts, fingerprint, day |
| held_h, ran_h | hours from the first to the last line, and to the onset; NaN where not known |

The others are as `diagnose scan` writes them (`diagnose.batch.results.COLUMNS`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.batch.names import shown
from diagnose.batch.results import described, diagnoses, folder_of, tables
from diagnose.diagnosis import WELL
from diagnose.errors import InputError
from diagnose.fleet.columns import (
    COLUMNS,
    UNKNOWN,
    Coded,
    Lists,
    Part,
    coded,
    pair_keys,
    pairs,
    part,
    unexplained,
)

TROUBLED = ("hung", "failed", "unknown")
OTHER = "other"  # verdict of a job that failed for a cause that is not asked for
MAX_RANKS_A_HOST = 16  # with more of them the list of hosts is not whole
MAX_HOURS = 8760.0  # of a job: with more the clocks are wrong
NEVER = -1_000_000
_FIRST, _LAST = np.datetime64("1970-01-01", "us"), np.datetime64("2200-01-01", "us")
_LATE = np.timedelta64(2, "D")  # a log cannot end this long after its archive was written
_NOT_A_NODE = frozenset({"", "localhost", "127.0.0.1", "::1", "unknown", "none"})


@dataclass(frozen=True, slots=True)
class Jobs:
    """A row is a job; see the module. `cause` is the column `class`, `by_file`: `time` is that of
    its files, as its logs tell none.
    """

    job: pa.StringArray
    source: pa.StringArray
    tag: pa.StringArray
    labels: Coded[dict[str, str]]
    versions: Coded[dict[str, str]]
    verdict: Coded[str]
    cause: Coded[str]
    signature: Coded[str]
    confidence: Coded[str]
    fingerprint: Coded[str]
    title: Coded[str]
    error: Coded[str]
    ending: Coded[str]
    hosts: Lists
    culprit_hosts: Lists
    frameworks: Lists
    gpu_hours_lost: np.ndarray
    duration_hung_s: np.ndarray
    ranks: np.ndarray
    started: np.ndarray
    held_h: np.ndarray
    ran_h: np.ndarray
    time: np.ndarray
    by_file: np.ndarray
    day: np.ndarray
    week: np.ndarray
    rail: np.ndarray
    incident: np.ndarray
    troubled: np.ndarray
    unreadable: np.ndarray

    def __len__(self) -> int:
        """How many jobs."""
        return len(self.job)

    def only(self, mask: np.ndarray) -> Jobs:
        """The jobs of the mask. What no row has any more stays among the values of a column."""
        if mask.all():
            return self
        rows = np.flatnonzero(mask)
        found: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):
            column = getattr(self, name)
            if isinstance(column, Coded):
                found[name] = Coded(column.codes[rows], column.values)
            elif isinstance(column, Lists):
                found[name] = column.at(rows)
            elif isinstance(column, pa.Array):
                found[name] = column.take(pa.array(rows))
            else:
                found[name] = column[rows]
        _, first, place = np.unique(found["incident"], return_index=True, return_inverse=True)
        return Jobs(**found | {"incident": first[place]})

    def of_causes(self, causes: Collection[str]) -> Jobs:
        """The same jobs, of which only those with such a cause count as affected.

        The verdict of one that went wrong for another cause is OTHER.
        """
        asked = self.troubled & self.cause.where(causes.__contains__)
        names = [*self.verdict.values, OTHER]
        codes = np.where(self.troubled & ~asked, len(names) - 1, self.verdict.codes)
        return replace(self, verdict=Coded(codes, names), troubled=asked)

    def in_time(self, rows: np.ndarray) -> np.ndarray:
        """These rows by their time, then by the name of the job; without a time at the end."""
        times = self.time[rows]
        order = np.argsort(times, kind="stable")
        rows, times = rows[order], times[order]
        same = np.zeros(len(rows), dtype=bool)
        same[1:] = (times[1:] == times[:-1]) | (np.isnat(times[1:]) & np.isnat(times[:-1]))
        same[:-1] |= same[1:]
        alike = np.flatnonzero(same)
        if len(alike):
            keys = {"time": times[alike].astype("int64"), "job": self.job.take(rows[alike])}
            keys["time"][np.isnat(times[alike])] = np.iinfo(np.int64).max
            by = [("time", "ascending"), ("job", "ascending")]
            rows[alike] = rows[alike][pc.sort_indices(pa.table(keys), by)]
        return rows

    def dearest(self, rows: np.ndarray, count: int, *more: np.ndarray) -> np.ndarray:
        """The `count` of these rows with most GPU-hours; of equal ones first by `more` columns.

        The last word has the name of the job. Unknown numbers are at the end.
        """
        columns = [self.gpu_hours_lost, *more]
        keys = {str(at): pa.array(one[rows], from_pandas=True) for at, one in enumerate(columns)}
        by = [(name, "descending") for name in keys] + [("job", "ascending")]
        table = pa.table(keys | {"job": self.job.take(pa.array(rows))})
        found: np.ndarray = rows[pc.sort_indices(table, by).to_numpy()[:count]]
        return found

    def sources(self, names: Sequence[str]) -> dict[str, str]:
        """The sources of the jobs of these names."""
        wanted = pa.array(list(names), pa.string())
        rows = pc.indices_nonzero(pc.is_in(self.job, wanted))
        return dict(zip(self.names(rows), self.source.take(rows).to_pylist(), strict=True))

    def names(self, rows: np.ndarray) -> list[str]:
        """What these jobs are called."""
        found: list[str] = self.job.take(pa.array(rows)).to_pylist()
        return found


_PLAIN = (str, int, float)
_AS_STORED = ("signature", "confidence", "fingerprint", "title", "error")


def joined(parts: Sequence[Part], endings: Mapping[str, str]) -> Jobs:
    """The jobs of all parts; `endings` gives the text for `ending` by source.

    Takes the columns out of the parts, to have each of them there only once.
    """
    texts = {name: coded([part.texts.pop(name) for part in parts]) for name in [*parts[0].texts]}
    unique = {
        name: pa.concat_arrays([part.unique.pop(name) for part in parts])
        for name in [*parts[0].unique]
    }
    numbers = {
        name: np.concatenate([part.numbers.pop(name) for part in parts])
        for name in [*parts[0].numbers]
    }
    pa.default_memory_pool().release_unused()
    verdict, cause = texts["verdict"], texts["class"]
    source = unique["source"]
    hosts, culprits = _hosts(parts, numbers["ranks"])
    stated = _stated(parts)
    time, by_file = _times(stated)
    held, ran = _lengths(stated, numbers["duration_hung_s"], verdict)
    day = np.where(np.isnat(time), NEVER, time.astype("datetime64[D]").astype(np.int64))
    day = day.astype(np.int32)
    troubled = verdict.where(TROUBLED.__contains__)
    pa.default_memory_pool().release_unused()
    return Jobs(
        job=_distinct(unique["job"], source),
        source=source,
        tag=unique["tag"],
        labels=Coded(texts["labels"].codes, [*map(_mapping, texts["labels"].values)]),
        versions=Coded(texts["versions"].codes, [*map(_mapping, texts["versions"].values)]),
        verdict=verdict,
        cause=cause,
        **{name: texts[name] for name in _AS_STORED},
        ending=_endings(cause, source, endings, texts["note"], texts["title"]),
        hosts=hosts,
        culprit_hosts=culprits,
        frameworks=_lists(parts, "frameworks", {}, _values(parts, "frameworks")),
        gpu_hours_lost=numbers["gpu_hours_lost"],
        duration_hung_s=numbers["duration_hung_s"],
        ranks=numbers["ranks"].astype(np.float32),
        started=stated["started"],
        held_h=held,
        ran_h=ran,
        time=time,
        by_file=by_file,
        day=day,
        week=np.where(day == NEVER, NEVER, day - (day + 3) % 7),  # 1970 began on a Thursday
        rail=_rails(numbers["culprit"], numbers["ranks"], hosts.lengths()),
        incident=_incidents(hosts, culprits, texts["fingerprint"], day, troubled),
        troubled=troubled,
        unreadable=~verdict.where((*TROUBLED, *WELL).__contains__),
    )


def _mapping(value: str) -> dict[str, str]:
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    pairs = data.items() if isinstance(data, dict) else ()
    return {shown(key): shown(str(item)) for key, item in pairs if isinstance(item, _PLAIN)}


def _endings(
    cause: Coded[str],
    source: pa.StringArray,
    quoted: Mapping[str, str],
    notes: Coded[str],
    titles: Coded[str],
) -> Coded[str]:
    """What jobs without a known cause end with; an empty text for the others."""
    rows = np.flatnonzero(cause.where(lambda name: name == UNKNOWN))
    sources = source.take(pa.array(rows)).to_pylist()
    numbers = {"": 0}
    codes = np.zeros(len(source), dtype=np.int32)
    codes[rows] = [
        numbers.setdefault(quoted.get(name) or note or title or "no text", len(numbers))
        for name, note, title in zip(sources, notes.of(rows), titles.of(rows), strict=True)
    ]
    return Coded(codes, list(numbers))


def _distinct(names: pa.StringArray, sources: pa.StringArray) -> pa.StringArray:
    """Names that no two jobs share: equal ones give way to the end of the job's source."""
    slashes = pc.max(pc.count_substring(sources, "/")).as_py() or 0
    for length in range(2, slashes + 2):
        codes = names.dictionary_encode().indices.to_numpy()
        repeated = np.bincount(codes)[codes] > 1
        if not repeated.any():
            break
        end = rf"(?s)(?P<end>(?:[^/]*/){{0,{length - 1}}}[^/]*)\z"
        longer = pc.struct_field(pc.extract_regex(sources.filter(repeated), end), "end")
        names = pc.replace_with_mask(names, repeated, longer)
    return names


def _lists(parts: Sequence[Part], name: str, names: Mapping[str, str], values: list[str]) -> Lists:
    """A column of lists under the names that `names` gives, the ones in `values` alone.

    Part by part, as the pairs of a large fleet are the most that there is of it. Takes the lists
    out of the parts.
    """
    places = {value: place for place, value in enumerate(values)}
    first, rows, items = 0, [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.int32)]
    for one in parts:
        lengths, column = one.lists.pop(name)
        known = column.dictionary.to_pylist()
        codes = np.array([places.get(names.get(text, text), -1) for text in known], dtype=np.int32)
        item = codes[column.indices.to_numpy(zero_copy_only=False)] if known else items[0]
        row = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        found = pairs(pair_keys(row[item >= 0], item[item >= 0], values), len(lengths), values)
        rows.append(found.rows + np.int32(first))
        items.append(found.items)
        first += len(lengths)
    whole = np.concatenate(rows)
    rows.clear()
    return Lists(whole, np.concatenate(items), first, values)


def _values(parts: Sequence[Part], name: str) -> list[str]:
    """What is in the lists of a column, sorted."""
    return sorted({text for one in parts for text in one.lists[name][1].dictionary.to_pylist()})


def _hosts(parts: Sequence[Part], ranks: np.ndarray) -> tuple[Lists, Lists]:
    """Lists of hosts under one name each: no repeats, no loopback, no domain where some lack it.

    The hosts of the jobs and the culprits, both with the same values, which are in their order.
    """
    named = {host for column in ("hosts", "culprit_hosts") for host in _values(parts, column)}
    names = {host: host.split(".")[0] for host in named}
    names = {host: short if short in named else host for host, short in names.items()}
    values = sorted({name for name in names.values() if name.lower() not in _NOT_A_NODE})
    hosts, culprits = (_lists(parts, name, names, values) for name in ("hosts", "culprit_hosts"))
    whole = ~(ranks > MAX_RANKS_A_HOST * hosts.lengths())
    return (hosts if whole.all() else hosts.only(whole)), culprits


def _stated(parts: Sequence[Part]) -> dict[str, np.ndarray]:
    """The times of the jobs as stated; NaT for those that cannot be."""
    found = {
        name: np.concatenate([part.times.pop(name) for part in parts])
        for name in ("mtime", "onset", "ended", "started")
    }
    written = found["mtime"]
    written[~((written > _FIRST) & (written < _LAST))] = np.datetime64("NaT", "us")
    for name in ("onset", "ended", "started"):
        one = found[name]
        right = (one >= _FIRST) & (one <= _LAST) & ~(one > written + _LATE)
        found[name] = np.where(right, one, np.datetime64("NaT", "us"))
    return found


def _times(stated: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """When each job went wrong: onset, else end, begin, or the time of its archive; which are such.

    A clock that is ahead of the archive is wrong; logs without a year get the wrong one easily.
    """
    written, time = stated["mtime"], stated["onset"]
    for name in ("ended", "started"):
        time = np.where(np.isnat(time), stated[name], time)
    return np.where(np.isnat(time), written, time), np.isnat(time) & ~np.isnat(written)


def _lengths(
    stated: Mapping[str, np.ndarray], hung_s: np.ndarray, verdict: Coded[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Hours that each job held its GPUs, and ran before anything went wrong; NaN: not known."""
    hour = np.timedelta64(1, "h")
    held = ((stated["ended"] - stated["started"]) / hour).astype(np.float32)
    held[~((held >= 0) & (held < MAX_HOURS))] = np.nan
    hung = np.where(verdict.where(WELL.__contains__), 0.0, hung_s / 3600).astype(np.float32)
    hung[~(hung <= held + 1 / 60)] = np.nan  # NaN, or longer than the job
    return np.where(np.isnan(hung), np.nan, held), np.maximum(held - hung, 0)


def _rails(culprit: np.ndarray, ranks: np.ndarray, hosts: np.ndarray) -> np.ndarray:
    """The number of the culprit on its host, where all hosts have the same number of ranks."""
    each = ranks / np.maximum(hosts, 1)
    known = (culprit < ranks) & (each > 1) & (each <= MAX_RANKS_A_HOST) & (each == each.round())
    found = np.full(len(ranks), -1, dtype=np.int8)
    found[known] = culprit[known] % each[known]
    return found


def _incidents(
    hosts: Lists, culprits: Lists, marks: Coded[str], day: np.ndarray, troubled: np.ndarray
) -> np.ndarray:
    """For each job the first row of its incident; only troubled jobs on known hosts are retried."""
    asked = troubled & marks.where(bool)
    known = hosts.only(asked).union(culprits.only(asked & (hosts.lengths() == 0)))
    found = np.arange(hosts.size)
    rows = np.flatnonzero(known.lengths())
    if len(rows):
        keys = np.stack((known.same()[rows], marks.codes[rows], day[rows]))
        order = np.lexsort(keys)
        keys = keys[:, order]
        begins = np.concatenate(([True], np.any(keys[:, 1:] != keys[:, :-1], axis=0)))
        firsts = rows[order[begins]]  # the sort is stable
        found[rows[order]] = firsts[np.cumsum(begins) - 1]
    return found


def read(results: Path) -> Jobs:
    """The jobs of a results folder, or of the file in it.

    Raises InputError with what to do when it is absent, damaged or holds no jobs.
    """
    folder = folder_of(results)
    # So many rows at a time are made small, so that no more than these are there in full.
    found = [part(table) for table in tables(folder, COLUMNS)]
    pa.default_memory_pool().release_unused()
    if not found:
        raise InputError(f"{folder} holds no jobs yet: {_why_none(folder)}")
    sources = unexplained(found)
    endings = {one["source"]: _ending(one) for one in diagnoses(folder, sources)}
    jobs = joined(found, endings)
    pa.default_memory_pool().release_unused()  # gives back what is free between the columns
    return jobs


def _why_none(results: Path) -> str:
    """Why a scan has left no job."""
    if described(results).get("complete"):
        return "`diagnose scan` found nothing to diagnose"
    return "the first jobs of `diagnose scan` are not done, or it was stopped; --resume continues"


def _ending(one: Any) -> str:
    """What a stored diagnosis quotes first."""
    try:
        diagnosis = one["diagnosis"]
        quoted = [item["text"] for item in diagnosis["evidence"]]
        text = quoted[0] if quoted else diagnosis["root_cause"]["summary"]
    except (KeyError, TypeError, IndexError):
        return ""
    return shown(text) if isinstance(text, str) else ""
