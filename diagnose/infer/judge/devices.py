"""Which device others wait for, where a library names devices and addresses instead of ranks.

HCCL prints in each process's log which device, address or rank of a communicator did not answer it.
These are edges between devices of hosts; what their addresses and numbers mean is in the lines with
which each process states its own. Where all waits end is the device that holds up the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from diagnose.infer.judge.wait_graph import ends
from diagnose.lazy import expression
from diagnose.timeline.captures import integer, rank_of
from diagnose.timeline.event import Event, Timeline

# CANN names a log by the process of the host and its start, a device's log stands in a folder of
# its device: `device-3/device-1365_20250806230906733.log`, `plog/plog-1365_20250805194545930.log`.
_FILE = expression(
    r"(?:device-(?P<dev>\d{1,4})/)?(?:plog|device)-(?:parser-)?(?P<pid>\d{1,9})[_-]\d{1,20}\.log"
)
_INTERFACE = expression(r"%.*")
_NUMBERED = expression(r"\d{1,6}\Z")
_LONGEST = 64  # devices of a chain


class Endpoint(NamedTuple):
    """A device of a host; `host` is None where nobody says whose `address` it is."""

    host: str | None
    number: int | None
    address: str = ""

    def __str__(self) -> str:
        """As people say it."""
        if self.number is None:
            return self.host or self.address
        return f"{self.host} device {self.number}"


@dataclass(frozen=True, slots=True)
class DeviceVerdict:
    """Who holds up the devices that wait, as far as their lines tell.

    `devices` are the culprits, one or a circle (`circle`); `chain` leads to them from a device that
    waits for nobody else in vain, each waiting for the next. Without a device `hosts` may be the
    one at which all broken links end. `events` are the lines of the chain, the culprits' own last.
    """

    devices: tuple[Endpoint, ...] = ()
    hosts: tuple[str, ...] = ()
    chain: tuple[Endpoint, ...] = ()
    circle: bool = False
    ranks: tuple[int, ...] = ()
    events: Sequence[Event] = ()


@dataclass(slots=True)
class _Processes:
    """What the processes of a job state of themselves, each by its host and number."""

    devices: dict[tuple[str | None, int | None], int] = field(default_factory=dict)
    addresses: dict[str, set[Endpoint]] = field(default_factory=lambda: defaultdict(set))
    servers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    groups: dict[tuple[str, int], set[Endpoint]] = field(default_factory=lambda: defaultdict(set))
    groups_of: dict[Endpoint, set[str]] = field(default_factory=lambda: defaultdict(set))
    ranks: dict[Endpoint, set[int]] = field(default_factory=lambda: defaultdict(set))


def judged(timeline: Timeline) -> DeviceVerdict | None:
    """Who holds up the devices; None where no line says that one waits."""
    waits = timeline.signalling("unanswered")
    if not waits:
        return None
    known = _processes(timeline)
    edges: dict[Endpoint, dict[Endpoint, Event]] = defaultdict(dict)
    for event in waits:
        own = _author(event, known)
        target = _target(event, own, known) if own else None
        if own and target and own != target:
            edges[own].setdefault(target, event)
    if not edges:
        return None
    found = _verdict(edges, known)
    named = {*timeline.column("host")} - {None}
    return replace(found, hosts=tuple(_node(host, known, named) for host in found.hosts))


def _host(event: Event) -> str | None:
    """The host of a process: its own name, else the address that it states."""
    return event.host or _INTERFACE.sub("", event.fields.get("server", "")) or None


def _process(event: Event) -> int | None:
    """The process on the host whose log this is; its lines may number it as a container does."""
    found = _FILE.search(event.source)
    return int(found["pid"]) if found else event.pid


def _processes(timeline: Timeline) -> _Processes:
    known = _Processes()
    for event in timeline.capturing("dev"):
        number, fields = integer(event.fields["dev"]), event.fields
        stated = {"address", "server", "group"} & fields.keys()
        host = _host(event)
        if number is None or host is None or not stated:
            continue
        device = Endpoint(host, number)
        if "port" not in fields:  # lines of one file may name ports of several processes
            known.devices.setdefault((host, _process(event)), number)
            if event.host is None:
                known.devices.setdefault((None, _process(event)), number)
        if "address" in fields:
            known.addresses[fields["address"]].add(device)
        rank = rank_of(fields.get("rank"))
        if "server" in fields:
            known.servers[_INTERFACE.sub("", fields["server"])].add(host)
            known.ranks[device] |= {rank} if rank is not None else set()
        place = rank_of(fields.get("group_rank", fields.get("rank")))
        if "group" in fields and place is not None:
            known.groups[fields["group"], place].add(device)
            known.groups_of[device].add(fields["group"])
    return known


def _one(found: set[Endpoint]) -> Endpoint | None:
    return next(iter(found)) if len(found) == 1 else None


def _author(event: Event, known: _Processes) -> Endpoint | None:
    """The device whose process printed a line."""
    address = event.fields.get("address")
    if address and (own := _one(known.addresses.get(address, set()))):
        return own
    file = _FILE.search(event.source)
    number = integer(file["dev"]) if file else None
    if number is None:
        number = known.devices.get((event.host, _process(event)), integer(event.fields.get("dev")))
    host = event.host
    if host is None and number is not None:
        hosts = {one for (one, process) in known.devices if process == _process(event)} - {None}
        host = hosts.pop() if len(hosts) == 1 else None
    return Endpoint(host, number) if host and number is not None else None


def _target(event: Event, own: Endpoint, known: _Processes) -> Endpoint | None:
    """Whom a line waits for."""
    number, peer = integer(event.fields.get("other_dev")), event.fields.get("peer")
    if peer is None and number is not None:
        return Endpoint(own.host, number)  # what is connected without an address is of one host
    if peer is not None:
        hosts = known.servers.get(peer, set())
        if number is not None and len(hosts) == 1:
            return Endpoint(next(iter(hosts)), number)
        return _one(known.addresses.get(peer, set())) or Endpoint(None, None, peer)
    place = rank_of(event.fields.get("other_rank"))
    if place is None:
        return None
    # No line names the group: it is one that the process is in, if these agree on the device.
    places = (known.groups.get((group, place)) for group in known.groups_of.get(own, ()))
    return _one({device for devices in places if devices for device in devices})


_Edges = Mapping[Endpoint, Mapping[Endpoint, Event]]


def _verdict(edges: _Edges, known: _Processes) -> DeviceVerdict:
    names = sorted({*edges, *(to for own in edges.values() for to in own)}, key=_order)
    numbers = {device: number for number, device in enumerate(names)}
    plain = {numbers[one]: {numbers[to] for to in own} for one, own in edges.items()}
    found = [[names[number] for number in part] for part in ends(range(len(names)), plain)]
    # An address that nobody calls its own is of a device without a log, or of none at all.
    certain = [part for part in found if all(device.host for device in part)]
    if len(certain) != 1:
        return _broken(edges) if not certain else DeviceVerdict(events=[*_lines(edges)])
    (part,) = certain
    chain = _chain(part, edges)
    circle = len(part) > 1
    ranks = {rank for device in part for rank in known.ranks.get(device, ())}
    exact = all(len(known.ranks.get(device, ())) == 1 for device in part)
    steps = [edges[one][to] for one, to in pairwise(chain)]
    return DeviceVerdict(
        tuple(part), tuple(sorted({device.host for device in part if device.host})), chain, circle,
        tuple(sorted(ranks)) if exact else (), steps,
    )  # fmt: skip


def _broken(edges: _Edges) -> DeviceVerdict:
    """Links to ends that nobody knows: if these are several, what the links share is a host."""
    hosts = {device.host for device in edges if device.host}
    peers = {to for own in edges.values() for to in own}
    lines = [*_lines(edges)]
    if len(hosts) == 1 and len(edges) > 1 and len(peers) > 1:
        return DeviceVerdict(hosts=tuple(sorted(hosts)), events=lines)
    return DeviceVerdict(events=lines)


def _node(host: str, known: _Processes, names: Collection[str | None]) -> str:
    """The name of a host that is known by its address, by the ranks that its devices have.

    Schedulers number workers as their ranks are: with eight devices each, `worker-9` has the ranks
    from 72 on.
    """
    own = [(device, rank) for device, ranks in known.ranks.items() for rank in ranks]
    first = {rank - (device.number or 0) for device, rank in own if device.host == host}
    size = max((device.number or 0 for device, _ in own if device.host == host), default=0) + 1
    if host in names or len(first) != 1:
        return host
    (begin,) = first
    numbered = ((name, _NUMBERED.search(name)) for name in names if name)
    fits = [
        name
        for name, number in numbered
        if number and (at := int(number[0])) and begin % at == 0 and begin // at >= size
    ]
    return fits[0] if len(fits) == 1 else host


def _lines(edges: _Edges) -> Iterator[Event]:
    for own in edges.values():
        yield from own.values()


def _order(device: Endpoint) -> tuple[str, int, str]:
    return device.host or "", -1 if device.number is None else device.number, device.address


def _chain(part: Sequence[Endpoint], edges: _Edges) -> tuple[Endpoint, ...]:
    """The longest way of waits that ends in this part; once around it where it is a circle."""
    inside = {*part}
    if len(part) > 1:
        complaints = [(event.index, one) for one in part for event in edges[one].values()]
        way = [min(complaints)[1]]  # who was the first to wait
        while len(way) <= len(part):
            way.append(next(to for to in sorted(edges[way[-1]], key=_order) if to in inside))
            if way[-1] in way[:-1]:
                break
        return tuple(way[way.index(way[-1]) :])
    waiting: dict[Endpoint, list[Endpoint]] = defaultdict(list)
    for one, own in edges.items():
        for to in own:
            waiting[to].append(one)
    best: dict[Endpoint, tuple[Endpoint, ...]] = {part[0]: (part[0],)}
    # No longer than there are devices: circles above the end are gone around once.
    for _ in range(min(len(edges), _LONGEST)):
        longer = dict(best)
        for to, known in best.items():
            for one in sorted(waiting[to], key=_order):
                if one not in known and len(known) + 1 > len(longer.get(one, ())):
                    longer[one] = (one, *known)
        if longer == best:
            break
        best = longer
    return max(best.values(), key=len)
