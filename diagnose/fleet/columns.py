"""The columns of a table of jobs, made small: each text stored once, lists as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TEXTS = (
    "labels", "verdict", "class", "signature", "confidence", "fingerprint", "title", "versions",
    "error",
)  # fmt: skip
LISTS = ("hosts", "culprit_hosts", "frameworks")
NUMBERS = ("gpu_hours_lost", "ranks", "duration_hung_s")
TIMES = ("onset", "ended", "started")
UNIQUE = ("job", "source", "tag")
COLUMNS = (*TEXTS, *LISTS, *NUMBERS, *TIMES, *UNIQUE, "mtime", "notes", "culprit_ranks")
UNKNOWN = "unknown"  # class of a job whose cause is not known, also where it clearly failed
_AT_ONCE = 1 << 18
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows. A list column is the lengths of its lists and their items one after another."""

    texts: dict[str, pa.DictionaryArray]
    unique: dict[str, pa.Array]
    lists: dict[str, tuple[np.ndarray, pa.DictionaryArray]]
    numbers: dict[str, np.ndarray]
    times: dict[str, np.ndarray]

    def __len__(self) -> int:
        """How many rows."""
        return len(self.unique["source"])


def part(table: pa.Table) -> Part:
    """Rows of the columns that are asked for."""

    def column(name: str) -> pa.Array:
        return table[name].combine_chunks()

    texts = {name: pc.fill_null(column(name), "").dictionary_encode() for name in TEXTS}
    return Part(
        texts=texts | {"note": _last_notes(column("notes"), texts["class"])},
        unique={name: pc.fill_null(column(name), "") for name in UNIQUE},
        lists={name: _lists(column(name)) for name in LISTS},
        numbers={name: _number(column(name)) for name in NUMBERS}
        | {"culprit": _only(column("culprit_ranks"))},
        times={name: _time(column(name)) for name in TIMES} | {"mtime": _written(column("mtime"))},
    )


def unexplained(parts: Sequence[Part]) -> set[str]:
    """The sources of the jobs without a known cause."""
    return {
        source
        for part in parts
        for source in part.unique["source"].filter(_unknown(part.texts["class"])).to_pylist()
    }


def coded(chunks: Sequence[pa.DictionaryArray]) -> Coded[str]:
    """Parts of a column as one, with an empty text where there is none."""
    whole = pa.chunked_array(chunks, type=_DICTIONARY).unify_dictionaries()
    if not whole.num_chunks:
        return Coded(np.zeros(0, dtype=np.int32), [""])
    values = whole.chunk(whole.num_chunks - 1).dictionary.to_pylist()
    codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in whole.chunks]
    return Coded(np.concatenate(codes).astype(np.int32, copy=False), values)


def _lists(column: pa.Array) -> tuple[np.ndarray, pa.DictionaryArray]:
    lengths: np.ndarray = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return lengths, pc.list_flatten(column).dictionary_encode()


def _number(column: pa.Array) -> np.ndarray:
    """Numbers; NaN where there is none."""
    found: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found


def _only(column: pa.Array) -> np.ndarray:
    """The one number of each list; NaN where there are none or several."""
    alone = pc.fill_null(pc.equal(pc.list_value_length(column), 1), False)
    found = np.full(len(column), np.nan, dtype=np.float32)
    found[alone.to_numpy(zero_copy_only=False)] = pc.list_flatten(column.filter(alone))
    return found


def _time(column: pa.Array) -> np.ndarray:
    """Times in microseconds."""
    counts = pc.fill_null(column.cast(pa.int64()), np.iinfo(np.int64).min)
    return np.asarray(counts).view("datetime64[us]")


def _written(column: pa.Array) -> np.ndarray:
    """The time of an archive, from seconds since 1970."""
    seconds = _number(column)
    seconds = np.where(np.abs(seconds) < 8e9, seconds, np.nan)  # exact in microseconds
    rest, whole = np.modf(seconds)
    counts = whole * 1e6 + np.rint(rest * 1e6)  # both exact: as datetime.fromtimestamp rounds
    lost = np.isnan(counts)
    found = np.where(lost, 0.0, counts).astype(np.int64).view("datetime64[us]")
    found[lost] = np.datetime64("NaT", "us")
    return found


def _last_notes(notes: pa.Array, causes: pa.DictionaryArray) -> pa.DictionaryArray:
    """The last note of each job without a known cause, which is what else is known of its end."""
    unknown = _unknown(causes)
    texts = [value[-1] if value else "" for value in notes.filter(unknown).to_pylist()]
    codes = np.zeros(len(causes), dtype=np.int32)
    codes[unknown.to_numpy(zero_copy_only=False)] = np.arange(1, len(texts) + 1)
    whole = pa.array(["", *texts], pa.string()).take(pa.array(codes))
    return whole.dictionary_encode()


def _unknown(causes: pa.DictionaryArray) -> pa.BooleanArray:
    return pc.equal(causes.dictionary_decode(), UNKNOWN)


T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Coded(Generic[T]):
    """A column: `values[codes[row]]`. Every value is there once, and may be in no row."""

    codes: np.ndarray
    values: Sequence[T]

    def where(self, wanted: Callable[[T], bool]) -> np.ndarray:
        """The rows with such a value, as a mask."""
        hits = np.fromiter(map(wanted, self.values), bool, len(self.values))
        found: np.ndarray = hits[self.codes]
        return found

    def of(self, rows: np.ndarray) -> list[T]:
        """The values of some rows."""
        return [self.values[code] for code in self.codes[rows].tolist()]

    def renamed(self, change: Callable[[T], S]) -> Coded[S]:
        """The column with each value changed; what becomes equal has one code."""
        numbers: dict[S, int] = {}
        codes = [numbers.setdefault(change(value), len(numbers)) for value in self.values]
        return Coded(np.array(codes, dtype=np.int32)[self.codes], list(numbers))


@dataclass(frozen=True, slots=True)
class Lists:
    """A list of items in each of `size` rows: pairs sorted by row and item, none of them twice."""

    rows: np.ndarray
    items: np.ndarray
    size: int
    values: Sequence[str]

    def lengths(self) -> np.ndarray:
        """How many items each row has."""
        return tally(self.rows, self.size)

    def only(self, mask: np.ndarray) -> Lists:
        """The same lists in the rows of the mask, and empty ones elsewhere."""
        keep = mask[self.rows]
        return Lists(self.rows[keep], self.items[keep], self.size, self.values)

    def at(self, rows: np.ndarray) -> Lists:
        """The lists of these rows, which ascend."""
        if len(rows) == self.size:
            return self
        place = np.full(self.size, -1, dtype=np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        found = place[self.rows]
        keep = found >= 0
        return Lists(found[keep], self.items[keep], len(rows), self.values)

    def union(self, other: Lists) -> Lists:
        """What is in either of two lists of the same rows and values."""
        there, places = self.find(other)
        if there.all():
            return self
        places, more = places[~there], ~there
        rows = np.insert(self.rows, places, other.rows[more])
        items = np.insert(self.items, places, other.items[more])
        return Lists(rows, items, self.size, self.values)

    def find(self, other: Lists) -> tuple[np.ndarray, np.ndarray]:
        """Which pairs of another list with the same rows and values are here, and where.

        Of one that is not the place where it would be. By halves in each row, so that nothing is
        made of the pairs here, which are the most that there is of a large fleet.
        """
        low = np.searchsorted(self.rows, other.rows)
        high = ends = np.searchsorted(self.rows, other.rows, "right")
        while (open_ := low < high).any():
            middle = (low + high) // 2
            less = open_ & (self.items[np.minimum(middle, len(self.items) - 1)] < other.items)
            low, high = np.where(less, middle + 1, low), np.where(open_ & ~less, middle, high)
        there = low < ends
        there[there] = self.items[low[there]] == other.items[there]
        return there, low

    def among(self, rows: np.ndarray) -> np.ndarray:
        """The items of all these rows, one after another."""
        first, end = np.searchsorted(self.rows, rows), np.searchsorted(self.rows, rows, "right")
        counts = end - first
        begins = np.cumsum(counts) - counts
        found: np.ndarray = self.items[np.arange(counts.sum()) + np.repeat(first - begins, counts)]
        return found

    def of(self, row: int) -> list[str]:
        """The list of a row."""
        first, end = np.searchsorted(self.rows, [row, row + 1])
        return [self.values[item] for item in self.items[first:end].tolist()]

    def rows_of(self, value: str) -> np.ndarray:
        """The rows whose lists have this value."""
        found: np.ndarray = self.rows[self.items == self.values.index(value)]
        return found

    def same(self) -> np.ndarray:
        """A number for each row, equal where the lists are."""
        ends = np.concatenate(([0], np.cumsum(self.lengths()))) * 4
        offsets = pa.py_buffer(ends.astype(np.int64))
        data = pa.py_buffer(self.items.astype(np.int32))
        lists = pa.Array.from_buffers(pa.large_binary(), self.size, [None, offsets, data])
        found: np.ndarray = lists.dictionary_encode().indices.to_numpy()
        return found


def pair_keys(rows: np.ndarray, items: np.ndarray, values: Sequence[str]) -> np.ndarray:
    """One number for each pair of a row and an item."""
    found: np.ndarray = rows.astype(np.int64)
    found *= max(1, len(values))
    found += items
    return found


def pairs(keys: np.ndarray, size: int, values: Sequence[str]) -> Lists:
    """Lists from the numbers of pairs, see `pair_keys`, in any order and also twice."""
    if np.any(keys[1:] <= keys[:-1]):
        keys = np.sort(keys)  # np.unique hashes, which takes ten times as long
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    width = max(1, len(values))
    rows, items = (keys // width).astype(np.int32), (keys % width).astype(np.int32)
    return Lists(rows, items, size, values)


def tally(keys: np.ndarray, size: int) -> np.ndarray:
    """How often each number below `size` occurs; never a copy of all of them, as bincount makes."""
    found = np.zeros(size, dtype=np.int64)
    for first in range(0, len(keys), _AT_ONCE):
        found += np.bincount(keys[first : first + _AT_ONCE], minlength=size)
    return found


def split(keys: np.ndarray) -> Iterable[tuple[int, np.ndarray]]:
    """(key, the places where it is, ascending) for each key that occurs."""
    order = np.argsort(keys, kind="stable")
    borders = np.flatnonzero(np.diff(keys[order])) + 1
    for part in np.split(order, borders) if len(keys) else ():
        yield int(keys[part[0]]), part


def total(values: np.ndarray) -> float | None:
    """The sum of the numbers that are known, None if none is.

    Unknown ones count as 0 in their places, so that the sum of the same rows has the same digits.
    """
    unknown = np.isnan(values)
    return None if unknown.all() else float(np.where(unknown, 0.0, values).sum())


def span(times: np.ndarray) -> tuple[str | None, str | None]:
    """The first and the last time; None where none is known."""
    known = times[~np.isnat(times)]
    return (moment(known.min()), moment(known.max())) if len(known) else (None, None)


def moment(time: np.datetime64) -> str | None:
    """A time in UTC as ISO 8601; None for no time."""
    plain = time.astype("datetime64[us]").item()
    return plain.replace(tzinfo=UTC).isoformat() if isinstance(plain, datetime) else None
