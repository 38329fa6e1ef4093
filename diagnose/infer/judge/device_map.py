"""Which device, address, server and rank is which, as processes and rank tables state it.

HCCL knows devices and addresses; each process prints its own where it joins a communicator, and the
rank table of a job, or what a parser kept of the processes, has them in a document.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from diagnose.lazy import expression
from diagnose.timeline.captures import integer, rank_of
from diagnose.timeline.event import Event, Timeline

# CANN names a log by the process of the host and its start, a device's log is in a folder of
# its device: `device-3/device-1365_20250806230906733.log`, `plog/plog-1365_20250805194545930.log`.
_FILE = expression(
    r"(?:device-(?P<dev>\d{1,4})/)?(?:plog|device)-(?:parser-)?(?P<pid>\d{1,9})[_-]\d{1,20}\.log"
)
_INTERFACE = expression(r"%.*")
_NUMBERED = expression(r"\d{1,6}\Z")
_STATED = frozenset({"address", "server", "group"})


class Endpoint(NamedTuple):
    """A device of a host; `host` is None where nobody says whose `address` or rank it is."""

    host: str | None
    number: int | None
    address: str = ""

    def __str__(self) -> str:
        """As people say it."""
        if self.number is None:
            return self.host or self.address
        return f"{self.host} device {self.number}"


_Process = tuple[str | None, int | None]  # a host and a number; None is any host
_One = TypeVar("_One")


@dataclass(slots=True)
class DeviceMap:
    """What is known of the devices of a job.

    `devices` is by process, `addresses` and `groups` (a communicator and a place in it) lead to
    devices, `servers` to names of hosts; `ranks` and `groups_of` are of a device, `logged` those
    with a process that states which it is. `tls` has the lines that say of devices whether they use
    TLS, `patience_s` for how long a process waits for a connection, None where no line says it.
    """

    devices: dict[_Process, int] = field(default_factory=dict)
    addresses: dict[str, set[Endpoint]] = field(default_factory=lambda: defaultdict(set))
    servers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    groups: dict[tuple[str, int], set[Endpoint]] = field(default_factory=lambda: defaultdict(set))
    groups_of: dict[Endpoint, set[str]] = field(default_factory=lambda: defaultdict(set))
    ranks: dict[Endpoint, set[int]] = field(default_factory=lambda: defaultdict(set))
    logged: set[Endpoint] = field(default_factory=set)
    tls: dict[Endpoint, Event] = field(default_factory=dict)
    patience_s: int | None = None

    def author(self, event: Event) -> Endpoint | None:
        """The device whose process printed a line."""
        address = event.fields.get("address")
        if address and (own := only(self.addresses.get(address, set()))):
            return own
        file, process, host = _FILE.search(event.source), _process(event), _folder(event)
        number = integer(file["dev"]) if file else None
        if number is None:
            number = self.devices.get((host, process), integer(event.fields.get("dev")))
        if host is None and number is not None:
            hosts = {one for one, own in self.devices if own == process} - {None}
            host = hosts.pop() if len(hosts) == 1 else None
        return Endpoint(host, number) if host and number is not None else None

    def of_server(self, server: str, number: int) -> Endpoint | None:
        """A device of the one host with this address."""
        hosts = self.servers.get(_INTERFACE.sub("", server), set())
        return Endpoint(next(iter(hosts)), number) if len(hosts) == 1 else None

    def of_place(self, own: Endpoint, place: int) -> Endpoint:
        """The device of a rank of a group that no line names: one that `own` is in, if these agree.

        Without a log of that rank an endpoint that nobody knows.
        """
        places = (self.groups.get((group, place)) for group in self.groups_of.get(own, ()))
        found = only({device for devices in places if devices for device in devices})
        return found or Endpoint(None, None, f"rank {place}")

    def of_ranks(self, ranks: Collection[int]) -> list[Endpoint]:
        """The devices of ranks of the job, if each rank has one and no other rank shares it."""
        by_rank: dict[int, set[Endpoint]] = defaultdict(set)
        for device, own in self.ranks.items():
            for rank in own:
                by_rank[rank].add(device)
        found = [only(by_rank.get(rank, set())) for rank in ranks]
        known = [one for one in found if one is not None and len(self.ranks[one]) == 1]
        return sorted(known, key=order) if len(known) == len(ranks) else []

    def ranks_of(self, devices: Iterable[Endpoint]) -> tuple[int, ...]:
        """The ranks of devices, if each has one."""
        own = [only(self.ranks.get(device, set())) for device in devices]
        known = sorted({rank for rank in own if rank is not None})
        return tuple(known) if None not in own else ()

    def node(self, host: str, names: Collection[str | None]) -> str:
        """The name of a host that is known by its address, by the ranks that its devices have.

        Schedulers number workers as their ranks are: with eight devices each, `worker-9` has the
        ranks from 72 on.
        """
        own = [(device, rank) for device, ranks in self.ranks.items() for rank in ranks]
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


def device_map(timeline: Timeline) -> DeviceMap:
    """What lines and documents state of devices."""
    known = DeviceMap()
    stated = [event for event in timeline.capturing("dev") if _STATED & event.fields.keys()]
    names: dict[str, set[str]] = defaultdict(set)
    for event in stated:  # a folder says better than a table what a host is called
        server, folder = _server(event), _folder(event)
        if server and folder and _process(event) is not None:
            names[server].add(folder)
    for event in stated:
        number, host = integer(event.fields["dev"]), _host(event, names)
        if number is not None and host is not None:
            _state(known, event, Endpoint(host, number))
    for event in timeline.capturing("tls"):
        if (device := known.author(event)) is not None:
            known.tls[device] = event
    waits = timeline.where(lambda one: "timeout_s" in one.captures and one.signal in _PATIENT)
    limits = [integer(event.fields["timeout_s"]) for event in waits]
    known.patience_s = max((one for one in limits if one is not None), default=None)
    return known


_PATIENT = (None, "unanswered")  # what states how long a connection is waited for


def _state(known: DeviceMap, event: Event, device: Endpoint) -> None:
    """Enter what an event states of a device."""
    fields, process = event.fields, _process(event)
    if "port" not in fields and process is not None:  # lines of a file may name ports of several
        known.devices.setdefault((device.host, process), device.number or 0)
        known.logged.add(device)
        if _folder(event) is None:
            known.devices.setdefault((None, process), device.number or 0)
    if "address" in fields:
        known.addresses[fields["address"]].add(device)
    rank = rank_of(fields.get("rank"))
    if "server" in fields:
        known.servers[_server(event)].add(device.host or "")
        known.ranks[device] |= {rank} if rank is not None else set()
    place = rank_of(fields.get("group_rank", fields.get("rank")))
    if "group" in fields and place is not None:
        known.groups[fields["group"], place].add(device)
        known.groups_of[device].add(fields["group"])


def _server(event: Event) -> str:
    """The address of the host of whom a line speaks."""
    return _INTERFACE.sub("", event.fields.get("server", ""))


def _folder(event: Event) -> str | None:
    """The host whose line it is: in its prefix or its file, or as its document says."""
    return event.host or event.fields.get("host")


def _host(event: Event, names: dict[str, set[str]]) -> str | None:
    """The host of a process: its own name, else the address that it states."""
    server = _server(event)
    own = _folder(event) if _process(event) is not None else None
    return own or only(names.get(server, set())) or _folder(event) or server or None


def _process(event: Event) -> int | None:
    """The process on the host whose log this is; its lines may number it as a container does."""
    found = _FILE.search(event.source)
    return int(found["pid"]) if found else event.pid or integer(event.fields.get("pid"))


def only(found: set[_One]) -> _One | None:
    """The one item of a set; None of several or none."""
    return next(iter(found)) if len(found) == 1 else None


def order(device: Endpoint) -> tuple[str, int, str]:
    """By which devices are sorted."""
    return device.host or "", -1 if device.number is None else device.number, device.address
