"""Which global rank is behind every rank of every communicator.

The communicator that covers all processes is the world: ranks inside it are the global ones. The
members of the others follow from their processes. Ranks told by lines or files come first, as
long as every process has one of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from diagnose.infer.collectives.group import Group
from diagnose.infer.collectives.units import Unit, merged, units_of
from diagnose.infer.judge.groups import line_through
from diagnose.parse.comm_rank import CommRank
from diagnose.parse.nccl_inits import INIT
from diagnose.text.ranks import counted

MAX_SIZE = 1 << 20  # ranks of a communicator
_MAX_ATTEMPTS = 64


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
            if one.calls and any(call.op == INIT for call in one.calls)
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
    unmatched = 0
    for unit in units:
        last = max(unit.entries, key=lambda one: one.line)
        unmatched += sum(1 for one in unit.entries if one.size and id(one) not in matched)
        known = last.launched is not None or last.completed is not None
        unit.open_end = last.size is not None and not (known and id(last) in matched)
    if unmatched:
        notes.append(
            f"NCCL: {counted(unmatched, 'entry', 'entries')} ignored: without commId (NCCL 2.16 "
            "on, NCCL_DEBUG_SUBSYS=INIT,COLL) ranks of one communicator cannot be found"
        )
    return kept


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
        comm.ranks |= {place: place for place in absent if place not in comm.ranks.values()}
        return
    line = line_through({place: rank for place, rank in comm.ranks.items() if place >= 0})
    if line is not None:
        first, step = line
        placed = {place: first + step * place for place in absent}
        comm.ranks |= {place: rank for place, rank in placed.items() if rank >= 0}
