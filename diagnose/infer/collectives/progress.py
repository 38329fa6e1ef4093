"""How far every rank got in every group, and what it waits for now: frontiers of the table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.table import Table, shown
from diagnose.parse.flight_recorder import COMPLETED

if TYPE_CHECKING:
    import pandas as pd

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


class Standing:
    """Frontiers and pending operations of every rank with a dump."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.ranks = sorted(table.files)
        rows = table.rows
        self._names = list(rows["group"].cat.categories)
        state = rows["state"].cat.codes.to_numpy()
        open_rows = state < COMPLETED
        rank = rows["rank"].to_numpy()
        self._whole = set(np.unique(rank[~open_rows]).tolist()) - table.partial
        self._mixed = set(rows.loc[rows["p2p"], "group"].unique())
        self.unknown: set[tuple[int, str]] = set()
        self.enqueued = self._frontier()
        self._completed = {
            (int(row.rank), str(row.group)): int(row.completed)
            for row in table.frontiers.itertuples()
        }
        self._told = {int(rank) for rank in table.frontiers["rank"].unique()}
        self._busy = {
            int(row.rank) for row in table.frontiers.itertuples() if row.enqueued > row.completed
        }
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
        rows = self.table.rows
        last = rows.groupby([rows["rank"], rows["group"].cat.codes, rows["p2p"]], sort=False)[
            "seq"
        ].max()
        found = {
            (int(rank), self._names[code], bool(p2p)): int(seq)
            for (rank, code, p2p), seq in last.items()
        }
        told = set()
        for row in self.table.frontiers.itertuples():
            rank, group = int(row.rank), str(row.group)
            for p2p in (False, True):
                key = (rank, group, p2p)
                if p2p != (group in self._mixed) or (rank in self._whole and key in found):
                    continue
                told.add((rank, group))
                if not p2p or len(self.table.groups[group].members) == 2:
                    found[key] = max(found.get(key, -1), int(row.enqueued))
        first = rows.groupby("rank")["record"].min()
        cut = {rank for rank, record in first.items() if record > 0}
        self.unknown = {
            (rank, name)
            for name, group in self.table.groups.items()
            for rank in group.members
            if rank in cut and (rank, name) not in told and (rank, name, False) not in found
        }
        return found

    def _nth(self) -> npt.NDArray[np.int64]:
        """Per row, which send or receive between two ranks it is, counted from the first.

        Both sides count alike, unlike their numbers. Only a dump that goes back to the first record
        tells it, and no log; `_sent` has how many there are.
        """
        rows = self.table.rows
        nth = np.full(len(rows), -1, np.int64)
        first = rows.groupby("rank")[["record", "line"]].agg({"record": "min", "line": "max"})
        begun = first[(first["record"] == 0) & (first["line"] == 0)]
        whole = {int(rank) for rank in begun.index} & self._whole
        taken = rows["p2p"].to_numpy() & (rows["peer"].to_numpy() >= 0)
        taken &= rows["rank"].isin(whole).to_numpy()
        if taken.any():
            channel = ["rank", "group", "op", "peer"]
            groups = rows.loc[taken, channel].groupby(channel, observed=True, sort=False)
            nth[taken] = groups.cumcount().to_numpy()
            self._sent = {key: int(n) for key, n in groups.size().items()}
        self._counted = whole
        return nth

    def _pending(
        self, places: npt.NDArray[np.intp], nth: npt.NDArray[np.int64]
    ) -> dict[int, list[Op]]:
        """Pending operations per rank, oldest first; a batch is told by its members."""
        taken = self.table.rows.iloc[places]
        columns = zip(
            *(
                taken[name].tolist()
                for name in (
                    "rank", "group", "seq", "p2p", "op", "peer", "record", "state",
                    "time_created", "call", "site", "line",
                )
            ),
            nth[places].tolist(),
            strict=True,
        )  # fmt: skip
        found: dict[int, list[Op]] = defaultdict(list)
        for rank, group, seq, p2p, op, peer, record, state, *rest in columns:
            if p2p and op == "coalesced":
                continue
            started = state == "started"
            found[rank].append(Op(rank, group, seq, p2p, op, peer, record, started, *rest))
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

    def last_line(self, rank: int) -> int:
        """Line of the last operation a log tells of a rank; 0 for a dump."""
        lines = self.table.rows["line"].to_numpy()[self.table.rows["rank"].to_numpy() == rank]
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
        rows = self.table.rows
        for code in rows.loc[rows["group"] == group, "call"].unique().tolist():
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

    def called(self, row: pd.Series) -> str:
        """The call of a row of the table, for a report."""
        op = row["op"]
        return self.table.told(op, row["group"], row["seq"], op, int(row["peer"]), row["site"])

    def brief(self, op: Op) -> str:
        """An operation in few words: for an edge of the graph."""
        return self.table.told(op.op, op.group, op.seq, op.op, op.peer)
