"""Which device others wait for, where a library names devices and addresses instead of ranks.

HCCL prints in each process's log which device, address or rank of a communicator did not answer it.
These are edges between devices of hosts; `device_map` says what addresses and numbers mean. Where
all waits end is the device that holds up the job. Where they lead to nobody who is known, the
devices themselves tell: a peer names one as lost, one uses TLS and the others do not, one has a log
and waits for nobody, or one began to wait when the others had given up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from diagnose.infer.judge.device_map import DeviceMap, Endpoint, device_map, only, order
from diagnose.infer.judge.wait_graph import ends
from diagnose.timeline.captures import integer, rank_of
from diagnose.timeline.event import Event, Timeline

_LONGEST = 64  # devices of a chain
_SECOND = 1_000_000_000
_NOBODY = Endpoint(None, None)
# How the culprits follow: all waits end there; each of them waits for the next; in a call they wait
# for each other, which accuses nobody; broken links share a host; a peer names them; their port has
# another setting; they have a log and wait for nobody; they came when others had given up.
Way = Literal["end", "circle", "ring", "shared", "blamed", "setting", "idle", "late", "none"]


@dataclass(frozen=True, slots=True)
class DeviceVerdict:
    """Who holds up the devices that wait, as far as their lines tell.

    `devices` are the culprits, one or several, `way` is how they follow; `chain` leads to them from
    a device that waits for nobody else in vain, each waiting for the next. Without a device
    `hosts` may be the one at which all broken links end. `events` are the lines of the chain, the
    culprits' own last.
    """

    devices: tuple[Endpoint, ...] = ()
    hosts: tuple[str, ...] = ()
    chain: tuple[Endpoint, ...] = ()
    way: Way = "none"
    ranks: tuple[int, ...] = ()
    events: Sequence[Event] = ()
    patience_s: int | None = None
    encrypted: bool | None = None


_Edges = Mapping[Endpoint, Mapping[Endpoint, Event]]


def judged(timeline: Timeline) -> DeviceVerdict | None:
    """Who holds up the devices; None where no line says that one waits or is lost."""
    links = timeline.signalling("unanswered")
    waits = sorted([*links, *timeline.signalling("unnotified")], key=lambda one: one.index)
    blamed = timeline.signalling("blamed")
    if not waits and not blamed:
        return None
    known = timeline.once(device_map)
    edges = _edges(waits, known)
    found = _blamed(blamed, known) or _setting(links, known)
    found = found or _verdict(edges, known)
    if found.way in ("none", "shared"):
        found = _idle(edges, known) or _late(links, known) or found
    if not edges and not found.devices:
        return DeviceVerdict(events=links) if links and found.way == "none" else None
    ranks = known.ranks_of(found.devices)
    named = {*timeline.column("host")} - {None}
    devices, chain = (
        tuple(one._replace(host=known.node(one.host, named)) if one.host else one for one in part)
        for part in (found.devices, found.chain)
    )
    hosts = found.hosts or sorted({one.host for one in devices if one.host})
    shown = tuple(known.node(host, named) for host in hosts)
    return replace(found, devices=devices, chain=chain, hosts=shown, ranks=ranks)


def _edges(waits: Sequence[Event], known: DeviceMap) -> _Edges:
    """Who waits for whom, by the first line that says so.

    A device of which the end of its wait is not known waits nevertheless; those that are known say
    more.
    """
    edges: dict[Endpoint, dict[Endpoint, Event]] = defaultdict(dict)
    for event in waits:
        own = known.author(event)
        target = _target(event, own, known) if own else None
        if own and target and own != target:
            edges[own].setdefault(target, event)
    for own_edges in edges.values():
        if len(own_edges) > 1:
            own_edges.pop(_NOBODY, None)
    return edges


def _target(event: Event, own: Endpoint, known: DeviceMap) -> Endpoint:
    """Whom a line waits for."""
    number, peer = integer(event.fields.get("other_dev")), event.fields.get("peer")
    if peer is None and number is not None:
        return Endpoint(own.host, number)  # what is connected without an address is of one host
    if peer is not None:
        found = known.of_server(peer, number) if number is not None else None
        return found or only(known.addresses.get(peer, set())) or Endpoint(None, None, peer)
    place = rank_of(event.fields.get("other_rank"))
    return _NOBODY if place is None else known.of_place(own, place)


def _blamed(events: Sequence[Event], known: DeviceMap) -> DeviceVerdict | None:
    """The one device that peers name as lost, stuck or at odds."""
    found: dict[Endpoint, list[Event]] = defaultdict(list)
    for event in events:
        number = integer(event.fields.get("other_dev"))
        device = known.of_server(event.fields["server"], number) if number is not None else None
        if device is not None:
            found[device].append(event)
    if len(found) != 1:
        return None
    ((device, own),) = found.items()
    return DeviceVerdict((device,), way="blamed", events=own)


def _setting(links: Sequence[Event], known: DeviceMap) -> DeviceVerdict | None:
    """The fewer devices of which TLS is on where it is off on the others, or the other way round.

    Only where links failed: with TLS on one side no link is made.
    """
    stated = sorted(known.tls, key=order)
    on = [one for one in stated if known.tls[one].fields["tls"] == "1"]
    off = [one for one in stated if one not in on]
    if not links or not on or not off:
        return None
    fewer = [] if len(on) == len(off) else min(on, off, key=len)
    lines = [known.tls[one] for one in fewer or stated]
    events = [*lines, *links]
    return DeviceVerdict(tuple(fewer), way="setting", events=events, encrypted=fewer is on)


def _idle(edges: _Edges, known: DeviceMap) -> DeviceVerdict | None:
    """The few devices of a group that have a log and wait for nobody, while the others do.

    Where lines say whom these wait for, be it somebody without a log, that is the answer.
    """
    if any(to != _NOBODY for own in edges.values() for to in own):
        return None
    groups = {group for one in edges for group in known.groups_of.get(one, ())}
    members = {one for one in known.logged if known.groups_of.get(one, set()) & groups}
    idle = sorted(members - edges.keys(), key=order)
    if not idle or 2 * len(idle) > len(edges):
        return None
    return DeviceVerdict(tuple(idle), way="idle", events=[*_lines(edges)])


def _late(links: Sequence[Event], known: DeviceMap) -> DeviceVerdict | None:
    """The few devices that began to wait for a connection when the first one had given up.

    Each gives up at the end of the same time; a link that breaks later has no such time.
    """
    first: dict[Endpoint, Event] = {}
    for event in links:
        own = known.author(event) if event.role == "effect" else None
        if own is not None and event.time is not None:
            first.setdefault(own, event)
    times = [event.time for event in first.values() if event.time is not None]
    if known.patience_s is None or not times:
        return None
    gone = min(times) + known.patience_s * _SECOND
    late = sorted((one for one, event in first.items() if (event.time or 0) > gone), key=order)
    if not late or 2 * len(late) > len(first) + 1:
        return None
    lines = [*first.values()]
    return DeviceVerdict(tuple(late), way="late", events=lines, patience_s=known.patience_s)


def _verdict(edges: _Edges, known: DeviceMap) -> DeviceVerdict:
    """Where all waits end."""
    names = sorted({*edges, *(to for own in edges.values() for to in own)}, key=order)
    numbers = {device: number for number, device in enumerate(names)}
    plain = {numbers[one]: {numbers[to] for to in own} for one, own in edges.items()}
    found = [[names[number] for number in part] for part in ends(range(len(names)), plain)]
    # An address that nobody calls its own is of a device without a log, or of none at all.
    certain = [part for part in found if all(device.host for device in part)]
    if len(certain) != 1:
        return _broken(edges) if not certain else DeviceVerdict(events=[*_lines(edges)])
    (part,) = certain
    chain = _chain(part, edges)
    steps = [edges[one][to] for one, to in pairwise(chain)]
    if len(part) > 1:
        # Inside a call each waits for a neighbour, so that all do where any signal is lost.
        ring = all(event.signal == "unnotified" for event in steps)
        return DeviceVerdict((), (), chain, "ring", events=steps) if ring else DeviceVerdict(
            tuple(part), (), chain, "circle", events=steps
        )  # fmt: skip
    return DeviceVerdict(tuple(part), (), chain, "end", events=steps)


def _broken(edges: _Edges) -> DeviceVerdict:
    """Links to ends that nobody knows: if these are several, what the links share is a host."""
    hosts = {device.host for device in edges if device.host}
    lines = [*_lines(edges)]
    peers = {event.fields["peer"] for event in lines if "peer" in event.fields}
    if len(hosts) == 1 and len(edges) > 1 and len(peers) > 1:
        return DeviceVerdict(hosts=tuple(sorted(hosts)), way="shared", events=lines)
    return DeviceVerdict(events=lines)


def _lines(edges: _Edges) -> Iterator[Event]:
    for own in edges.values():
        yield from own.values()


def _chain(part: Sequence[Endpoint], edges: _Edges) -> tuple[Endpoint, ...]:
    """The longest way of waits that ends in this part; once around it where it is a circle."""
    inside = {*part}
    if len(part) > 1:
        complaints = [(event.index, one) for one in part for event in edges[one].values()]
        way = [min(complaints)[1]]  # who was the first to wait
        while len(way) <= len(part):
            way.append(next(to for to in sorted(edges[way[-1]], key=order) if to in inside))
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
            for one in sorted(waiting[to], key=order):
                if one not in known and len(known) + 1 > len(longer.get(one, ())):
                    longer[one] = (one, *known)
        if longer == best:
            break
        best = longer
    return max(best.values(), key=len)
