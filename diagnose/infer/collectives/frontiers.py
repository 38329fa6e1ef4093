"""Numbers that the rows of a table hold: first records, last numbers, counts of sends."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.table import Table

_Numbers = npt.NDArray[np.integer[Any]]


def _kinds(*columns: _Numbers) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of rows with none below 0: where each kind of row comes first, and the kind of each."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        code = code * (int(column.max(initial=0)) + 1) + column
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return first, kind


def most(columns: Sequence[_Numbers], values: _Numbers) -> Iterator[tuple[list[int], int]]:
    """Each kind of row, in the order in which they appear, and the most of its values."""
    first, kind = _kinds(*columns)
    most = np.full(len(first), np.iinfo(np.int64).min)
    np.maximum.at(most, kind, values)
    order = np.argsort(first)
    rows = np.stack(columns, axis=1)[first[order]]
    yield from zip(rows.tolist(), most[order].tolist(), strict=True)


def first_records(table: Table) -> dict[int, int]:
    """Rank → the first record that its dump still has."""
    columns = table.columns
    firsts = most([columns["rank"]], -columns["record"].astype(np.int64))
    return {rank: -first for (rank,), first in firsts}


Sent = dict[tuple[int, str, str, int], int]  # rank, group, operation and peer → how many


def counted_sends(table: Table, counted: Collection[int]) -> tuple[npt.NDArray[np.int64], Sent]:
    """Per row, which send or receive between two ranks it is, and how many there are.

    Both sides count alike, unlike their numbers. Only dumps that go back to the first record tell
    it (`counted`); -1 for all other rows.
    """
    columns, names = table.columns, [*table.groups]
    nth = np.full(len(columns["rank"]), -1, np.int64)
    taken = columns["p2p"].astype(bool) & (columns["peer"] >= 0)
    taken &= np.isin(columns["rank"], [*counted])
    if not taken.any():
        return nth, {}
    ops = [call.op for call in table.calls]
    kinds = [*dict.fromkeys(ops)]
    op = np.array([kinds.index(op) for op in ops], np.int64)[columns["call"][taken]]
    rank, group, peer = (columns[name][taken] for name in ("rank", "group", "peer"))
    first, channel = _kinds(rank, group, op, peer)
    counts = np.bincount(channel)
    order = np.argsort(channel, kind="stable")
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    nth[taken] = numbers
    ends = (column[first].tolist() for column in (rank, group, op, peer))
    return nth, {
        (rank, names[group], kinds[op], peer): count
        for rank, group, op, peer, count in zip(*ends, counts.tolist(), strict=True)
    }
