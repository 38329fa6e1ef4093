"""Ranks that called something else than their group: who, and what was one call too many.

Calls of a group are compared by operation, sizes and types at the same sequence number; what the
majority called is taken as meant, so the order of files plays no part. A rank that differs is then
aligned with the majority by their longest common subsequence, to tell an extra call from one left
out and from one replaced.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.table import Table, shown
from diagnose.infer.judge.verdict import majority_of
from diagnose.parse.flight_recorder import COMPLETED, Call

if TYPE_CHECKING:
    import pandas as pd


Key = tuple[Any, ...]


WINDOW = 192  # calls aligned behind the first difference
# What ranks of one correct call may differ in.
_SIZES_OUT_ONLY = ("all_gather",)
_SIZES_IN_ONLY = ("reduce_scatter",)
_OP_ONLY = ("gather", "scatter", "coalesced", "gather_single")
_BEFORE = 8  # calls that must be equal in groups of one kind
_DESCRIBED = 8  # odd ranks aligned one by one


def majority(frame: pd.DataFrame, columns: list[str]) -> dict[int, Key]:
    """What most ranks called, by sequence number; the smallest key on a tie."""
    counted = frame.groupby(["seq", *columns], sort=True).size().reset_index(name="votes")
    best = counted.sort_values("votes", ascending=False, kind="stable").drop_duplicates("seq")
    keys = zip(*(best[column].tolist() for column in columns), strict=True)
    return dict(zip(best["seq"].tolist(), keys, strict=True))


def run_from(stream: dict[int, Key], start: int) -> list[Key]:
    """The calls from `start` on, without a gap, at most a window."""
    found = []
    for seq in range(start, start + WINDOW):
        if seq not in stream:
            break
        found.append(stream[seq])
    return found


def align(a: list[Key], b: list[Key]) -> tuple[int, int, int]:
    """Calls of `a` and of `b` before the two are in step again, and how many then agree.

    Of all first pairs the one with the longest common subsequence behind it; the least shift when
    several are as good.
    """
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    best = (0, 0, 0)
    rank = (0, 0, 0)
    for i in range(len(a) - 1, -1, -1):
        row, below = lengths[i], lengths[i + 1]
        for j in range(len(b) - 1, -1, -1):
            if a[i] == b[j]:
                row[j] = below[j + 1] + 1
                order = (row[j], -abs(i - j), -(i + j))
                if order > rank:
                    rank, best = order, (i, j, row[j])
            else:
                row[j] = max(below[j], row[j + 1])
    return best


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first call in which the ranks of one group disagree.

    `odd` called something else than the majority; on a tie it holds every side's ranks and `tie`
    is set. `calls` maps a printable call to the ranks that made it, most ranks first. `texts` has
    one line per odd rank. `created` is when the first of the odd calls was enqueued (ns), `site`
    where the majority's call is, `lines` the line of each rank's call (0 in a dump).
    """

    group: str
    seq: int
    op: str
    odd: tuple[int, ...]
    tie: bool
    calls: dict[str, tuple[int, ...]]
    texts: dict[int, str]
    created: int
    lines: dict[int, int]
    site: str = ""
    note: str = ""


def comparable(call: Call) -> Key:
    """What must be equal on all ranks of one collective."""
    if call.op in _OP_ONLY or "to_all" in call.op or "alltoall" in call.op:
        return (call.op,)
    if call.op in _SIZES_OUT_ONLY:
        return (call.op, call.size_out, call.dtype)
    if call.op in _SIZES_IN_ONLY:
        return (call.op, call.size_in, call.dtype)
    return (call.op, call.size_in, call.size_out, call.dtype)


def _apart(numbers: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]) -> bool:
    """Whether different `keys` have one number."""
    kinds = int(keys.max(initial=0)) + 1
    distinct = np.unique(numbers * kinds + keys) // kinds
    return bool((distinct[1:] == distinct[:-1]).any())


class Streams:
    """The collectives of every rank by group and sequence number."""

    def __init__(self, table: Table) -> None:
        columns = table.columns
        index: dict[Key, int] = {}
        keys = [index.setdefault(comparable(call), len(index)) for call in table.calls]
        taken = np.flatnonzero(~columns["p2p"].astype(bool))
        names = ("group", "seq", "rank", "call", "site", "line")
        self._columns = {name: columns[name][taken] for name in names}
        self._columns["created"] = columns["time_created"][taken]
        self._columns["open"] = (columns["state"] < COMPLETED)[taken]
        self._columns["key"] = np.array(keys, np.int32)[self._columns["call"]]
        self._table = table
        self._names = [*table.groups]
        self._sites = table.sites

    @cached_property
    def _frame(self) -> pd.DataFrame:
        """The same as a frame, for the few jobs in which calls differ."""
        import pandas as pd  # noqa: PLC0415  as it says

        frame = pd.DataFrame(self._columns)
        # A batch has one number for its members and for the batch itself, which comes last.
        return frame.drop_duplicates(["group", "seq", "rank"], keep="last")

    def _differ(self) -> bool:
        """Whether a group that did not finish has calls that differ under one number."""
        stalled = np.isin(self._columns["group"], self._columns["group"][self._columns["open"]])
        group, seq, key = (
            self._columns[name][stalled].astype(np.int64) for name in ("group", "seq", "key")
        )
        return _apart(group * (seq.max(initial=0) + 1) + seq, key)

    def mismatches(self) -> list[Mismatch]:
        """Groups that did not finish and disagree in a call, the earliest first."""
        if not self._differ():
            return []
        frame = self._frame
        stalled = frame["group"].isin(frame.loc[frame["open"], "group"].unique())
        kinds = frame.loc[stalled, ["group", "seq", "key"]].drop_duplicates()
        differing = kinds[kinds.duplicated(["group", "seq"], keep=False)]
        found = []
        for group, seqs in differing.groupby("group")["seq"]:
            of_group = frame[frame["group"] == group]
            mismatch = self._first(int(group), of_group, sorted(set(seqs.tolist())))
            if mismatch is not None:
                found.append(mismatch)
        return sorted(found, key=lambda m: (m.created, m.group))

    def _first(self, group: int, frame: pd.DataFrame, seqs: list[int]) -> Mismatch | None:
        """The difference that stopped the group: still open there, or never in step again."""
        for seq in seqs[:WINDOW]:
            at = frame[frame["seq"] == seq]
            votes = Counter(at["key"].tolist())
            major, note = majority_of(votes), ""
            if major is None:
                major, note = self._siblings(group, seq, votes)
            tie = major is None
            odd = sorted(set(at["rank"].tolist() if tie else at.loc[at["key"] != major, "rank"]))
            if not at["open"].any() and not self._lasting(frame, seqs, odd):
                continue
            calls: dict[str, list[int]] = {}
            order = at.assign(votes=at["key"].map(votes)).sort_values(
                ["votes", "key", "rank"], ascending=[False, True, True]
            )
            for row in order.itertuples():
                calls.setdefault(shown(self._table.calls[int(row.call)]), []).append(int(row.rank))
            one = at[at["rank"].isin(odd)]
            reference = at if tie else at[at["key"] == major]
            return Mismatch(
                self._names[group], int(seq), self._table.calls[int(reference["call"].min())].op,
                tuple(int(rank) for rank in odd), tie,
                {call: tuple(ranks) for call, ranks in calls.items()},
                {} if tie else self._say(frame, odd, seq), int(one["created"].min()),
                dict(zip(at["rank"].tolist(), at["line"].tolist(), strict=True)),
                self._sites[int(reference["site"].mode().iloc[0])], note,
            )  # fmt: skip
        return None

    @staticmethod
    def _lasting(frame: pd.DataFrame, seqs: list[int], odd: list[int]) -> bool:
        """Whether an odd rank still disagrees in the last call it shares with the others."""
        own = frame[frame["rank"].isin(odd)]
        others = frame[~frame["rank"].isin(odd)]
        last = min(own["seq"].max(), others["seq"].max()) if len(own) and len(others) else -1
        return last in seqs[-1:]

    def _siblings(self, group: int, seq: int, votes: Counter[int]) -> tuple[int | None, str]:
        """Settle a tie by groups of the same kind: other replicas make the same calls."""
        beside = self._beside(group, seq)
        major = majority_of({key: n for key, n in beside.items() if key in votes})
        if major is None:
            return None, ""
        return major, "no majority in its own group; decided by groups of the same kind"

    def _beside(self, group: int, seq: int) -> Counter[int]:
        """What ranks of like groups called at `seq`.

        Alike are groups of the same description and size that made the same calls before.
        """
        groups = self._table.groups
        own = groups[self._names[group]]
        alike = [
            code
            for code, name in enumerate(self._names)
            if groups[name].desc == own.desc
            and (not own.listed or len(groups[name].members) == len(own.members))
        ]
        near = self._frame["seq"].between(seq - _BEFORE, seq) & self._frame["group"].isin(alike)
        frame = self._frame[near]
        streams = {
            int(code): majority(part[part["seq"] < seq], ["key"])
            for code, part in frame.groupby("group")
        }
        mine = streams.get(group, {})
        same = [
            code
            for code, stream in streams.items()
            if code != group
            and all(stream[s] == mine[s] for s in stream.keys() & mine.keys())
            and (stream.keys() & mine.keys() or own.listed)
        ]
        at = frame[(frame["seq"] == seq) & frame["group"].isin(same)]
        return Counter(int(key) for key in at["key"].tolist())

    def odd_beside(self, rank: int, group: str, seq: int) -> str | None:
        """What `rank` called at `seq` unlike all like groups; for want of its own peers."""
        code, frame = self._names.index(group), self._frame
        own = frame[(frame["group"] == code) & (frame["seq"] == seq) & (frame["rank"] == rank)]
        votes = self._beside(code, seq)
        if own.empty or len(votes) != 1 or own["key"].iloc[0] in votes or sum(votes.values()) < 2:
            return None
        (usual,) = votes
        others = frame[(frame["key"] == usual) & (frame["seq"] == seq)]
        return self._instead(rank, own.iloc[0], others.iloc[0], seq, "ranks of like groups")

    def _say(self, frame: pd.DataFrame, odd: list[int], seq: int) -> dict[int, str]:
        others = frame[~frame["rank"].isin(odd)]
        texts = {}
        for rank in odd[:_DESCRIBED]:
            own = frame[frame["rank"] == rank]
            texts[rank] = self._shift(rank, own, others) or self._difference(rank, own, others, seq)
        return texts

    def shift(self, group: str, rank: int, others: list[int]) -> str | None:
        """Where `rank` got out of step with `others` by call sites, though all calls look alike."""
        code, columns = self._names.index(group), self._columns
        theirs = (columns["group"] == code) & np.isin(columns["rank"], [rank, *others])
        seq, key, site = (columns[name][theirs].astype(np.int64) for name in ("seq", "key", "site"))
        if not _apart(seq, key * len(self._sites) + site):
            return None
        frame = self._frame[self._frame["group"] == code]
        return self._shift(rank, frame[frame["rank"] == rank], frame[frame["rank"].isin(others)])

    def _shift(self, rank: int, own: pd.DataFrame, others: pd.DataFrame) -> str | None:
        """An extra call or one left out, told by the call sites as well; None when unclear."""
        if others.empty or not (own["site"] > 0).any():
            return None
        usual = majority(others, ["key", "site"])
        mine = {
            int(seq): (int(key), int(site))
            for seq, key, site in zip(own["seq"], own["key"], own["site"], strict=True)
        }
        start = next((s for s in sorted(mine) if s in usual and mine[s] != usual[s]), None)
        if start is None or start - 1 not in mine or start - 1 not in usual:
            return None
        a, b = run_from(mine, start), run_from(usual, start)
        extra, left, score = align(a, b)
        if extra == left or score < max(1, 0.6 * (min(len(a) - extra, len(b) - left))):
            return None
        if extra and not left:
            return self._many(rank, "made", "extra", own, start, extra)
        if left and not extra:
            return self._many(rank, "left out", "", others, start, left)
        return None

    def _many(
        self, rank: int, verb: str, extra: str, frame: pd.DataFrame, start: int, count: int
    ) -> str:
        first = frame[frame["seq"] == start].iloc[0]
        op = self._table.calls[int(first["call"])].op
        number = "one" if count == 1 else str(count)
        what = f"{extra} {op}" if count == 1 else f"{extra} collectives, first {op}"
        return f"rank {rank} {verb} {number} {what.strip()}{self._at(first)} after seq {start - 1}"

    def _difference(self, rank: int, own: pd.DataFrame, others: pd.DataFrame, seq: int) -> str:
        usual = majority(others, ["key"])
        mine = {int(s): (int(k),) for s, k in zip(own["seq"], own["key"], strict=True)}
        a, b = run_from(mine, seq), run_from(usual, seq)
        extra, left, score = align(a, b)
        if score and extra and not left:
            return self._many(rank, "made", "extra", own, seq, extra)
        if score and left and not extra:
            return self._many(rank, "left out", "", others, seq, left)
        did = own[own["seq"] == seq].iloc[0]
        meant = others[(others["seq"] == seq) & (others["key"] == usual[seq][0])].iloc[0]
        return self._instead(rank, did, meant, seq, "the others")

    def _instead(self, rank: int, did: pd.Series, meant: pd.Series, seq: int, whom: str) -> str:
        calls = self._table.calls
        return (
            f"rank {rank} called {shown(calls[int(did['call'])])}{self._at(did)} where {whom} "
            f"called {shown(calls[int(meant['call'])])}{self._at(meant)} at seq {seq}"
        )

    def _at(self, row: pd.Series) -> str:
        site = self._sites[int(row["site"])]
        return f" at {site}" if site else ""
