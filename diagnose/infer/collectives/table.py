"""One table of all that ranks enqueued: rank × group × sequence number.

Built from Flight Recorder dumps; does not depend on the order of the files. Groups are keyed by
name and members, because split groups may carry one name on different ranks. Where no dump tells
the members (gloo), they are the ranks that share the group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.parallelism import DEFAULT_GROUP, Group
from diagnose.parse.flight_recorder import Call, Dump, Sizes, batched, close_lone_members

_Columns = dict[str, npt.NDArray[Any]]

_STALE_NS = 60 * 10**9
COLUMNS = (
    "rank", "group", "call", "site", "peer", "seq", "p2p", "state", "retired", "time_created",
    "record", "timeout_ms", "line",
)  # fmt: skip


@dataclass
class Table:
    """Everything the dumps of one attempt tell.

    `columns`: one row per operation of a rank, by rank, then oldest first: rank, group (index into
    `groups`), call and site (into `calls` and `sites`), peer (global rank of the other side, -1),
    seq (of sends and receives their own count), p2p, state, retired, time_created (ns since the
    epoch, 0 when unknown), record, timeout_ms (-1) and line (1-based, of the log that tells it; 0
    for a dump). `statuses`: rank, group, enqueued, started, completed as the status of the group
    says (-1: none; sends and receives count as well). `files`: rank → file of its dump.
    """

    columns: _Columns
    statuses: list[tuple[int, str, int, int, int]]
    groups: dict[str, Group]
    calls: list[Call]
    sites: list[str]
    files: dict[int, str]
    world: int
    partial: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether it has no operation; groups it may have."""
        return len(self.columns["rank"]) == 0

    def described(self, what: str, group: str, seq: int, op: str, peer: int, site: str = "") -> str:
        """`what` with its other side, its number in its group and its call site, for a report."""
        sides = {"send": f" to rank {peer}", "recv": f" from rank {peer}"}
        text = f"{what}{sides.get(op, '') if peer >= 0 else ''} seq {seq}"
        text += f" of {self.groups[group].label}"
        return f"{text} at {site}" if site else text


def shown(call: Call) -> str:
    """A call for a report: `all_reduce [1024, 512] BFloat16`."""
    parts = [call.op, _sizes(call.size_in or call.size_out), call.dtype]
    return " ".join(part for part in parts if part)


def _sizes(sizes: Sizes) -> str:
    text = " ".join(f"[{', '.join(map(str, size))}]" for size in sizes[:2])
    return f"{text} and {len(sizes) - 2} more" if len(sizes) > 2 else text


def table(dumps: Iterable[Dump], world: int | None = None) -> Table:
    """The table of all `dumps` whose rank is known; `world`: ranks of the job, if known.

    Dumps of an older attempt and older ones of the same rank are left out, with a note.
    """
    notes: list[str] = []
    chosen = _current(_one_a_rank(dumps, notes), notes)
    descs = {desc for dump in chosen.values() for desc in batched(dump)}
    for dump in chosen.values():
        close_lone_members(dump, descs)
    files = {rank: dump.name for rank, dump in chosen.items()}
    # Dumps made of one log share the tuples of their groups: a look at each is enough.
    members = {id(g.ranks): g.ranks for dump in chosen.values() for g in dump.config}
    highest = (max(ranks, default=-1) for ranks in (tuple(chosen), *members.values()))
    size = max(world or 0, max(highest) + 1)
    keys, groups = _groups(chosen, size)
    statuses = [
        (rank, keys[rank, name], status.enqueued, status.started, status.completed)
        for rank, dump in chosen.items()
        for name, status in dump.status.items()
        if (rank, name) in keys
    ]
    for dump in chosen.values():
        if dump.partial and dump.lines is None:
            notes.append(f"{dump.name} is truncated: its last entries are missing")
    columns, calls, sites = _columns(chosen, keys, groups)
    partial = {rank for rank, dump in chosen.items() if dump.partial}
    return Table(columns, statuses, groups, calls, sites, files, size, partial, notes)


def _last(dump: Dump) -> int:
    return int(dump.created.max(initial=0)) if len(dump) else 0


def _one_a_rank(dumps: Iterable[Dump], notes: list[str]) -> dict[int, Dump]:
    """The newest dump of every rank, by rank."""
    found: dict[int, list[Dump]] = defaultdict(list)
    for dump in dumps:
        if dump.rank is None:
            notes.append(f"{dump.name}: the name contains no rank, so the dump is ignored")
        else:
            found[dump.rank].append(dump)
    chosen = {}
    for rank in sorted(found):
        newest = max(found[rank], key=lambda dump: (_last(dump), len(dump), dump.name))
        notes += [
            f"{dump.name} ignored: {newest.name} is a newer dump of rank {rank}"
            for dump in sorted(found[rank], key=lambda dump: dump.name)
            if dump is not newest
        ]
        chosen[rank] = newest
    return chosen


def _current(chosen: dict[int, Dump], notes: list[str]) -> dict[int, Dump]:
    """Dumps of the newest attempt.

    Ranks of one attempt wait for each other, so what they recorded overlaps in time; a dump that
    ends long (a minute and the timeout) before all others begin is from before a restart.
    """
    timed = sorted(
        ((_last(dump), rank) for rank, dump in chosen.items() if _last(dump) > 0), reverse=True
    )
    if not timed:
        return chosen
    waits = [int(dump.timeout_ms.max(initial=0)) for dump in chosen.values() if len(dump)]
    margin = max(_STALE_NS, max(waits, default=0) * 10**6)
    begin = timed[0][0]
    for position, (last, rank) in enumerate(timed):
        if last < begin - margin:
            stale = sorted(rank for _, rank in timed[position:])
            notes += [
                f"{chosen[r].name} ignored: written before a restart, it ends "
                f"{(begin - _last(chosen[r])) // 10**9:,} s before the others begin"
                for r in stale
            ]
            return {r: dump for r, dump in chosen.items() if r not in stale}
        created = chosen[rank].created
        begin = min(begin, int(created[created > 0].min(initial=begin)))
    return chosen


class _Lists:
    """Lists of ranks by number: one that many dumps share, or tell alike, is looked at once."""

    def __init__(self) -> None:
        self._of_value: dict[tuple[int, ...], int] = {}
        self._of_object: dict[int, int] = {}
        self._members: dict[int, frozenset[int]] = {}
        self.ranks: list[tuple[int, ...]] = []

    def number(self, ranks: tuple[int, ...]) -> int:
        """The number of a list, which must live as long as this."""
        number = self._of_object.get(id(ranks))
        if number is None:
            number = self._of_value.setdefault(ranks, len(self._of_value))
            if number == len(self.ranks):
                self.ranks.append(ranks)
            self._of_object[id(ranks)] = number
        return number

    def holds(self, number: int, rank: int) -> bool:
        """Whether a rank is in a list."""
        if number not in self._members:
            self._members[number] = frozenset(self.ranks[number])
        return rank in self._members[number]


def _groups(
    chosen: dict[int, Dump], world: int
) -> tuple[dict[tuple[int, str], str], dict[str, Group]]:
    """(rank, name) → key, and all groups by key."""
    lists = _Lists()
    listed: dict[str, set[int]] = defaultdict(set)
    descs: dict[str, Counter[str]] = defaultdict(Counter)
    for dump in chosen.values():
        for group in dump.config:
            listed[group.name].add(lists.number(group.ranks))
            descs[group.name][group.desc] += 1
        for name, desc in dump.pgs:
            descs[name][desc] += 1
    members: dict[tuple[int, str], int | None] = {}
    sharing: dict[str, set[int]] = defaultdict(set)
    for rank, dump in chosen.items():
        own = {group.name: lists.number(group.ranks) for group in dump.config if group.ranks}
        for name in {*(group.name for group in dump.config), *(name for name, _ in dump.pgs)}:
            found = own.get(name)
            if found is None:
                fitting = (number for number in listed[name] if lists.holds(number, rank))
                found = max(fitting, key=lambda number: lists.ranks[number], default=None)
            members[rank, name] = found
            if found is None:
                sharing[name].add(rank)
    sets: dict[str, set[int | None]] = defaultdict(set)
    for (_, name), found in members.items():
        sets[name].add(found)
    keys, groups = {}, {}
    for (rank, name), found in members.items():
        ranks = None if found is None else lists.ranks[found]
        key = name if len(sets[name]) == 1 else f"{name}{_short(ranks)}"
        keys[rank, name] = key
        if key in groups:
            continue
        desc = min(descs[name], key=lambda d: (-descs[name][d], d)) if descs[name] else ""
        whole = tuple(range(world)) if desc == DEFAULT_GROUP else tuple(sorted(sharing[name]))
        groups[key] = Group(key, name, desc, ranks or whole, ranks is not None)
    return keys, {key: groups[key] for key in sorted(groups)}


def _short(ranks: tuple[int, ...] | None) -> str:
    if ranks is None:
        return "[?]"
    shown = ",".join(map(str, ranks[:4]))
    return f"[{shown}]" if len(ranks) <= 4 else f"[{shown},…{ranks[-1]}]"


def _columns(
    chosen: dict[int, Dump], keys: dict[tuple[int, str], str], groups: dict[str, Group]
) -> tuple[_Columns, list[Call], list[str]]:
    """All columns, dump by dump; what repeats is kept once and referred to by number."""
    group_index = {key: code for code, key in enumerate(groups)}
    calls: dict[Call, int] = {}
    sites: dict[str, int] = {"": 0}
    parts: dict[str, list[npt.NDArray[Any]]] = defaultdict(list)
    for rank, dump in chosen.items():
        if not len(dump):
            continue  # of ten thousand ranks whose logs show no call
        pgs = [keys[rank, name] for name, _ in dump.pgs]
        peers = peer_ranks(dump, [groups[key] for key in pgs])
        columns: _Columns = {
            "rank": np.full(len(dump), rank, np.int32),
            "group": np.array([group_index[key] for key in pgs], np.int32)[dump.pg],
            "call": np.array([calls.setdefault(c, len(calls)) for c in dump.calls], np.int32)[
                dump.call
            ],
            "site": np.array([sites.setdefault(s, len(sites)) for s in dump.sites], np.int32)[
                dump.site
            ],
            "peer": peers,
            "seq": dump.seq,
            "p2p": dump.p2p,
            "state": dump.state,
            "retired": dump.retired,
            "time_created": dump.created,
            "record": dump.record,
            "timeout_ms": dump.timeout_ms.astype(np.int32),
            "line": np.zeros(len(dump), np.int32) if dump.lines is None else dump.lines,
        }
        for name, column in columns.items():
            parts[name].append(column)
    empty = {name: np.zeros(0, np.int64) for name in COLUMNS}
    whole = {name: np.concatenate(parts[name]) if parts else empty[name] for name in COLUMNS}
    return whole, [*calls], [*sites]


def peer_ranks(dump: Dump, groups: list[Group]) -> npt.NDArray[np.int32]:
    """Global rank of the other side of a send or receive; -1 for a collective."""
    peers = np.array([-1 if c.peer is None else c.peer for c in dump.calls], np.int32)[dump.call]
    if (peers < 0).all():
        return peers
    for code, group in enumerate(groups):
        inside = (dump.pg == code) & (peers >= 0) & (peers < len(group.members))
        if group.listed and inside.any():
            peers[inside] = np.array(group.members, np.int32)[peers[inside]]
    return peers
