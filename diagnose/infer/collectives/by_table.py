"""How far every rank got in every group, and what it waits for now, by the table.

A dump holds thousands of operations of which the timeline needs few: of each rank the first
pending ones (`signal` is `pending`), or, where it has none, the last one it finished (`idle`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.parallelism import Group
from diagnose.infer.collectives.table import Table, shown
from diagnose.infer.judge.standing import Members, Standing
from diagnose.infer.judge.verdict import CallKind, Op, gathered_size
from diagnose.parse.flight_recorder import COMPLETED, STARTED, Call, Sizes
from diagnose.parse.stamps import Stamp
from diagnose.timeline.event import Event, Meaning, Work
from diagnose.timeline.readings import IDLE, PENDING, document

_Numbers = npt.NDArray[np.integer[Any]]
Sent = dict[tuple[int, str, str, int], int]  # rank, group, operation and peer → how many
PENDING_SHOWN = 4  # pending operations of one rank
_SAYS = {
    tells: Meaning(kind="collective", severity="info", signal=tells) for tells in (PENDING, IDLE)
}


class ByTable(Standing):
    """Where the ranks stand by a table, and what the table tells of single ones, in words."""

    def __init__(self, table: Table) -> None:
        super().__init__(table.world)
        self.table = table
        self.known, self.recorded = set(table.files), table.files.keys()
        self.unplaced = {*range(table.world)} - self.known
        columns = table.columns
        self._names = [*table.groups]
        self._p2p = columns["p2p"].astype(bool)
        open_rows = columns["state"] < COMPLETED
        self._whole = set(np.unique(columns["rank"][~open_rows]).tolist()) - table.partial
        self.mixed = {self._names[code] for code in np.unique(columns["group"][self._p2p])}
        self._firsts = first_records(table)
        self.groups = self._groups()
        self.enqueued = self._frontier()
        self.last_completed = {(rank, group): last for rank, group, _, _, last in table.statuses}
        self.entire = table.files.keys() - table.partial
        logged = set(np.unique(columns["rank"][columns["line"] > 0]).tolist())
        begun = {rank for rank, first in self._firsts.items() if first == 0}
        self.counted = (begun - logged) & self._whole
        nth, self.sent = counted_sends(table, self.counted)
        self.pending = self._pending(np.flatnonzero(open_rows), nth)
        self.heads = {
            rank: [op for op in ops if op.unit == ops[0].unit] for rank, ops in self.pending.items()
        }
        # What was cut off may have lost its wait, but for those that were through with all groups.
        through = {rank: True for rank, *_ in table.statuses}
        through |= {rank: False for rank, _, sent, _, done in table.statuses if sent > done}
        self.cut = {rank for rank in table.partial if not through.get(rank)}

    def _groups(self) -> dict[str, Members]:
        """The members of the groups; who left no dump may be in one whose members none lists."""
        columns, calls, groups = self.table.columns, self.table.calls, self.table.groups
        everybody = tuple(range(self.table.world))
        listed = {name for name, one in groups.items() if one.listed or one.members == everybody}
        called: dict[str, list[CallKind]] = defaultdict(list)
        if len(listed) < len(groups):
            pairs = np.unique(columns["group"].astype(np.int64) * len(calls) + columns["call"])
            for group, call in (divmod(pair, len(calls)) for pair in pairs.tolist()):
                called[self._names[group]].append(_kind(calls[call]))
        return {
            name: Members(
                ranks=set(group.members),
                size=len(group.members),
                certain=name in listed or gathered_size(called[name]) == len(group.members),
            )
            for name, group in groups.items()
        }

    def _frontier(self) -> dict[tuple[int, str, bool], int]:
        """(rank, group, p2p) → the last number enqueued.

        The rows tell it, unless the dump lists pending operations only, is cut off, or its ring has
        lost the last operation of a group. Then the status of the group does; it counts collectives
        and sends alike, so it only helps where a group has one kind. `unknown` has what is left.
        """
        columns = self.table.columns
        each = [columns["rank"], columns["group"], self._p2p.astype(np.int8)]
        found = {
            (rank, self._names[code], bool(p2p)): last
            for (rank, code, p2p), last in most(each, columns["seq"])
        }
        with_status = set()
        for rank, group, sent, _, _ in self.table.statuses:
            for p2p in (False, True):
                key = (rank, group, p2p)
                if p2p != (group in self.mixed) or (rank in self._whole and key in found):
                    continue
                with_status.add((rank, group))
                if not p2p or len(self.table.groups[group].members) == 2:
                    found[key] = max(found.get(key, -1), sent)
        cut = {rank for rank, first in self._firsts.items() if first > 0}
        self.unknown = {
            (rank, name)
            for name, group in self.table.groups.items()
            for rank in group.members
            if rank in cut and (rank, name) not in with_status and (rank, name, False) not in found
        }
        return found

    def _pending(
        self, places: npt.NDArray[np.intp], nth: npt.NDArray[np.int64]
    ) -> dict[int, list[Op]]:
        """Pending operations per rank, oldest first; a batch is told by its members."""
        table, found = self.table, defaultdict[int, list[Op]](list)
        calls = {
            code: (*_kind(table.calls[code]), shown(table.calls[code]))
            for code in np.unique(table.columns["call"][places]).tolist()
        }
        columns = zip(
            *(
                table.columns[name][places].tolist()
                for name in (
                    "rank", "group", "seq", "p2p", "call", "peer", "record", "state",
                    "time_created", "timeout_ms", "site", "line",
                )
            ),
            nth[places].tolist(),
            strict=True,
        )  # fmt: skip
        for rank, group, seq, p2p, call, peer, record, state, created, *rest in columns:
            op, size_in, size_out, text = calls[call]
            if p2p and op == "coalesced":
                continue
            timeout, site, line, number = rest
            found[rank].append(
                Op(
                    rank, seq, op, size_in, size_out, timeout if timeout >= 0 else None, None,
                    group=self._names[group], began=created or None, p2p=bool(p2p), text=text,
                    site=table.sites[site], started=state == STARTED, peer=peer, nth=number,
                    record=record, line=line,
                )
            )  # fmt: skip
        for ops in found.values():
            ops.sort(key=lambda op: op.record)
        return dict(found)

    def last_groups(self) -> dict[int, str]:
        """Rank → the group of the last operation that it recorded."""
        columns = self.table.columns
        order = np.argsort(columns["record"], kind="stable")
        last = zip(columns["rank"][order].tolist(), columns["group"][order].tolist(), strict=True)
        return {rank: self._names[group] for rank, group in dict(last).items()}

    def last_line(self, rank: int) -> int:
        """Line of the last operation a log tells of a rank; 0 for a dump."""
        columns = self.table.columns
        lines = columns["line"][columns["rank"] == rank]
        return int(lines.max(initial=0))

    def described(self, op: Op) -> str:
        """An operation for a report."""
        group, _, seq = op.unit
        return self.table.described(op.text, group, seq, op.op or "", op.peer, op.site)

    def called(self, place: int) -> str:
        """The call of a row of the table, for a report."""
        row = {name: int(column[place]) for name, column in self.table.columns.items()}
        op, site = self.table.calls[row["call"]].op, self.table.sites[row["site"]]
        return self.table.described(
            op, self._names[row["group"]], row["seq"], op, row["peer"], site
        )

    def brief(self, op: Op) -> str:
        """An operation in few words: for an edge of the graph."""
        group, _, seq = op.unit
        return self.table.described(op.op or "", group, seq, op.op or "", op.peer)


def _kind(call: Call) -> CallKind:
    return call.op, _elements(call.size_in), _elements(call.size_out)


def _elements(sizes: Sizes) -> int | None:
    return sum(prod(size) for size in sizes) if sizes else None


def _kinds_of_rows(*columns: _Numbers) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of rows with none below 0: where each kind of row comes first, and the kind of each."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        code = code * (int(column.max(initial=0)) + 1) + column
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return first, kind


def most(columns: Sequence[_Numbers], values: _Numbers) -> Iterator[tuple[list[int], int]]:
    """Each kind of row, in the order in which they appear, and the most of its values."""
    first, kind = _kinds_of_rows(*columns)
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
    first, channel = _kinds_of_rows(rank, group, op, peer)
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


def table_rows(table: Table, hosts: Mapping[str, str | None]) -> list[Event]:
    """One event per operation that a rank stood in.

    `hosts` are those that the names of the dumps tell, by name.
    """
    if table.empty:
        return []
    columns, calls, groups = table.columns, table.calls, [*table.groups.values()]
    of_batch = np.array([call.op == "coalesced" for call in calls], bool)[columns["call"]]
    pending = (columns["state"] < COMPLETED) & ~(columns["p2p"].astype(bool) & of_batch)
    waiting = np.flatnonzero(pending)
    idle = np.flatnonzero(~np.isin(columns["rank"], columns["rank"][waiting]))
    shown = waiting[_ordinal(columns["rank"][waiting]) < PENDING_SHOWN]
    last = idle[np.append(np.diff(columns["rank"][idle]) != 0, True)[: len(idle)]]
    return [
        *(_row(table, groups, hosts, place, PENDING) for place in shown.tolist()),
        *(_row(table, groups, hosts, place, IDLE) for place in last.tolist()),
    ]


def _ordinal(ranks: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The how manyth of its rank each is; ranks follow each other."""
    begins = np.flatnonzero(np.append(True, np.diff(ranks) != 0)[: len(ranks)])
    return np.arange(len(ranks)) - np.repeat(begins, np.diff(np.append(begins, len(ranks))))


def _row(
    table: Table, groups: Sequence[Group], hosts: Mapping[str, str | None], place: int, tells: str
) -> Event:
    op = {name: int(column[place]) for name, column in table.columns.items()}
    rank, created, site = op["rank"], op["time_created"], table.sites[op["site"]]
    group, file = groups[op["group"]], table.files[rank]
    work = Work(
        group=group.label,
        op=table.calls[op["call"]].op,
        seq=op["seq"],
        timeout_ms=op["timeout_ms"] if op["timeout_ms"] >= 0 else None,
    )
    text = _text(table, op, group.key, tells)
    draft = document(file, op["line"], rank, text, _SAYS[tells], work, site)
    draft.offset, draft.host = op["record"], hosts.get(file)
    draft.stamp = Stamp(created, utc_offset_s=0) if created > 0 else None
    return draft


def _text(table: Table, op: Mapping[str, int], group: str, tells: str) -> str:
    call = table.calls[op["call"]]
    site = table.sites[op["site"]]
    text = table.described(shown(call), group, op["seq"], call.op, op["peer"], site)
    if tells == IDLE:
        return f"idle; the last operation was {text}"
    begun = "started" if op["state"] == STARTED else "enqueued"
    return f"{text}: {begun}, not finished"
