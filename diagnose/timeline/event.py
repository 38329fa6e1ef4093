"""What happened in a job, as typed events in time order: what the engine works on.

`Timeline` answers the questions of inference by indexes: which events are of one kind, tell one
thing, come from one signature. The same as a DataFrame is made by `timeline.frame`, for whoever
asks; nothing here knows pandas.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple, TypeVar, cast

from diagnose.parse.stamps import Stamp

Fields = Mapping[str, str]
Item = TypeVar("Item")


class Learned(StrEnum):
    """By what the author of a line, or its subject, was told from the others."""

    LINE = "line"  # its own prefix, or what it says
    TABLE = "table"  # a failure table names the rank a line above
    PROCESS = "process"  # its process named its rank elsewhere
    COMMUNICATOR = "communicator"  # its rank in the communicator of all ranks
    PEERS = "peers"  # NCCL's lines about channels and rings name who printed them
    FILE = "file"  # the name of its file or folder
    HOST = "host"  # the number of its pod or host, which others of these name as their rank
    LOCAL_RANK = "local_rank"  # a local rank seen with one rank in its source
    SOURCE = "source"  # the only rank that its source names
    TASK = "task"  # a launcher that starts one task a rank
    NODE = "node"  # its local rank, as the whole job is on one node
    DEVICE = "device"  # its CUDA device, as the whole job is on one node
    ALONE = "alone"  # the log shows one process and names one rank
    GROUP = "group"  # the rank in its process group, as nothing else names ranks


# Told by circumstances: nothing in the log ties this rank to this process itself.
CIRCUMSTANTIAL = frozenset({Learned.NODE, Learned.DEVICE, Learned.ALONE, Learned.GROUP})


# Not changed once they are made: frozen, tens of thousands would take ten times as long to make.
@dataclass(slots=True, unsafe_hash=True)
class Meaning:
    """What lines of one entry of the catalog, or of one kind, say; see `timeline.frame`.

    `captures` are the names of what was captured. `alike`: the lines of events that share this
    very object differ in their numbers only.
    """

    kind: str | None = None
    signature: str | None = None
    role: str | None = None
    severity: str | None = None
    cause: str | None = None
    strength: str | None = None
    signal: str | None = None
    phase: str | None = None
    ends_phase: bool = False
    captures: tuple[str, ...] = ()
    alike: bool = field(default=False, compare=False, repr=False)


@dataclass(slots=True, unsafe_hash=True)
class Work:
    """The call of a collective, or the progress, of which a line speaks; see `timeline.frame`."""

    group: str | None = None
    op: str | None = None
    seq: int | None = None
    size_in: int | None = None
    size_out: int | None = None
    timeout_ms: int | None = None
    elapsed_ms: int | None = None
    step: int | None = None


_NOTHING = Meaning()
NO_WORK = Work()


def _of(place: str) -> Any:
    return property(attrgetter(place))


class _Content:
    """What an event says, by the names that its `meaning` and its `work` have for it.

    Whoever goes through all events asks these themselves, which takes a fifth of the time.
    """

    __slots__ = ()
    kind: str | None = _of("meaning.kind")
    signature: str | None = _of("meaning.signature")
    role: str | None = _of("meaning.role")
    severity: str | None = _of("meaning.severity")
    cause: str | None = _of("meaning.cause")
    strength: str | None = _of("meaning.strength")
    signal: str | None = _of("meaning.signal")
    phase: str | None = _of("meaning.phase")
    ends_phase: bool = _of("meaning.ends_phase")
    group: str | None = _of("work.group")
    op: str | None = _of("work.op")
    seq: int | None = _of("work.seq")
    size_in: int | None = _of("work.size_in")
    size_out: int | None = _of("work.size_out")
    timeout_ms: int | None = _of("work.timeout_ms")
    elapsed_ms: int | None = _of("work.elapsed_ms")
    step: int | None = _of("work.step")


@dataclass(slots=True)
class Event(_Content):
    """One thing that a line, or a document, tells. None is "not known"; see `timeline.frame`.

    `index` is its place in the time order of the whole job. `time` is in nanoseconds since 1970 on
    the job's clock (wall-clock time as its logs print it). Not changed once it is in a timeline.

    What comes behind the index gives it its time and its rank, and means nothing afterwards:
    `stamp` and `mtime` as in `timeline.clock.Printed`; the number `node` of its source; `device`,
    the CUDA device of the thread that printed it; `mapped_rank` of `mapped_of`, a rank inside of a
    communicator of that size, `peer_rank` one of a communicator of unknown size. `document`: no
    line of a log tells it, but a dump or a stack that knows its own rank. `pod`: its host is the
    name of a pod.
    """

    source: str = ""
    line: int = 0
    offset: int = 0
    text: str = ""
    meaning: Meaning = _NOTHING
    work: Work = NO_WORK
    fields: Fields = field(default_factory=dict)
    attempt: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    group_rank: int | None = None
    task: int | None = None
    host: str | None = None
    pid: int | None = None
    repeated: int = 1
    learned: Learned | None = None
    time: int | None = None
    index: int = 0
    stamp: Stamp | None = field(default=None, repr=False)
    mtime: float | None = field(default=None, repr=False)
    node: int | None = field(default=None, repr=False)
    device: int | None = field(default=None, repr=False)
    mapped_rank: int | None = field(default=None, repr=False)
    mapped_of: int | None = field(default=None, repr=False)
    peer_rank: int | None = field(default=None, repr=False)
    document: bool = field(default=False, repr=False)
    pod: bool = field(default=False, repr=False)

    @property
    def place(self) -> tuple[str, int]:
        """Source and line."""
        return self.source, self.line


# From the one that names a process in the whole job to the one that may hold many.
AuthorKind = Literal["rank", "process", "task", "local_rank", "host", "source"]


class Author(NamedTuple):
    """Who wrote lines.

    `kind` is what it is known by, `name` what tells it from others of the kind: the rank; host and
    pid; source and task of a launcher; host and local rank; the host, pod or container that a
    prefix names; or only the source, in which several processes may write.
    """

    kind: AuthorKind
    name: tuple[str | int | None, ...]

    @property
    def shown(self) -> str:
        """`rank 3`, `worker-4`, `node7 pid 812`, `console.log task 2`, `a.log`: for people."""
        first, *rest = (str(part) for part in self.name if part is not None)
        if self.kind == "rank":
            return f"rank {first}"
        what = {"process": "pid", "task": "task", "local_rank": "local rank"}.get(self.kind)
        return " ".join([first, *([what] if what and rest else []), *rest])

    @property
    def rank(self) -> int | None:
        """The global rank; None where it is not known."""
        number = self.name[0]
        return number if self.kind == "rank" and isinstance(number, int) else None


@lru_cache(1 << 17)
def _rank(number: int) -> Author:
    """The author that is this rank: one object, as it is asked for with every line."""
    return Author("rank", (number,))


def author_of(event: Event) -> Author:
    """The author of an event."""
    if event.rank is not None:
        return _rank(event.rank)
    if event.pid is not None:
        return Author("process", (event.host, event.pid))
    if event.task is not None:
        return Author("task", (event.source, event.task))
    if event.local_rank is not None:
        return Author("local_rank", (event.host or event.source, event.local_rank))
    if event.host is not None:
        return Author("host", (event.host,))
    return Author("source", (event.source,))


class Begin(NamedTuple):
    """Where a run begins in a file, its number, the predicate that shows it, and at which index.

    `of_job`: one begins in all files of the job.
    """

    source: str
    line: int
    attempt: int
    predicate: str
    of_job: bool = False
    shown_at: int = 0


class Timeline:
    """Events in the order of their `index`, which has gaps where only some of a job are in it.

    What goes through all of them asks for columns, and what is asked of some is asked by their
    positions in these: each look at an object costs ten times as much as one into a list.
    `begins` is where runs begin in files that hold several, of a whole job alone. `silent` are logs
    that were read and have no event, mostly empty ones; `pods` are the hosts that are pods. The
    logs that are `truncated` end inside a line or too early: what is not there may be lost.
    """

    def __init__(
        self,
        events: Iterable[Event] = (),
        begins: Sequence[Begin] = (),
        silent: Collection[str] = (),
        pods: Collection[str] = (),
        truncated: Iterable[str] = (),
    ) -> None:
        self.events: Sequence[Event] = tuple(events)
        self.begins = begins
        self.silent, self.pods = frozenset(silent), frozenset(pods)
        self.truncated = frozenset(truncated)
        self._asked: dict[tuple[str, tuple[str, ...]], list[Event]] = {}
        self._columns: dict[str, list[Any]] = {}
        self._made: dict[Callable[[Timeline], Any], Any] = {}

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def at(self, index: int) -> Event:
        """The event of this index. Raises KeyError where it is not in this timeline."""
        position = bisect_left(self.events, index, key=lambda event: event.index)
        if position == len(self.events) or self.events[position].index != index:
            raise KeyError(index)
        return self.events[position]

    def column(self, name: str) -> list[Any]:
        """What all events have in this field, in their order."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = [*map(attrgetter(name), self.events)]
        return found

    def only(self, keep: Callable[[Event], bool]) -> Timeline:
        """The timeline of the events for which `keep` holds; this one where it holds for all."""
        kept = [event for event in self.events if keep(event)]
        changed = len(kept) < len(self.events)
        return self.with_events(kept) if changed else self

    def with_events(self, events: Iterable[Event], begins: Sequence[Begin] = ()) -> Timeline:
        """The timeline of other events of the same logs."""
        return Timeline(events, begins, self.silent, self.pods, self.truncated)

    def of_attempt(self, number: int) -> Timeline:
        """The timeline of an attempt, with the events that may be of any; mostly all of it."""
        whole = self.attempts <= {number, None}
        return self if whole else self.only(lambda event: event.attempt in (number, None))

    def after(self, index: int) -> Sequence[Event]:
        """The events behind this index."""
        return self.events[bisect_left(self.events, index + 1, key=lambda event: event.index) :]

    def once(self, work: Callable[[Timeline], Item]) -> Item:
        """What a function makes of this timeline, worked out at the first call."""
        if work not in self._made:
            self._made[work] = work(self)
        return cast("Item", self._made[work])

    def kind(self, *kinds: str) -> list[Event]:
        """Events of these kinds, in order."""
        return self._of("kind", kinds)

    def signalling(self, *signals: str) -> list[Event]:
        """Events that tell one of these, in order."""
        return self._of("signal", signals)

    def role(self, *roles: str) -> list[Event]:
        """Events of these roles, in order."""
        return self._of("role", roles)

    def capturing(self, *names: str) -> list[Event]:
        """Events whose lines told all of these captures, in order."""
        return self.where(lambda meaning: set(names) <= {*meaning.captures})

    def where(self, holds: Callable[[Meaning], object]) -> list[Event]:
        """Events for whose meaning this holds, in order; it is asked once for each meaning."""
        return self._meaning([meaning for meaning in self.positions if holds(meaning)])

    @cached_property
    def by_signature(self) -> Mapping[str, list[Event]]:
        """Signature id → its events, in the order in which the signatures first appear."""
        return {name: self._of("signature", (name,)) for name in self.of_signatures}

    @cached_property
    def of_signatures(self) -> Mapping[str, list[int]]:
        """Signature id → the positions of its events, in the same order."""
        found: dict[str, list[list[int]]] = defaultdict(list)
        for meaning, own in self.positions.items():
            if meaning.signature is not None:
                found[meaning.signature].append(own)
        return {name: merged(parts) for name, parts in found.items()}

    @cached_property
    def attempts(self) -> set[int | None]:
        """The attempts that events are of; None is any."""
        return set(self.column("attempt"))

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks with an event of their own, sorted."""
        return sorted(set(self.column("rank")) - {None})

    @cached_property
    def hosts_of_ranks(self) -> Mapping[int, str]:
        """The host of every rank whose host is known, as its first event with a host says."""
        found: dict[int, str] = {}
        pairs = zip(self.column("rank"), self.column("host"), strict=True)
        for rank, host in dict.fromkeys(pairs):  # each pair once, by the first of it
            if rank is not None and host is not None:
                found.setdefault(rank, host)
        return found

    def _of(self, what: str, names: tuple[str, ...]) -> list[Event]:
        known = self._asked.get((what, names))
        if known is None:
            alike = [one for name in names for one in self._groups.get((what, name), ())]
            known = self._asked[what, names] = self._meaning(alike)
        return known

    def _meaning(self, alike: Sequence[Meaning]) -> list[Event]:
        """The events that mean one of these, in order."""
        if len(alike) == 1:
            return self.alike[alike[0]]
        return taken(self.events, merged([self.positions[one] for one in alike]))

    @cached_property
    def _groups(self) -> Mapping[tuple[str, str | None], list[Meaning]]:
        """Kinds, what is told, roles and signatures, each with the meanings that have it."""
        found: dict[tuple[str, str | None], list[Meaning]] = defaultdict(list)
        for meaning in self.positions:
            for what in ("kind", "signal", "role", "signature"):
                found[what, getattr(meaning, what)].append(meaning)
        return found

    @cached_property
    def positions(self) -> Mapping[Meaning, list[int]]:
        """The positions of events that mean the same, by the first; few differ in any job.

        Most of them share the object, which is sooner told than that two objects are equal.
        """
        found: dict[Meaning, list[int]] = {}
        known: dict[int, list[int]] = {}
        for position, meaning in enumerate(self.column("meaning")):
            own = known.get(id(meaning))
            if own is None:
                own = known[id(meaning)] = found.setdefault(meaning, [])
            own.append(position)
        return found

    @cached_property
    def alike(self) -> Mapping[Meaning, list[Event]]:
        """Events that mean the same together, by the first of them."""
        return {meaning: taken(self.events, own) for meaning, own in self.positions.items()}


def merged(parts: Sequence[list[int]]) -> list[int]:
    """Positions that are in order in each of these parts."""
    if len(parts) == 1:
        return parts[0]
    return sorted(chain.from_iterable(parts))


def taken(column: Sequence[Item], positions: Sequence[int]) -> list[Item]:
    """What a column has at these positions."""
    if len(positions) < 2:
        return [column[position] for position in positions]
    return [*itemgetter(*positions)(column)]
