"""Which global rank is behind every rank of every communicator, and what their counts show.

The communicator that covers all processes is the world: ranks inside it are the global ones. The
members of the others follow from their processes. Ranks told by lines or files come first, as
long as every process has one of its own.

Not all calls are counted: no sends, receives and all-to-all. A rank that waits in one of these
lacks calls elsewhere, like the rank that it waits for; but that one lacks more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, zip_longest
from typing import NamedTuple

from diagnose.infer.collectives.parallelism import Group
from diagnose.infer.judge.standing import AHEAD, line_through
from diagnose.parse.comm_rank import CommRank
from diagnose.parse.nccl_inits import INIT
from diagnose.text.ranks import counted

MAX_SIZE = 1 << 20  # ranks of a communicator
_MAX_ATTEMPTS = 64
_PAIR = 2  # ranks of which nobody knows which is odd
# By rank, and by the size of its communicators, a number for each of these.
Numbers = Mapping[int, Mapping[int, list[int]]]


@dataclass(slots=True)
class Unit:
    """One rank: a process, or one GPU of a process with several, and all that is told of it."""

    entries: list[CommRank]
    rank: int | None = None
    open_end: bool = False  # its last call may be in a communicator that cannot be judged

    @property
    def gone(self) -> bool:
        """Whether the process is dead or does not answer."""
        return any(one.gone for one in self.entries)

    @property
    def dead(self) -> bool:
        """Whether the process is known to have ended."""
        return any(one.dead for one in self.entries)

    @property
    def nameless(self) -> bool:
        """Whether nothing says which process it is: a number inside a communicator is all."""
        return all(one.pid is None and one.rank is None for one in self.entries)

    @property
    def prefix(self) -> int | None:
        """The rank that lines or files tell."""
        return next((one.rank for one in self.entries if one.rank is not None), None)

    @property
    def span(self) -> tuple[str, int, int]:
        """Source, first and last line."""
        lines = [n for one in self.entries for n in (one.line, *(c.line for c in one.calls))]
        return self.entries[0].source, min(lines), max(lines)


def units_of(ranks: Sequence[CommRank]) -> list[Unit]:
    """One for each process; for each device where a process is several ranks of a communicator."""
    places: dict[tuple[object, ...], set[int | None]] = defaultdict(set)
    for one in ranks:
        if one.comm:
            places[one.host, one.pid, one.comm].add(one.comm_rank)
    several = {key[:2] for key, numbers in places.items() if len(numbers) > 1}
    found: dict[tuple[object, ...], Unit] = {}
    for one in ranks:
        key: tuple[object, ...] = (one.host, one.pid)
        if one.pid is None:
            key = (one.source, one.comm, one.comm_rank)
        elif key in several:
            key = (*key, one.device)
        found.setdefault(key, Unit([])).entries.append(one)
    return [*found.values()]


def merged(units: list[Unit]) -> list[Unit]:
    """Nameless entries of a rank, with what is told of its process.

    Without a rank they are some rank of a group that others tell of, and no process of their own.
    """
    kept = [unit for unit in units if not unit.nameless]
    by_rank = {unit.rank: unit for unit in kept}
    for unit in units:
        if unit.nameless and unit.rank is not None:
            whole = by_rank.setdefault(unit.rank, unit)
            if whole is unit:
                kept.append(unit)
            else:
                whole.entries += unit.entries
    return kept


@dataclass(slots=True)
class Communicator:
    """A communicator: what is told of its ranks by their number in it, and the global ranks.

    `ranks` has members of which nothing is told as well, where the others show which they are.
    `seen` is what is told of all, also of those that nobody can say which ranks they are.
    """

    name: str
    size: int
    known: dict[int, CommRank] = field(default_factory=dict)
    seen: dict[int, CommRank] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    world: bool = False

    @property
    def desc(self) -> str:
        """What it is called beside its name."""
        return "world" if self.world else f"communicator of {self.size}"

    @property
    def beginning(self) -> dict[int, CommRank]:
        """Those that began to make it and did not complete."""
        return {
            place: one
            for place, one in self.known.items()
            if not one.truncated and any(call.op == INIT for call in one.calls)
        }


def groups_of(ranks: Sequence[CommRank]) -> tuple[list[Group], int] | None:
    """The groups of communicators that began, and how many ranks the job has by them.

    None where a rank made a call in one, or others may wait for it to begin.
    """
    if any(call.op != INIT for one in ranks for call in one.calls):
        return None
    units, comms = members(ranks, [])
    most = mostly_known(units, comms)
    if any(comm.beginning and (most(comm) or comm.size <= len(comm.known)) for comm in comms):
        return None
    groups = [
        Group(comm.name, comm.name, comm.desc, tuple(sorted(comm.ranks.values())), listed=True)
        for comm in comms
        if len(comm.beginning) < len(comm.known)
    ]
    known = [unit.rank for unit in units if unit.rank is not None]
    return groups, max([*known, *(rank for group in groups for rank in group.members), -1]) + 1


def mostly_known(
    units: Iterable[Unit], comms: Iterable[Communicator]
) -> Callable[[Communicator], bool]:
    """Whether only few ranks of a communicator left no line at all."""
    present = {unit.rank for unit in units if unit.rank is not None and not unit.gone}
    size = max((comm.size for comm in comms if comm.world), default=0)
    if size:
        return lambda comm: 2 * len(present) > size
    return lambda comm: 2 * len(comm.known) > comm.size


def members(ranks: Iterable[CommRank], notes: list[str]) -> tuple[list[Unit], list[Communicator]]:
    """The ranks of the job and its communicators, in an order that no file order changes."""
    units = units_of(sorted(ranks, key=lambda one: (one.host or "", one.pid or 0, one.source)))
    comms = _communicators(units, notes)
    worlds = _worlds(units, comms)
    _number(units, worlds)
    units = _newest(merged(units), notes)
    unknown = sum(unit.rank is None for unit in units)
    if unknown:
        notes.append(f"NCCL: {counted(unknown, 'process', 'processes')} of unknown rank ignored")
    of = {id(one): unit.rank for unit in units if unit.rank is not None for one in unit.entries}
    found = []
    world = {id(comm) for comm, _ in worlds}
    for comm, places in comms:
        comm.seen = places
        comm.known = {place: one for place, one in places.items() if id(one) in of}
        comm.ranks = {place: of[id(one)] for place, one in comm.known.items()}
        comm.world = id(comm) in world
        _complete(comm)
        if comm.known:
            found.append(comm)
    return [unit for unit in units if unit.rank is not None], found


Placed = tuple[Communicator, dict[int, CommRank]]


def _communicators(units: list[Unit], notes: list[str]) -> list[Placed]:
    """Communicators with what is told of them, by place: the number in it, else just counted.

    Without a name (before NCCL 2.16, or without init lines) only those that span the job can be
    matched, by their order in each process.
    """
    largest = max((one.size or 0 for unit in units for one in unit.entries), default=0)
    found: dict[tuple[str, bool], Placed] = {}
    for unit in units:
        order: Counter[int] = Counter()
        for one in unit.entries:
            # RAS and Inspector name communicators alike, but count differently.
            key = (one.comm, one.launched is None and one.completed is not None)
            size = one.size or 0
            if not one.comm:
                if size != largest or not size:
                    continue
                order[size] += 1
                key = (f"#{order[size]}", False)
            comm, places = found.setdefault(key, (Communicator(key[0], size), {}))
            comm.size = max(comm.size, size)
            place = one.comm_rank
            if place is None:
                place = -1 - len(places)
            places.setdefault(place, one)
    # More than its size: groups beside each other, and which rank is in which is not told.
    kept = [found[key] for key in sorted(found) if len(found[key][1]) <= found[key][0].size]
    matched = {id(one) for _, places in kept for one in places.values()}
    for _, places in kept:
        _mark_incomplete(places.values())
    unmatched = 0
    for unit in units:
        last = max(unit.entries, key=lambda one: one.line)
        unmatched += sum(1 for one in unit.entries if one.size and id(one) not in matched)
        known = last.launched is not None or last.completed is not None
        judged = known and id(last) in matched and not last.truncated
        unit.open_end = last.size is not None and not judged
    if unmatched:
        notes.append(
            f"NCCL: {counted(unmatched, 'entry', 'entries')} ignored: without commId (NCCL 2.16 "
            "on, NCCL_DEBUG_SUBSYS=INIT,COLL) ranks of one communicator cannot be found"
        )
    return kept


def _mark_incomplete(ranks: Collection[CommRank]) -> None:
    """Mark what lacks more calls than others can be ahead: it made them, its log has lost them."""
    top = max((one.launched for one in ranks if one.launched is not None), default=-1)
    for one in ranks:
        if one.launched is not None and top - one.launched > AHEAD:
            one.truncated = True


def _worlds(units: list[Unit], comms: list[Placed]) -> list[Placed]:
    """The largest communicators, if they have room for all: one, or one an attempt."""
    known = (one.world or 0 for unit in units for one in unit.entries)
    largest = max([*known, *(comm.size for comm, _ in comms)], default=0)
    worlds = [placed for placed in comms if placed[0].size == largest]
    inside = {id(one) for _, places in worlds for one in places.values()}
    for unit in units:
        outside = not any(id(one) in inside for one in unit.entries)
        if outside and unit.entries[0].size and not unit.nameless:
            return []
    return worlds


def _number(units: list[Unit], worlds: list[Placed]) -> None:
    """Set the global ranks."""
    known = [unit for unit in units if not unit.nameless]
    prefixes = [unit.prefix for unit in known]
    certain = bool(known) and None not in prefixes and len(set(prefixes)) == len(prefixes)
    for unit in known if certain else ():
        unit.rank = unit.prefix
    if certain and len(known) == len(units):
        return
    number = {id(one): place for _, places in worlds for place, one in places.items() if place >= 0}
    for unit in units:
        if unit.rank is None:
            unit.rank = next((number[id(one)] for one in unit.entries if id(one) in number), None)
    if any(unit.rank is not None for unit in units):
        return
    # Without init lines: on a single host, torch's ranks are usually its devices.
    size = max((comm.size for comm, _ in worlds), default=0)
    devices = [unit.entries[0].device for unit in known]
    hosts = {unit.entries[0].host for unit in known}
    if len(hosts) == 1 and len(set(devices)) == len(devices) and None not in devices:
        for unit, device in zip(known, devices, strict=True):
            unit.rank = device if device is not None and 0 <= device < size else None
        return
    counts = Counter(prefixes)
    for unit in units:
        unit.rank = unit.prefix if counts[unit.prefix] == 1 else None


def _newest(units: list[Unit], notes: list[str]) -> list[Unit]:
    """Without processes of earlier attempts, whose ranks later ones have."""
    by_rank: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        if unit.rank is not None:
            by_rank[unit.rank].append(unit)
    old: set[int] = set()
    for rank, same in sorted(by_rank.items()):
        for one, other in combinations(same[:_MAX_ATTEMPTS], 2):
            first = _first(one, other)
            if first is None or len(same) > _MAX_ATTEMPTS:
                # Not attempts: what seemed the world are groups of one size beside each other.
                notes.append(f"NCCL: several processes are rank {rank} of their communicators")
                for unit in units:
                    unit.rank = None
                return units
            old.add(id(first))
    if old:
        notes.append(
            f"NCCL: {counted(len(old), 'process', 'processes')} of an earlier attempt ignored"
        )
    return [unit for unit in units if id(unit) not in old]


def _first(one: Unit, other: Unit) -> Unit | None:
    """Which of two processes with one rank was before the other; None if that cannot be told."""
    (source, begin, end), (other_source, other_begin, other_end) = one.span, other.span
    if source == other_source:
        if end < other_begin or other_end < begin:
            return one if end < other_begin else other
        return None
    a, b = one.entries[0], other.entries[0]
    same = a.host is not None and a.host == b.host
    if same and a.device == b.device and a.bus_id == b.bus_id and a.pid and b.pid:
        return one if a.pid < b.pid else other
    return None


def _complete(comm: Communicator) -> None:
    """Add the members of which nothing is told: groups take ranks at equal distances."""
    absent = [place for place in range(min(comm.size, MAX_SIZE)) if place not in comm.ranks]
    if comm.world:
        known = {*comm.ranks.values()}
        comm.ranks |= {place: place for place in absent if place not in known}
        return
    line = line_through({place: rank for place, rank in comm.ranks.items() if place >= 0})
    if line is not None:
        first, step = line
        placed = {place: first + step * place for place in absent}
        comm.ranks |= {place: rank for place, rank in placed.items() if rank >= 0}


class CountedWait(NamedTuple):
    """A rank waits in a call of a group that no source names; `only`: nobody else waits."""

    rank: int
    name: str
    desc: str
    members: tuple[int, ...]
    seq: int
    source: str
    line: int
    only: bool = False


def compared(
    comms: Sequence[Communicator], dead: Collection[int], *, at_once: bool
) -> list[CountedWait] | None:
    """Who waits by the counts of different communicators; `dead` are ranks that ended.

    A rank that alone has made a call more than all others, while these are equal, made it by
    itself: if they were counted `at_once`, as a log may end anywhere. Of the ranks that lack calls
    those wait for a rank that is dead, or else for one that lacks more than they do. None where it
    is one of several that lack as much as each other, and nothing shows which.
    """
    made: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    lacking: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    entry_of: dict[int, CommRank] = {}
    for comm in comms:
        counts = {
            place: one.launched
            for place, one in comm.seen.items()
            if one.launched is not None and not one.truncated
        }
        for place in counts.keys() & comm.ranks.keys():
            rank = comm.ranks[place]
            made[rank][comm.size].append(counts[place])
            lacking[rank][comm.size].append(max(counts.values()) - counts[place])
            entry_of.setdefault(rank, comm.seen[place])
    alone = _ahead_alone(made) if at_once and not dead else None
    if alone is not None:
        rank, size, seq = alone
        one = entry_of[rank]
        return [
            CountedWait(
                rank, "by their counts", f"communicators of {size} ranks", tuple(sorted(made)), seq,
                one.source, one.line, only=True,
            )
        ]  # fmt: skip
    lagging = sorted(rank for rank, sizes in lacking.items() if any(map(any, sizes.values())))
    last = [
        rank
        for rank in lagging
        if not any(_lacks_more(lacking[other], lacking[rank]) for other in lagging)
    ]
    ends = sorted(dead) or (last if len(last) == 1 else [])
    if not ends and at_once and _tied(lacking, last):
        return None
    names = ", ".join(map(str, ends))
    return [
        CountedWait(
            rank, f"{rank} and {names}", "calls that are not counted",
            tuple(sorted((rank, *ends))), 1, entry_of[rank].source, entry_of[rank].line,
        )
        for rank in (lagging if ends else ())
        if rank not in ends
    ]  # fmt: skip


def _ahead_alone(made: Numbers) -> tuple[int, int, int] | None:
    """The one rank that has made more calls than all others, of what size, and how many."""
    if len(made) <= _PAIR:
        return None
    found = []
    for size in sorted({size for sizes in made.values() for size in sizes}):
        counts = [sorted(sizes[size]) for sizes in made.values() if size in sizes]
        if len(counts) < len(made) or len({*map(len, counts)}) > 1:
            continue
        for column in zip(*counts, strict=True):
            most = max(column)
            if column.count(most) == 1 and len({*column}) == 2:
                found.append(([*made][column.index(most)], size, most))
    return found[0] if len({rank for rank, _, _ in found}) == 1 else None


def _lacks_more(own: Mapping[int, list[int]], other: Mapping[int, list[int]]) -> bool:
    """Whether a rank lacks more calls in communicators of some size, and less in none.

    In a communicator of which nothing is told of a rank it lacks none.
    """
    pairs = [
        pair
        for size in own.keys() | other.keys()
        for pair in zip_longest(
            sorted(own.get(size, ()), reverse=True), sorted(other.get(size, ()), reverse=True),
            fillvalue=0,
        )
    ]  # fmt: skip
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _tied(lacking: Numbers, last: Collection[int]) -> bool:
    """Whether the ranks that lack most calls are a few, and all lack as many.

    Then one of them may wait for another, in calls that nobody counts.
    """
    alike = {tuple(sorted((n, tuple(v)) for n, v in lacking[rank].items())) for rank in last}
    return len(last) > 1 == len(alike) and 2 * len(last) < len(lacking)
