"""How far every rank got in every group, and what it waits for now: frontiers of the table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.frontiers import counted_sends, first_records, gathered_size, most
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
    source: str = ""  # of the line; "": the dump of the rank

    @property
    def unit(self) -> Unit:
        """The collective, or the batch of sends and receives, that it belongs to."""
        return (self.group, self.p2p, self.seq)


class Standing:
    """Frontiers and pending operations of every rank of which a dump or a line tells.

    `known` are these ranks, `elsewhere` those that wait by a line, nobody knows in which group.
    What is not known of a rank in a group is in `unknown`.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.ranks = sorted(table.files)
        self.known = set(table.files)
        self.calls = [*table.calls]
        self.partial = set(table.partial)
        self.elsewhere: set[int] = set()
        columns = table.columns
        self._names = [*table.groups]
        self._p2p = columns["p2p"].astype(bool)
        open_rows = columns["state"] < COMPLETED
        self._whole = set(np.unique(columns["rank"][~open_rows]).tolist()) - table.partial
        self.mixed = {self._names[code] for code in np.unique(columns["group"][self._p2p])}
        self._firsts = first_records(table)
        self.unknown: set[tuple[int, str]] = set()
        self.enqueued = self._frontier()
        self.last_completed = {(rank, group): last for rank, group, _, _, last in table.statuses}
        self._told = {rank for rank, *_ in table.statuses}
        self._busy = {rank for rank, _, sent, _, completed in table.statuses if sent > completed}
        logged = set(np.unique(columns["rank"][columns["line"] > 0]).tolist())
        begun = {rank for rank, first in self._firsts.items() if first == 0}
        self._counted = (begun - logged) & self._whole
        nth, self._sent = counted_sends(table, self._counted)
        self.pending = self._pending(np.flatnonzero(open_rows), nth)

    @cached_property
    def first_open(self) -> dict[tuple[int, str], int]:
        """(rank, group) → its first collective that is pending."""
        found: dict[tuple[int, str], int] = {}
        for rank, ops in self.pending.items():
            for op in ops:
                if not op.p2p:
                    key = (rank, op.group)
                    found[key] = min(op.seq, found.get(key, op.seq))
        return found

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
        told = set()
        for rank, group, sent, _, _ in self.table.statuses:
            for p2p in (False, True):
                key = (rank, group, p2p)
                if p2p != (group in self.mixed) or (rank in self._whole and key in found):
                    continue
                told.add((rank, group))
                if not p2p or len(self.table.groups[group].members) == 2:
                    found[key] = max(found.get(key, -1), sent)
        cut = {rank for rank, first in self._firsts.items() if first > 0}
        self.unknown = {
            (rank, name)
            for name, group in self.table.groups.items()
            for rank in group.members
            if rank in cut and (rank, name) not in told and (rank, name, False) not in found
        }
        return found

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
        known &= rank not in self.elsewhere
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
        """Members that have not enqueued collective `seq`, as far as known."""
        return [
            rank
            for rank in self.members(group)
            if rank in self.known
            and self.enqueued.get((rank, group, False), -1) < seq
            and (rank, group) not in self.unknown
        ]

    def completed(self, rank: int, group: str, seq: int) -> bool:
        """Whether `rank` enqueued collective `seq` and its device finished it."""
        if self.enqueued.get((rank, group, False), -1) < seq:
            return False
        if rank in self.partial:
            return self.last_completed.get((rank, group), -1) >= seq
        return self.first_open.get((rank, group), seq + 1) > seq

    def undumped(self, group: str) -> list[int]:
        """Ranks that are, or may be, members of a group, of which nothing tells what they wait in.

        They left no dump and no line, or a dump that was cut off, or lines of another group or of
        nobody knows which; of very many the first.
        """
        known = self.table.groups[group]
        open_here = [
            rank
            for rank in known.members
            if rank in self.elsewhere
            or ((rank, group) in self.unknown and rank not in self.table.files)
            or (rank in self.table.partial and rank not in self.pending and not self.idle(rank))
        ]
        whole = known.told or known.members == tuple(range(self.table.world))
        if whole:
            lost = [rank for rank in known.members if rank not in self.known]
        elif gathered_size(self.table, group) == len(known.members):
            lost = []
        else:
            lost = [rank for rank in range(self.table.world) if rank not in self.known]
        return sorted({*lost, *open_here})[:_UNSEEN]

    def described(self, op: Op) -> str:
        """An operation for a report."""
        what = shown(self.calls[op.call])
        return self.table.told(what, op.group, op.seq, op.op, op.peer, op.site)

    def called(self, place: int) -> str:
        """The call of a row of the table, for a report."""
        row = {name: int(column[place]) for name, column in self.table.columns.items()}
        op, site = self.table.calls[row["call"]].op, self.table.sites[row["site"]]
        return self.table.told(op, self._names[row["group"]], row["seq"], op, row["peer"], site)

    def brief(self, op: Op) -> str:
        """An operation in few words: for an edge of the graph."""
        return self.table.told(op.op, op.group, op.seq, op.op, op.peer)
