"""Ranks that went another way through the program than the ranks that had gone with them so far.

Ranks of one role make the same calls in the same order over all their groups: with tensor and data
groups, call 9 of the one comes between calls 4 and 5 of the other on every rank. A rank whose next
call differs from that of the others though the calls before it were the same has skipped one, made
an extra one, or swapped two, even where all calls look alike. Numbers are compared, not sizes, so
that it also shows in groups of two, where no majority is to be had.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.table import Table
from diagnose.parse.flight_recorder import COMPLETED

_BEFORE = 4  # calls that must be the same before one that differs
_SINCE = 3  # calls after it that show that a rank stayed out of step
_ASKED = 8  # ranks of the majority that are looked at
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stray:
    """A rank that left the way of the others.

    `before`, `own` and `usual` are rows of the table: the call before, its own next one and that of
    the `votes` other ranks. `proven`: calls it made since show that it never came back in step.
    Else two calls that can pass each other may just have done so.
    """

    rank: int
    before: int
    own: int
    usual: int
    votes: int
    proven: bool


def strays(table: Table) -> list[Stray]:
    """Ranks that left the way of the others and did not come back before the job stood still.

    A harmless difference (two calls swapped that can pass each other) ends with the ranks in step
    again; one that stopped the job is followed by nothing they have in common, or by an operation
    that never ended. Kinds of groups whose order changes on other ranks as well tell nothing. Only
    dumps are looked at: what logs tell has gaps.
    """
    if table.columns["line"].any():
        return []
    ways = _Ways(table)
    if len(ways.rank) < 2:
        return []
    rank, token = ways.rank, ways.token
    context, whole = _contexts(rank, token)
    follows = np.flatnonzero((rank[1:] == rank[:-1]) & whole[:-1])
    _, way = np.unique(context[follows], return_inverse=True)
    _, turn = np.unique(_mixed(context[follows]) ^ token[follows + 1], return_inverse=True)
    went = np.bincount(turn)[turn]
    best = np.zeros(way.max(initial=-1) + 1, np.int64)
    np.maximum.at(best, way, went)
    usual = np.zeros(len(best), np.int64)  # a step that most took
    usual[way[went == best[way]]] = np.flatnonzero(went == best[way])
    minor = np.flatnonzero(turn != turn[usual[way]])
    here, there = follows[minor], follows[usual[way[minor]]]
    between = ways.kind[[here + 1, there + 1]]
    pair = _mixed(between.min(axis=0)) ^ between.max(axis=0)
    shared = np.bincount(way)[way] > 1
    last = np.full(int(rank.max()) + 1, -1, np.int64)
    np.maximum.at(last, rank[follows[shared]], follows[shared])
    lasting = ways.open[here + 1] | (last[rank[here]] == here)
    found: dict[int, Stray] = {}
    for at in np.flatnonzero(lasting & (best[way[minor]] >= 2)).tolist():
        step, who = minor[at], int(rank[here[at]])
        if who in found or 2 * went[step] > best[way[step]]:
            continue
        alike = pair == pair[at]
        if (alike & ((rank[here] != who) | (here < here[at]))).any():
            continue
        others = follows[(way == way[step]) & (turn == turn[usual[way[step]]])][:_ASKED]
        fellow = next((o for o in others.tolist() if ways.together(int(here[at]), o)), None)
        if fellow is not None:
            before, own, meant = ways.place[[here[at], here[at] + 1, fellow + 1]].tolist()
            proven = ways.apart(int(here[at]) + 1, fellow + 1)
            found[who] = Stray(who, before, own, meant, int(best[way[step]]), proven)
    return [found[who] for who in sorted(found)]


class _Ways:
    """The calls of all ranks one behind the other; a batch is one call.

    `token` is equal for the same call of the program on ranks of one role: the kind of the group
    and the number of the call in it. `place` is the row of the table.
    """

    def __init__(self, table: Table) -> None:
        columns = table.columns
        rank, group = (columns[name].astype(np.int64) for name in ("rank", "group"))
        pairs, inverse = np.unique(rank * len(table.groups) + group, return_inverse=True)
        known, keys = kinds(table), [*table.groups]
        of_pair = [
            known.get((pair // len(keys), keys[pair % len(keys)]), -1) for pair in pairs.tolist()
        ]
        kind = np.array(of_pair, np.int64)[inverse] << 1 | columns["p2p"].astype(bool)
        token = _mixed(kind << 44 | columns["seq"])
        first = np.append(True, (token[1:] != token[:-1]) | (rank[1:] != rank[:-1]))
        self.place = np.flatnonzero(first[: len(token)])
        self.rank, self.token, self.kind = rank[self.place], token[self.place], kind[self.place]
        self.seq = columns["seq"][self.place]
        self.open = (columns["state"] < COMPLETED)[self.place]

    def together(self, here: int, there: int) -> bool:
        """Whether two ranks went one way until they parted, as far as both dumps go back.

        On it they must have made calls of both the kinds in which they now differ.
        """
        count = 1 + min(
            here - np.searchsorted(self.rank, self.rank[here]),
            there - np.searchsorted(self.rank, self.rank[there]),
        )
        mine, theirs = slice(here + 1 - count, here + 1), slice(there + 1 - count, there + 1)
        made = self.kind[mine]
        return bool(
            (self.token[mine] == self.token[theirs]).all()
            and (made == self.kind[here + 1]).any()
            and (made == self.kind[there + 1]).any()
        )

    def apart(self, here: int, there: int) -> bool:
        """Whether two ranks stayed out of step from two different calls on.

        That is, one of the kinds is ahead by as much, seen from every call of the other.
        """
        kinds_of = int(self.kind[here]), int(self.kind[there])
        for seen, counted in (kinds_of, kinds_of[::-1]):
            mine, theirs = (self._ahead(at, seen, counted) for at in (here, there))
            both = sorted(mine.keys() & theirs.keys())
            gaps = {mine[seq] - theirs[seq] for seq in both}
            if len(both) >= _SINCE and len(gaps) == 1 and gaps != {0}:
                return True
        return False

    def _ahead(self, start: int, seen: int, counted: int) -> dict[int, int]:
        """Calls of one kind from `start` on → the last number of the other kind before each."""
        end = int(np.searchsorted(self.rank, self.rank[start], "right"))
        begin = int(np.searchsorted(self.rank, self.rank[start]))
        kind, seq = self.kind[begin:end], self.seq[begin:end]
        last = np.maximum.accumulate(np.where(kind == counted, seq, -1))
        at = np.flatnonzero(kind == seen)
        at = at[(at >= start - begin) & (last[at] >= 0)]
        return dict(zip(seq[at].tolist(), last[at].tolist(), strict=True))


def kinds(table: Table) -> dict[tuple[int, str], int]:
    """(rank, group) → a number for the kind of group and the role of the rank in it.

    Groups of one description are told apart by the order of their names. The role is the place in
    the groups that send and receive: each stage of a pipeline has a program of its own.
    """
    whole = {group.key for group in table.groups.values() if len(group.members) == table.world}
    keys, columns = [*table.groups], table.columns
    sending = {keys[code] for code in np.unique(columns["group"][columns["p2p"].astype(bool)])}
    places: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for key in sorted(sending - whole) or sorted(sending):
        for place, rank in enumerate(table.groups[key].members):
            places[rank].append((table.groups[key].desc, place))
    own: dict[int, list[tuple[str, int, str, str]]] = defaultdict(list)
    for key, group in table.groups.items():
        for rank in group.members:
            own[rank].append((group.desc, len(group.name), group.name, key))
    numbers: dict[tuple[object, ...], int] = {}
    found = {}
    for rank, groups in own.items():
        seen: dict[str, int] = defaultdict(int)
        for desc, _, _, key in sorted(groups):
            kind = (*places[rank], desc, seen[desc])
            found[rank, key] = numbers.setdefault(kind, len(numbers))
            seen[desc] += 1
    return found


def _mixed(values: _Ints) -> _Ints:
    """Numbers spread over 64 bits."""
    mixed = (values.view(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return (mixed * np.uint64(0xBF58476D1CE4E5B9)).view(np.int64)


def _contexts(rank: _Ints, token: _Ints) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    """What came before each call and itself as one number, and where enough of it is known."""
    begin = np.flatnonzero(np.append(True, rank[1:] != rank[:-1]))
    inside = np.arange(len(rank)) - np.repeat(begin, np.diff(np.append(begin, len(rank))))
    context = np.zeros(len(token), np.int64)
    for back in range(_BEFORE):
        earlier = np.zeros(len(token), np.int64)
        earlier[back:] = token[: max(0, len(token) - back)]
        context = _mixed(context ^ earlier)
    return context, inside >= _BEFORE - 1
