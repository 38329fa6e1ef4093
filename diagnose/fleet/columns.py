"""Columns of many rows: texts as numbers of a few values, lists as pairs of a row and an item.

A fleet has a million jobs and few causes, hosts and versions, so questions are answered with
numpy on the numbers, and Python sees each value once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

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
        return np.bincount(self.rows, minlength=self.size)

    def keys(self) -> np.ndarray:
        """One number for each pair, ascending."""
        return pair_keys(self.rows, self.items, self.values)

    def only(self, mask: np.ndarray) -> Lists:
        """The same lists in the rows of the mask, and empty ones elsewhere."""
        keep = mask[self.rows]
        return Lists(self.rows[keep], self.items[keep], self.size, self.values)

    def at(self, rows: np.ndarray) -> Lists:
        """The lists of these rows, in their order; no row twice."""
        place = np.full(self.size, -1)
        place[rows] = np.arange(len(rows))
        keep = place[self.rows] >= 0
        keys = pair_keys(place[self.rows[keep]], self.items[keep], self.values)
        return pairs(keys, len(rows), self.values)

    def union(self, other: Lists) -> Lists:
        """What is in either of two lists of the same rows and values."""
        keys, more = self.keys(), other.keys()
        more = more[~positions(more, keys)[0]]
        return pairs(np.concatenate((keys, more)), self.size, self.values) if len(more) else self

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
    found: np.ndarray = rows.astype(np.int64) * max(1, len(values)) + items
    return found


def pairs(keys: np.ndarray, size: int, values: Sequence[str]) -> Lists:
    """Lists from the numbers of pairs, see `Lists.keys`, in any order and also twice."""
    if np.any(keys[1:] <= keys[:-1]):
        keys = np.sort(keys)  # np.unique hashes, which takes ten times as long
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    width = max(1, len(values))
    rows, items = (keys // width).astype(np.int32), (keys % width).astype(np.int32)
    return Lists(rows, items, size, values)


def positions(wanted: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of `wanted` are in the ascending numbers `among`, and where those are."""
    if not len(among):
        return np.zeros(len(wanted), dtype=bool), np.zeros(0, dtype=np.int64)
    places = np.searchsorted(among, wanted)
    places[places == len(among)] = 0
    found = among[places] == wanted
    return found, places[found]


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
