"""Whom the lines of a signature blame: ranks and hosts, by its `culprit` rule."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.catalog.schema import Signature
from diagnose.infer.rules.base import most
from diagnose.lazy import expression
from diagnose.timeline.captures import captured_ranks, integer, rank_of
from diagnose.timeline.event import Event, Learned, Timeline

_NODE = 8  # devices of one
# Not "of" or "from", which are said of peers.
_ON_RANK = expression(r"(?i)\b(?:on|in|at) (?:the )?(?:global[ _])?rank[ _=:#]?(\d{1,6})\b")


def culprits_of(
    signature: Signature,
    group: Sequence[Event],
    world: int | None,
    timeline: Timeline,
    author: str | None = None,
) -> tuple[list[int], list[str]]:
    """Ranks and hosts a signature's matches name, by its `culprit` rule.

    `author` is what its class says of who prints it. A PCI address in a match names the rank that
    NCCL said uses this GPU.
    """
    ranks: set[int] = set()
    hosts: set[str] = set()
    if signature.culprit == "self":
        # Settings and addresses are those of a host: the device that met them first means nothing.
        shared = author in ("victim", "of_all", "waits")
        ranks = {
            event.rank
            for event in group
            if event.rank is not None and not (shared and event.learned is Learned.DEVICE)
        }
        hosts = {event.host for event in group if event.host is not None}
        ranks |= _captured(group, "rank")
    elif signature.culprit == "captured":
        links = _links(group)
        ranks = _at_fault(links) if links else _captured(group, "rank", "other_rank")
        hosts = {event.fields["host"] for event in group if "host" in event.fields}
    if not ranks and signature.culprit != "none":
        ranks = _by_bus(group, timeline) or _by_pid(group, timeline)
    if not ranks and signature.culprit == "self" and author == "struck":
        ranks = {rank for event in group if (rank := _in_words(event)) is not None}
    if not ranks and signature.culprit == "self" and _is_one_node(timeline, world):
        ranks = _by_device(group, timeline)
    if world and most(ranks, world) and signature.culprit == "self":
        return [], []
    return sorted(ranks), sorted(hosts)


def _is_one_node(timeline: Timeline, world: int | None) -> bool:
    """Whether all that is seen of the job fits on one node, whose devices number its ranks."""
    hosts = {*timeline.column("host")} - {None}
    sources = {*timeline.column("source")}
    most = max(world or 0, len(sources), *(rank + 1 for rank in timeline.ranks[-1:]), 1)
    return len(hosts) <= 1 and most <= _NODE


def _by_device(group: Sequence[Event], timeline: Timeline) -> set[int]:
    """On one node the device a rank uses has the rank's number, if it sees more than its own.

    A process that sees one device only calls it number 0, whichever it is.
    """
    numbers = {event.fields["dev"] for event in timeline.capturing("dev")}
    if not any(number.isdigit() and int(number) > 0 for number in numbers):
        return set()
    devices = [event.fields.get("dev", "") for event in group]
    return {int(device) for device in devices if device.isdigit()}


def _captured(group: Sequence[Event], *names: str) -> set[int]:
    """Ranks under these names; what stands for "none of them" (HCCL's 4294967295) is no rank."""
    numbers = (rank_of(event.fields.get(name)) for event in group for name in names)
    return {rank for rank in numbers if rank is not None}


def _links(group: Sequence[Event]) -> set[frozenset[int]]:
    """The pairs of ranks without a connection, of lines where one lists its peers."""
    return {
        frozenset((rank, peer))
        for event in group
        if "ranks" in event.fields
        if (rank := rank_of(event.fields.get("rank"))) is not None
        for peer in captured_ranks(event.fields["ranks"])
        if peer != rank
    }


def _at_fault(links: set[frozenset[int]]) -> set[int]:
    """The rank at which all of them end, both ends of a single one; nobody where there are more."""
    if len(links) == 1:
        return set(*links)
    common = frozenset.intersection(*links)
    return {*common}


def _by_bus(group: Sequence[Event], timeline: Timeline) -> set[int]:
    ranks: set[int] = set()
    named = {(event.host, pci_bus(event.fields.get("busid"))) for event in group}
    gpus = gpu_ranks(timeline) if any(bus is not None for _, bus in named) else {}
    for host, bus in named:
        here = [r for (at, known), r in gpus.items() if known == bus and host in (at, None)]
        ranks.update(here if len(here) == 1 else [])
    return ranks


def _by_pid(group: Sequence[Event], timeline: Timeline) -> set[int]:
    """The ranks of the processes that lines are about, where these named themselves elsewhere."""
    pairs = [(integer(event.fields.get("pid")), event.fields.get("host")) for event in group]
    hosts = {pid: host for pid, host in pairs if pid is not None}
    ranks: dict[int, set[int]] = {pid: set() for pid in hosts}
    for event in timeline if ranks else ():
        if event.rank is None or event.pid not in ranks:
            continue
        if None in (hosts[event.pid], event.host) or hosts[event.pid] == event.host:
            ranks[event.pid].add(event.rank)
    return {rank for own in ranks.values() if len(own) == 1 for rank in own}


def _in_words(event: Event) -> int | None:
    """The rank on which an error was, as a line says that names no author: `Error on rank 3: …`."""
    numbers = {*_ON_RANK.findall(event.text)} if event.rank is None else set()
    return rank_of(numbers.pop()) if len(numbers) == 1 else None


def gpu_ranks(timeline: Timeline) -> dict[tuple[str | None, int], int]:
    """(host, PCI bus number) → rank, from lines that map both (NCCL's init lines)."""
    found = {}
    for event in timeline.signalling("rank_map"):
        bus = pci_bus(event.fields.get("busid"))
        if event.rank is not None and bus is not None:
            found[event.host, bus] = event.rank
    return found


def pci_bus(text: str | None) -> int | None:
    """The bus number of a PCI address, as the kernel (0000:9b:00.0) or NCCL (9b000) prints it."""
    if not text:
        return None
    parts = text.split(":")
    try:
        return int(parts[-2], 16) if len(parts) > 1 else int(text, 16) >> 12
    except ValueError:
        return None
