"""NCCL's own lines: communicators, calls (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL), links.

The forms are those of the NCCL that each release of torch brings (2.14, 2.18, 2.20, 2.26, 2.29).
The number in brackets after the process is that of the device on its node. A line names no global
rank; it follows from the line of the communicator of the whole job with the same process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.hangbench.sim.evidence.endings import LINK_S
from benchmarks.hangbench.sim.evidence.names import Names, names, wall
from benchmarks.hangbench.sim.evidence.releases import RELEASES, Release
from benchmarks.hangbench.sim.outcome import Group, Line, Outcome, Rank, Shows, Work

_TYPES = {
    "Byte": 1,
    "Int": 2,
    "Long": 4,
    "Half": 6,
    "Float": 7,
    "Double": 8,
    "BFloat16": 9,
}
_CALLS = {
    "all_reduce": "AllReduce",
    "barrier": "AllReduce",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_gather": "AllGather",
    "_allgather_base": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "_reduce_scatter_base": "ReduceScatter",
}
_INIT_S = 1.6  # after the start of the job, for communicators that are older than what is simulated

# A communicator: that of a group, or of the two ranks of single sends and receives in it.
_Key = tuple[str, int, int]


@dataclass(slots=True)
class _Communicator:
    """members: by their number in it; places: their numbers; whole: it is that of the whole job.

    ready: when all had called its creation, None if some never did.
    """

    number: int
    members: tuple[int, ...]
    places: dict[int, int]
    whole: bool
    ready: float | None


def info_lines(
    outcome: Outcome, torch: str, rng: random.Random, *, init: bool = True, calls: bool = True
) -> list[Line]:
    """The lines of every rank, in order of time.

    init: those of communicators. calls: one for each call, up to the last that the host made
    before it waited, died or left. A call shows `call`; it names its rank where the process can be
    told by a communicator of the whole job.
    """
    release, known = RELEASES[torch], names(outcome)
    communicators = _communicators(outcome)
    ids = [rng.getrandbits(64) for _ in communicators]
    found: list[Line] = []
    for rank in outcome.ranks:
        found += _of_rank(outcome, release, known, rank, communicators, ids, init, calls)
    found.sort(key=lambda one: one.time)
    return found


def link_lines(outcome: Outcome, torch: str, rng: random.Random) -> list[Line]:
    """What the ranks at the ends of a dead link warn of, with the address of the other end."""
    if outcome.link is None or outcome.fault_at is None:
        return []
    release, known = RELEASES[torch], names(outcome)
    found = []
    for rank in outcome.ranks:
        if rank.node not in outcome.link or rank.ended is not None or not rank.pending:
            continue
        peer = outcome.link[1] if rank.node == outcome.link[0] else outcome.link[0]
        time = outcome.fault_at + LINK_S + rng.uniform(0.0, 0.4)
        address = f"{known.ips[peer]}<{rng.randint(32000, 60000)}>"
        found.append(_link_line(outcome, release, known, rank, time, address))
    found.sort(key=lambda one: one.time)
    return found


def _link_line(
    outcome: Outcome, release: Release, known: Names, rank: Rank, time: float, address: str
) -> Line:
    minor = int(release.nccl.split(".")[1])
    text = completion_text(release, address, rank.local_rank)
    source = "transport/net_ib.cc:1295" if minor < 29 else "transport/net_ib/p2p.cc:631"
    stamp = f"[{wall(outcome, time):%Y-%m-%d %H:%M:%S}] " if minor >= 26 else ""
    begin = f"\n{stamp}{_process(known, rank, 2)} {source} NCCL WARN "
    return Line(time, rank.rank, rank.node, begin + text, "stdout", "link")


def completion_text(release: Release, address: str, device: int) -> str:
    """NCCL's words for status 12, transport retries exceeded, on a connection to `address`."""
    minor = int(release.nccl.split(".")[1])
    if minor < 20:
        sent = "" if minor < 18 else " (Send)"
        return (
            f"NET/IB : Got completion from peer {address} with error 12, opcode 0, len 0, "
            f"vendor err 129{sent}"
        )
    if minor < 29:
        begin, hca = ("NET/IB :", "") if minor < 23 else ("NET/IB:", f" hca mlx5_{device}")
        return (
            f"{begin} Got completion from peer {address} with status=12 opcode=0 len=0 "
            f"vendor err 129 (Send){hca}"
        )
    return (
        f"NET/IB: Got completion from peer {address} with status=IBV_WC_RETRY_EXC_ERR(12) "
        f"opcode=IBV_WC_SEND(0) vendor_err=129 hca mlx5_{device}"
    )


def _process(known: Names, rank: Rank, thread: int) -> str:
    host, pid = known.hosts[rank.node].split(".")[0], known.pids[rank.rank]
    return f"{host}:{pid}:{pid + 300 + thread} [{rank.local_rank}]"


def _key(work: Work) -> _Key:
    """The communicator that a work runs on: batches use that of their group."""
    if work.op in ("send", "recv") and work.peers:
        low, high = sorted((work.rank, work.peers[0][1]))
        return (work.group, low, high)
    return (work.group, -1, -1)


def _communicators(outcome: Outcome) -> dict[_Key, _Communicator]:
    """All that any rank called the creation of."""
    called: dict[_Key, dict[int, float]] = {}
    for rank in outcome.ranks:
        for work in rank.works:
            first = _INIT_S if work.seq > 1 else work.created
            called.setdefault(_key(work), {}).setdefault(rank.rank, first)
    found = {}
    everyone = tuple(range(outcome.world))
    for number, (key, times) in enumerate(called.items()):
        group: Group = outcome.groups[key[0]]
        members = group.members if key[1] < 0 else key[1:]
        ready = max(times.values()) + 0.3 if len(times) == len(members) else None
        places = {member: place for place, member in enumerate(members)}
        found[key] = _Communicator(number, members, places, members == everyone, ready)
    return found


def _of_rank(
    outcome: Outcome,
    release: Release,
    known: Names,
    rank: Rank,
    communicators: dict[_Key, _Communicator],
    ids: list[int],
    init: bool,
    calls: bool,
) -> Iterator[Line]:
    prefix = f"{_process(known, rank, 0)} NCCL INFO "
    created: dict[_Key, str] = {}
    counts: dict[_Key, int] = {}
    named = init and any(
        communicators[key].whole and communicators[key].ready is not None
        for key in dict.fromkeys(map(_key, rank.works))
    )
    stream = 0x55D1_0000_0000 + rank.rank * 0x1_0000

    def line(time: float, text: str, shows: Shows, work: Work | None, names_rank: bool) -> Line:
        return Line(
            time,
            rank.rank,
            rank.node,
            prefix + text,
            "stdout",
            shows,
            work=work,
            names_rank=names_rank,
            names_group=work is not None and init,
        )

    for work in rank.works:
        key = _key(work)
        one = communicators[key]
        place = one.places[rank.rank]
        size = len(one.members)
        if key not in created:
            pointer = f"{0x5600_0000_0000 + (rank.rank * 64 + one.number) * 0x3_5000:#x}"
            created[key] = pointer
            # Of earlier calls the numbers are known, which start at 1.
            counts[key] = work.seq - 1
            begin = _INIT_S if work.seq > 1 else work.created
            start, complete = _init_texts(release, pointer, place, size, rank, ids[one.number])
            world = one.whole
            if init and start:
                yield line(begin, start, "noise", None, world)
            if init and one.ready is not None:
                yield line(
                    max(one.ready, begin), complete, "world" if world else "noise", None, world
                )
        if calls and one.ready is not None:
            for text in _call_texts(work, one.places, counts[key], created[key], stream):
                yield line(max(work.created, one.ready), text, "call", work, named)
        counts[key] += 1


def _init_texts(
    release: Release, pointer: str, place: int, size: int, rank: Rank, identity: int
) -> tuple[str, str]:
    """The lines before and after a communicator is created; the first is empty until 2.17."""
    minor, device = int(release.nccl.split(".")[1]), rank.local_rank
    bus = f"{0x7000 + device * 0x8000:x}"
    text = f"comm {pointer} rank {place} nranks {size} cudaDev {device}"
    if minor < 16:
        return "", f"{text} busId {bus} - Init COMPLETE"
    text += f" nvmlDev {device} busId {bus} commId {identity:#018x}"
    if minor >= 21:
        text = f"ncclCommInitRankConfig {text}"
    start = f"[Rank {place}] {text}" if minor >= 29 else text
    return f"{start} - Init START", f"{text} - Init COMPLETE"


def _call_texts(
    work: Work, places: dict[int, int], count: int, pointer: str, stream: int
) -> Iterator[str]:
    """The line of each call of NCCL that makes up a work."""
    size, data = len(places), _TYPES.get(work.dtype, 7)
    buffer = 0x7F10_0000_0000 + work.seq % 64 * 0x200_0000
    end = f"comm {pointer} [nranks={size}] stream {stream:#x}"
    parts: list[tuple[str, int, int]] = []  # name, elements, number of the peer
    if work.peers:
        parts = [(op.capitalize(), work.numel_in, places[peer]) for op, peer in work.peers]
    elif work.op == "all_to_all":
        part = work.numel_in // size
        parts = [(name, part, peer) for peer in range(size) for name in ("Send", "Recv")]
    for name, elements, peer in parts:
        yield (
            f"{name}: opCount {count:x} sendbuff (nil) recvbuff {buffer:#x} count {elements} "
            f"datatype {data} op 0 root {peer} {end}"
        )
    if parts:
        return
    called = _CALLS.get(work.op)
    if called is None:
        return
    elements = work.numel_out if called == "ReduceScatter" else work.numel_in
    elements = 1 if work.op == "barrier" else elements
    yield (
        f"{called}: opCount {count:x} sendbuff {buffer:#x} recvbuff {buffer:#x} count {elements} "
        f"datatype {data} op 0 root 0 {end}"
    )
