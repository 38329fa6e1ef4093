"""How far every rank got in every group, and what it waits for now: frontiers of the table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.table import Table, shown
from diagnose.parse.flight_recorder import COMPLETED, STARTED

_UNSEEN = 4096  # ranks without a dump that one operation waits for
Unit = tuple[str, bool, int]  # what is waited for as one: group, of sends and receives?, number


@dataclass(frozen=True, slots=True)
class Op:
    """An operation one rank enqueued and has not completed."""

    rank: int
    group: str
    seq: int
    p2p: bool
    op: str
    peer: int  # global rank of the other side of a send or receive, else -1
    record: int
    started: bool
    created: int
    call: int
    site: str
    line: int = 0
    nth: int = -1  # of the sends or receives between two ranks in one group, -1: not known

    @property
    def unit(self) -> Unit:
        """The collective, or the batch of sends and receives, that it belongs to."""
        return (self.group, self.p2p, self.seq)


_Numbers = npt.NDArray[np.integer[Any]]


def _kinds(*columns: _Numbers) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of rows with none below 0: where each kind of row comes first, and the kind of each."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        code = code * (int(column.max(initial=0)) + 1) + column
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return first, kind


def _most(columns: Sequence[_Numbers], values: _Numbers) -> Iterator[tuple[list[int], int]]:
    """Each kind of row, in the order in which they appear, and the most of its values."""
    first, kind = _kinds(*columns)
    most = np.full(len(first), np.iinfo(np.int64).min)
    np.maximum.at(most, kind, values)
    order = np.argsort(first)
    rows = np.stack(columns, axis=1)[first[order]]
    yield from zip(rows.tolist(), most[order].tolist(), strict=True)


class Standing:
    """Frontiers and pending operations of every rank with a dump."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.ranks = sorted(table.files)
        columns = table.columns
        self._names = [*table.groups]
        self._p2p = columns["p2p"].astype(bool)
        open_rows = columns["state"] < COMPLETED
        self._whole = set(np.unique(columns["rank"][~open_rows]).tolist()) - table.partial
        self._mixed = {self._names[code] for code in np.unique(columns["group"][self._p2p])}
        self.unknown: set[tuple[int, str]] = set()
        self.enqueued = self._frontier()
        self._completed = {(rank, group): last for rank, group, _, _, last in table.statuses}
        self._told = {rank for rank, *_ in table.statuses}
        self._busy = {rank for rank, _, sent, _, completed in table.statuses if sent > completed}
        self._sent: dict[tuple[int, str, str, int], int] = {}
        self.pending = self._pending(np.flatnonzero(open_rows), self._nth())
        self.first_open: dict[tuple[int, str], int] = {}
        for rank_id, ops in self.pending.items():
            for op in ops:
                if not op.p2p:
                    key = (rank_id, op.group)
                    self.first_open[key] = min(op.seq, self.first_open.get(key, op.seq))

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
            for (rank, code, p2p), last in _most(each, columns["seq"])
        }
        told = set()
        for rank, group, sent, _, _ in self.table.statuses:
            for p2p in (False, True):
                key = (rank, group, p2p)
                if p2p != (group in self._mixed) or (rank in self._whole and key in found):
                    continue
                told.add((rank, group))
                if not p2p or len(self.table.groups[group].members) == 2:
                    found[key] = max(found.get(key, -1), sent)
        cut = {rank for rank, first in self._first_records().items() if first > 0}
        self.unknown = {
            (rank, name)
            for name, group in self.table.groups.items()
            for rank in group.members
            if rank in cut and (rank, name) not in told and (rank, name, False) not in found
        }
        return found

    def _first_records(self) -> dict[int, int]:
        """Rank → the first record that its dump still has."""
        columns = self.table.columns
        firsts = _most([columns["rank"]], -columns["record"].astype(np.int64))
        return {rank: -first for (rank,), first in firsts}

    def _nth(self) -> npt.NDArray[np.int64]:
        """Per row, which send or receive between two ranks it is, counted from the first.

        Both sides count alike, unlike their numbers. Only a dump that goes back to the first record
        tells it, and no log; `_sent` has how many there are.
        """
        columns = self.table.columns
        nth = np.full(len(self._p2p), -1, np.int64)
        logged = set(np.unique(columns["rank"][columns["line"] > 0]).tolist())
        begun = {rank for rank, first in self._first_records().items() if first == 0}
        whole = (begun - logged) & self._whole
        taken = self._p2p & (columns["peer"] >= 0) & np.isin(columns["rank"], [*whole])
        if taken.any():
            ops = [call.op for call in self.table.calls]
            names = [*dict.fromkeys(ops)]
            op = np.array([names.index(op) for op in ops], np.int64)[columns["call"][taken]]
            rank, group, peer = (columns[name][taken] for name in ("rank", "group", "peer"))
            first, channel = _kinds(rank, group, op, peer)
            counts = np.bincount(channel)
            order = np.argsort(channel, kind="stable")
            counted = np.empty(len(order), np.int64)
            counted[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
            nth[taken] = counted
            ends = (column[first].tolist() for column in (rank, group, op, peer))
            self._sent = {
                (rank, self._names[group], names[op], peer): count
                for rank, group, op, peer, count in zip(*ends, counts.tolist(), strict=True)
            }
        self._counted = whole
        return nth

    def _pending(
        self, places: npt.NDArray[np.intp], nth: npt.NDArray[np.int64]
    ) -> dict[int, list[Op]]:
        """Pending operations per rank, oldest first; a batch is told by its members."""
        table, found = self.table, defaultdict[int, list[Op]](list)
        columns = zip(
            *(
                table.columns[name][places].tolist()
                for name in (
                    "rank", "group", "seq", "p2p", "call", "peer", "record", "state",
                    "time_created", "site", "line",
                )
            ),
            nth[places].tolist(),
            strict=True,
        )  # fmt: skip
        for rank, group, seq, p2p, call, peer, record, state, created, site, *rest in columns:
            op = table.calls[call].op
            if p2p and op == "coalesced":
                continue
            found[rank].append(
                Op(
                    rank, self._names[group], seq, bool(p2p), op, peer, record, state == STARTED,
                    created, call, table.sites[site], *rest,
                )
            )  # fmt: skip
        for ops in found.values():
            ops.sort(key=lambda op: op.record)
        return dict(found)

    def idle(self, rank: int) -> bool:
        """Whether a rank left a dump in which nothing is pending.

        One that was cut off may have lost it; then the status of its groups must say so too.
        """
        known = rank in self.table.files and rank not in self.pending
        if not known or rank not in self.table.partial:
            return known
        return rank in self._told and rank not in self._busy

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

    def other_side(self, op: Op) -> tuple[bool, Op | None] | None:
        """Whether the peer of a send or receive has enqueued the other side, and it if pending.

        None where the dumps do not go back far enough to count.
        """
        if op.nth < 0 or op.peer not in self._counted:
            return None
        other = "recv" if op.op == "send" else "send"
        if self._sent.get((op.peer, op.group, other, op.rank), 0) <= op.nth:
            return False, None
        key = (op.group, other, op.rank, op.nth)
        pending = self.pending.get(op.peer, [])
        return True, next((o for o in pending if (o.group, o.op, o.peer, o.nth) == key), None)

    def members(self, group: str) -> tuple[int, ...]:
        """Global ranks of a group, as far as known."""
        return self.table.groups[group].members

    def absent(self, group: str, seq: int) -> list[int]:
        """Members with a dump that have not enqueued collective `seq`."""
        return [
            rank
            for rank in self.members(group)
            if rank in self.table.files
            and self.enqueued.get((rank, group, False), -1) < seq
            and (rank, group) not in self.unknown
        ]

    def completed(self, rank: int, group: str, seq: int) -> bool:
        """Whether `rank` enqueued collective `seq` and its device finished it."""
        if self.enqueued.get((rank, group, False), -1) < seq:
            return False
        if rank in self.table.partial:
            return self._completed.get((rank, group), -1) >= seq
        return self.first_open.get((rank, group), seq + 1) > seq

    def undumped(self, group: str) -> list[int]:
        """Ranks that are, or may be, members of a group, of which no dump tells what they wait in.

        They left none, or one that was cut off; of very many the first.
        """
        known = self.table.groups[group]
        cut = [
            rank
            for rank in known.members
            if rank in self.table.partial and rank not in self.pending and not self.idle(rank)
        ]
        if known.told or known.members == tuple(range(self.table.world)):
            lost = [rank for rank in known.members if rank not in self.table.files]
        elif self._size(group) == len(known.members):
            lost = []
        else:
            lost = [rank for rank in range(self.table.world) if rank not in self.table.files]
        return sorted(lost + cut)[:_UNSEEN]

    def _size(self, group: str) -> int | None:
        """Members of a group by what its gathers make of their input."""
        columns = self.table.columns
        own = columns["call"][columns["group"] == self._names.index(group)]
        for code in dict.fromkeys(own.tolist()):
            call = self.table.calls[code]
            if call.op == "all_gather" and len(call.size_out) > 1:
                return len(call.size_out)
            if call.op not in ("_all_gather_base", "all_gather_into_tensor"):
                continue
            small, large = (
                int(np.prod(s[0], dtype=object)) if s else 0 for s in (call.size_in, call.size_out)
            )
            if small and large > small and large % small == 0:
                return large // small
        return None

    def described(self, op: Op) -> str:
        """An operation for a report."""
        what = shown(self.table.calls[op.call])
        return self.table.told(what, op.group, op.seq, op.op, op.peer, op.site)

    def called(self, place: int) -> str:
        """The call of a row of the table, for a report."""
        row = {name: int(column[place]) for name, column in self.table.columns.items()}
        op, site = self.table.calls[row["call"]].op, self.table.sites[row["site"]]
        return self.table.told(op, self._names[row["group"]], row["seq"], op, row["peer"], site)

    def brief(self, op: Op) -> str:
        """An operation in few words: for an edge of the graph."""
        return self.table.told(op.op, op.group, op.seq, op.op, op.peer)
