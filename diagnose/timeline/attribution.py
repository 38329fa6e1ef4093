"""Who wrote a line that names no rank itself: worked out from the other lines of the job.

In this order: host:pid or pid seen with a rank, NCCL's lines about channels, a local rank seen with
one rank in its source, the only rank that a source names, the number of its file or pod, the task
of a launcher that starts one task a rank, the local rank where the whole job is on one node. The
rank inside a process group stands in for the global one only where nothing else names ranks, the
CUDA device only on one node.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter

from diagnose.timeline.captures import rank_of
from diagnose.timeline.event import Event, Learned

_NUMBER, _DIGITS = re.compile(r"(\d+)"), 7

# What gives drafts without a rank the one that each must be of.
Namer = Callable[[Sequence[Event]], Iterable[int | None]]
_PROCESS = ("attempt", "host", "pid")
_NODE = 8  # devices of a node
# Lines between `rank :` and the last line about it in torch elastic's failure table.
_TABLE_REACH = 3
_Key = tuple[Hashable | None, ...]
# Such a namer, where all drafts of a job and those without a rank tell that it can be believed.
_Way = Callable[[Sequence[Event], Sequence[Event]], Namer | None]


def of_numbered_files(found: Sequence[Event], _: Sequence[Event]) -> Namer | None:
    """Files whose names differ in one number are one of each rank, where most ranks have one.

    So are those that a launcher names by task (`--output=train.%t.out`), or a script by rank; that
    of a rank which printed nothing is empty.
    """
    world, ranks_of = _world(found), dict[str, int]()
    for numbers in _series({draft.source for draft in found}) if world > 1 else ():
        ranks = {*numbers.values()}
        if (
            2 * len(ranks) > world > max(ranks)
            and len(ranks) == len(numbers)
            and all(draft.rank in (None, numbers.get(draft.source, draft.rank)) for draft in found)
        ):
            ranks_of = {**numbers, **ranks_of}  # stacks beside logs have numbers of their own
    return (lambda drafts: (ranks_of.get(draft.source) for draft in drafts)) if ranks_of else None


def of_numbered_hosts(found: Sequence[Event], _: Sequence[Event]) -> Namer | None:
    """Pods, or hosts, whose numbers are the ranks that they name: one process runs in each.

    Where several ranks run in each, they name others than its number; so do workers beside a
    master. One name is enough where the job has no room for a second rank in each.
    """
    named = {(draft.host, draft.rank) for draft in found if draft.host is not None}
    world = _world(found)
    for numbers in _series({host for host, _ in named if host is not None}):
        ranks = {(numbers[host], rank) for host, rank in named if host in numbers}
        shown = {(number, rank) for number, rank in ranks if rank is not None}
        last = max(numbers.values())
        enough = len(shown) > 1 or (len(shown) == 1 and 2 * (last + 1) > world > 0)
        alike = enough and all(number == rank for number, rank in shown)
        if alike and (not world or last < world):
            return lambda drafts: (numbers.get(draft.host or "") for draft in drafts)
    return None


def _world(found: Sequence[Event]) -> int:
    return max((rank_of(draft.fields.get("world_size")) or 0 for draft in found), default=0)


def _series(names: Collection[str]) -> Iterable[Mapping[str, int]]:
    """The names that differ in one number only, with that number; for each place of a number."""
    alike: dict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for name in sorted(names):
        parts = _NUMBER.split(name)
        for at in range(1, len(parts), 2):
            alike[(*parts[:at], "", *parts[at + 1 :])][name] = int(parts[at][:_DIGITS])
    return alike.values()


def name_authors(found: Sequence[Event]) -> None:
    """Fill `rank` of the drafts of a job's logs, as far as it can be known, and how it was."""
    _join_tables(found)
    nameless = [draft for draft in found if draft.rank is None]
    for way, learned in _WAYS:
        namer = way(found, nameless) if nameless else None
        if namer is None:
            continue
        left = []
        for draft, rank in zip(nameless, namer(nameless), strict=True):
            if rank is None:
                draft.learned = None
                left.append(draft)
            else:
                draft.rank, draft.learned = rank, learned
        nameless = left


def _join_tables(found: Sequence[Event]) -> None:
    """Give exits the rank printed a line or two above them (torch elastic's failure table).

    In whose file the launcher prints its table means nothing.
    """
    sources = {d.source for d in found if d.meaning.signal == "exit" and _unnamed(d)}
    if not sources:
        return
    rows = [d for d in found if d.meaning.signal in ("exit", "rank_map") and d.source in sources]
    rows.sort(key=attrgetter("source", "line"))
    named: Event | None = None
    for draft in rows:
        if draft.meaning.signal == "rank_map":
            named = draft
        elif named is not None and _unnamed(draft) and _in_table(named, draft):
            draft.rank = rank_of(named.fields.get("rank"))
            draft.learned = Learned.TABLE
            draft.local_rank = named.local_rank


def _unnamed(draft: Event) -> bool:
    return draft.rank is None or draft.learned is Learned.FILE


def _in_table(named: Event, draft: Event) -> bool:
    """Whether an end is told in the entry of the table that names this rank.

    A line that tells of another task (srun's, below a rank's own) is no part of it.
    """
    near = named.source == draft.source and 0 < draft.line - named.line <= _TABLE_REACH
    return near and named.task == draft.task


def _of_the_world(found: Sequence[Event], _: Sequence[Event]) -> Namer | None:
    """NCCL prints the rank inside a communicator: the global one where that is the world."""
    worlds = set(map(attrgetter("mapped_of"), found)) - {None}
    world = max(worlds, default=None)
    if world is None:
        return None
    return lambda drafts: (d.mapped_rank if d.mapped_of == world else None for d in drafts)


def _by_peers(found: Sequence[Event], nameless: Sequence[Event]) -> Namer | None:
    """Name processes by NCCL's lines about channels, which tell the rank in some communicator.

    That is the global one where every process has one number there, no two have the same, and no
    other line says otherwise: ranks of smaller groups repeat.
    """
    if not _have(nameless, "host", "pid"):
        return None
    peers = [draft for draft in found if draft.peer_rank is not None]
    stated = _numbers(peers, *_PROCESS, "peer_rank")
    stated = {process: numbers for process, numbers in stated.items() if None not in process[1:]}
    for process, numbers in _numbers(_named(found), *_PROCESS, "rank").items() if stated else ():
        if process in stated:
            stated[process] |= numbers
    ranks = {process: min(numbers) for process, numbers in stated.items()}
    one_each = all(len(numbers) == 1 for numbers in stated.values())
    if not (ranks and one_each and len(set(ranks.values())) == len(ranks)):
        return None
    return lambda drafts: map(ranks.get, map(attrgetter(*_PROCESS), drafts))


def _numbers(drafts: Iterable[Event], *names: str) -> dict[_Key, set[int]]:
    """The numbers of the last name that drafts, which all have one, have beside the same others."""
    numbers: dict[_Key, set[int]] = defaultdict(set)
    # Each combination once: ten thousand ranks have a tenth as many as they have drafts.
    for *key, number in set(map(attrgetter(*names), drafts)):
        numbers[tuple(key)].add(number)
    return numbers


def _named(found: Sequence[Event]) -> list[Event]:
    return [draft for draft in found if draft.rank is not None]


def _by(*names: str) -> _Way:
    """Drafts alike in these are of one rank, where those that name one agree."""
    key, last = attrgetter(*names), attrgetter(names[-1])

    def way(found: Sequence[Event], nameless: Sequence[Event]) -> Namer | None:
        if not _have(nameless, *names):
            return None
        telling = [draft for draft in _named(found) if last(draft) is not None]
        certain = {
            of: next(iter(ranks))
            for of, ranks in _numbers(telling, *names, "rank").items()
            if len(ranks) == 1 and None not in of
        }
        return (lambda drafts: map(certain.get, map(key, drafts))) if certain else None

    return way


def _have(drafts: Iterable[Event], *names: str) -> bool:
    """Whether a draft has all of these."""
    return any(None not in values for values in map(attrgetter(*names), drafts))


def _of_sources(found: Sequence[Event], _: Sequence[Event]) -> Namer | None:
    """All lines of a source are of the one rank it names, where each source names another."""
    named: dict[str, set[int]] = defaultdict(set)
    for draft in found:
        if draft.rank is not None:
            named[draft.source].add(draft.rank)
    single = {source: next(iter(ranks)) for source, ranks in named.items() if len(ranks) == 1}
    if len(single) > 1 and len(single) == len(named) == len(set(single.values())):
        return lambda drafts: (single.get(draft.source) for draft in drafts)
    return None


def _tasks_are_ranks(found: Sequence[Event]) -> bool:
    """One task a rank: none names another rank, several local ranks, or another host than its rank.

    One that is on several hosts is of several steps, each with tasks of its own.
    """
    host_of: dict[int, str] = {}
    local_ranks: dict[int, set[int]] = defaultdict(set)
    places = _numbers(
        [draft for draft in found if None not in (draft.task, draft.host)],
        *("attempt", "task", "host"),
    )
    if any(len(hosts) > 1 for hosts in places.values()):
        return False
    if any(d.learned is Learned.LINE and d.task not in (None, d.rank) for d in found):
        return False  # a task that starts the ranks of a node, such as torchrun
    for draft in found:
        if draft.rank is not None and draft.host is not None:
            host_of.setdefault(draft.rank, draft.host)
        if draft.task is not None and draft.local_rank is not None:
            local_ranks[draft.task].add(draft.local_rank)
    return all(len(ranks) <= 1 for ranks in local_ranks.values()) and not any(
        host_of.get(draft.task, draft.host) != draft.host
        for draft in found
        if draft.task is not None and draft.host is not None
    )


def _single_node(found: Sequence[Event]) -> bool:
    hosts = {draft.host for draft in found} - {None}
    nodes = {draft.node for draft in found} - {None}
    tasks = set() if _tasks_are_ranks(found) else {draft.task for draft in found} - {None}
    rank = max((draft.rank for draft in found if draft.rank is not None), default=-1)
    local = max((draft.local_rank for draft in found if draft.local_rank is not None), default=rank)
    return max(len(hosts), len(nodes), len(tasks)) <= 1 and rank <= local


def _devices_are_ranks(found: Sequence[Event]) -> bool:
    """One node whose ranks use the devices of their own number, as far as the log tells.

    A process with a device for itself is what every launcher makes of a node; what speaks against
    it is another node, a rank beyond the devices of one, a rank seen on another device, or several
    processes on one device.
    """
    hosts = {draft.host for draft in found} - {None}
    if len(hosts) > 1 or not _single_node(found):
        return False
    ranks = {draft.rank for draft in found} - {None}
    pairs = {
        (draft.rank, draft.device) for draft in found if None not in (draft.rank, draft.device)
    }
    worlds, nodes = _stated(found, "world_size"), _stated(found, "nodes")
    most = max([*worlds, *(rank + 1 for rank in ranks if rank is not None)], default=0)
    shared = max(_processes(found).values(), default=0) > 1  # each sees its own one as number 0
    fits = all(rank == device for rank, device in pairs)
    return most <= _NODE and nodes <= {1} and fits and not shared


def _processes(found: Sequence[Event]) -> Mapping[int, int]:
    """Device → how many processes print as using it."""
    users = {(d.device, d.pid) for d in found if d.device is not None and d.pid is not None}
    return Counter(device for device, _ in users)


def _the_only_one(found: Sequence[Event], nameless: Sequence[Event]) -> Namer | None:
    """The one process of a log is the one rank that it names, where their numbers fit.

    A rank of another node than the first uses a device of a number that repeats on every node.
    """
    processes = {(draft.host, draft.pid) for draft in found if draft.pid is not None}
    devices = {draft.device for draft in found} - {None}
    ranks = {draft.rank for draft in found} - {None}
    unnamed = all(draft.rank is None for draft in found if draft.pid is not None)
    if not (unnamed and len(processes) == len(ranks) == len(devices) == 1):
        return None
    rank, device = ranks.pop(), devices.pop()
    if rank is None or rank % _NODE != device:
        return None
    return lambda drafts: (rank if draft.pid is not None else None for draft in drafts)


def _of_tasks(found: Sequence[Event], _: Sequence[Event]) -> Namer | None:
    return partial(map, attrgetter("task")) if _tasks_are_ranks(found) else None


def _of_one_node(found: Sequence[Event], _: Sequence[Event]) -> Namer | None:
    """Local ranks are ranks, unless the log states more nodes or a world that one cannot hold."""
    several = max(_stated(found, "nodes"), default=1) > 1
    seen = max((draft.local_rank for draft in found if draft.local_rank is not None), default=0)
    large = max(_stated(found, "world_size"), default=1) > max(_NODE, seen + 1)
    known = _single_node(found) and not several and not large
    return partial(map, attrgetter("local_rank")) if known else None


def _stated(found: Sequence[Event], name: str) -> set[int]:
    """What lines tell of the size of the job under this name."""
    return {number for draft in found if (number := rank_of(draft.fields.get(name)))}


def _of_groups(found: Sequence[Event], nameless: Sequence[Event]) -> Namer | None:
    """The rank inside a group, of all that its process prints or that is reported of it.

    Not where it is another than the known rank of a process, or that of two.
    """
    known = {(d.rank, d.group_rank) for d in _named(found) if d.group_rank is not None}
    others = {draft.group_rank for draft in nameless}
    if any(rank != number or number in others for rank, number in known):
        return None
    placed = [draft for draft in found if None not in (draft.group_rank, draft.pid)]
    numbers = _numbers(placed, "attempt", "pid", "group_rank")
    of_process = {pid: min(own) for pid, own in numbers.items() if len(own) == 1}
    if len({*of_process.values()}) < len(numbers):
        of_process = {}  # ranks of several groups, or pids of several hosts
    return lambda drafts: (
        of_process.get((draft.attempt, draft.pid)) if draft.group_rank is None else draft.group_rank
        for draft in drafts
    )


def _of_devices(found: Sequence[Event], _: Sequence[Event]) -> Namer | None:
    return partial(map, attrgetter("device")) if _devices_are_ranks(found) else None


# The surest first; each sees what those before it named.
_WAYS: tuple[tuple[_Way, Learned], ...] = (
    (_of_the_world, Learned.COMMUNICATOR),
    (_by(*_PROCESS), Learned.PROCESS),
    (_by_peers, Learned.PEERS),
    (_by("attempt", "pid"), Learned.PROCESS),
    (_by("source", "local_rank"), Learned.LOCAL_RANK),
    (_of_sources, Learned.SOURCE),
    (of_numbered_files, Learned.FILE),
    (of_numbered_hosts, Learned.HOST),
    (_of_tasks, Learned.TASK),
    (_of_one_node, Learned.NODE),
    (_of_groups, Learned.GROUP),
    (_of_devices, Learned.DEVICE),
    (_the_only_one, Learned.ALONE),
)
