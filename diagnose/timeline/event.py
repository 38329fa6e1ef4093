"""What happened in a job, as typed events in time order: what the engine works on.

`Timeline` answers the questions of inference by indexes: which events are of one kind, tell one
thing, come from one signature. The same as a DataFrame is made by `timeline.frame`, for whoever
asks; nothing here knows pandas.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

from diagnose.timeline.learned import Learned

Fields = Mapping[str, str]

# Kind, what it tells, role, signature, names of the captures.
_Alike = tuple[str | None, str | None, str | None, str | None, tuple[str, ...]]
_KIND, _TELLS, _ROLE, _SIGNATURE = range(4)


# Neither is changed once it is made. Frozen they would take ten times as long to make, and a job of
# ten thousand ranks has some hundred thousand of them.
@dataclass(slots=True)
class Meaning:
    """What a line says, apart from who printed it and when; see `timeline.columns`."""

    kind: str | None = None
    signature: str | None = None
    role: str | None = None
    severity: str | None = None
    cause: str | None = None
    strength: str | None = None
    tells: str | None = None
    phase: str | None = None
    group: str | None = None
    op: str | None = None
    seq: int | None = None
    size_in: int | None = None
    size_out: int | None = None
    timeout_ms: int | None = None
    elapsed_ms: int | None = None
    step: int | None = None
    fields: Fields = field(default_factory=dict)
    ends_phase: bool = False


@dataclass(slots=True)
class Event(Meaning):
    """One thing that a line, or a document, tells. None is "not known"; see `timeline.columns`.

    `index` is its place in the time order of the whole job. `time` is in nanoseconds since 1970 on
    the job's clock (wall-clock time as its logs print it).
    """

    index: int = 0
    time: int | None = None
    source: str = ""
    line: int = 0
    offset: int = 0
    attempt: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    group_rank: int | None = None
    task: int | None = None
    host: str | None = None
    pid: int | None = None
    text: str = ""
    repeated: int = 1
    learned: Learned | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Source and line."""
        return self.source, self.line


class Timeline:
    """Events in the order of their `index`, which has gaps where only some of a job are in it."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: Sequence[Event] = tuple(events)
        self._asked: dict[tuple[int, tuple[str, ...]], list[Event]] = {}

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

    def only(self, keep: Callable[[Event], bool]) -> Timeline:
        """The timeline of the events for which `keep` holds; this one where it holds for all."""
        kept = [event for event in self.events if keep(event)]
        return self if len(kept) == len(self.events) else Timeline(kept)

    def of_attempt(self, number: int) -> Timeline:
        """The timeline of an attempt, with the events that may be of any; mostly all of it."""
        if self.attempts <= {number, None}:
            return self
        return self.only(lambda event: event.attempt in (number, None))

    def after(self, index: int) -> Sequence[Event]:
        """The events behind this index."""
        return self.events[bisect_left(self.events, index + 1, key=lambda event: event.index) :]

    def kind(self, *kinds: str) -> list[Event]:
        """Events of these kinds, in order."""
        return self._of(_KIND, kinds)

    def telling(self, *tells: str) -> list[Event]:
        """Events that tell one of these, in order."""
        return self._of(_TELLS, tells)

    def role(self, *roles: str) -> list[Event]:
        """Events of these roles, in order."""
        return self._of(_ROLE, roles)

    def capturing(self, *names: str) -> list[Event]:
        """Events whose lines told all of these captures, in order."""
        alike = self._alike.items()
        return _merged([events for (*_, told), events in alike if set(told).issuperset(names)])

    @cached_property
    def by_signature(self) -> Mapping[str, list[Event]]:
        """Signature id → its events, in the order in which the signatures first appear."""
        names = dict.fromkeys(signature for _, _, _, signature, _ in self._alike)
        return {name: self._of(_SIGNATURE, (name,)) for name in names if name is not None}

    @cached_property
    def attempts(self) -> set[int | None]:
        """The attempts that events are of; None is any."""
        return set(map(attrgetter("attempt"), self.events))

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks with an event of their own, sorted."""
        ranks: set[int | None] = set(map(attrgetter("rank"), self.events))
        return sorted(rank for rank in ranks if rank is not None)

    @cached_property
    def hosts_of_ranks(self) -> Mapping[int, str]:
        """The host of every rank whose host is known, as its first event with a host says."""
        found: dict[int, str] = {}
        for event in self.events:
            if event.rank is not None and event.host is not None:
                found.setdefault(event.rank, event.host)
        return found

    def _of(self, what: int, names: tuple[str, ...]) -> list[Event]:
        known = self._asked.get((what, names))
        if known is None:
            parts = [events for alike, events in self._alike.items() if alike[what] in names]
            known = self._asked[what, names] = _merged(parts)
        return known

    @cached_property
    def _alike(self) -> Mapping[_Alike, list[Event]]:
        """Events of one kind, signature and so on together; there are few of these in any job."""
        found: dict[_Alike, list[Event]] = defaultdict(list)
        for event in self.events:
            told = (*event.fields,) if event.fields else ()
            found[event.kind, event.tells, event.role, event.signature, told].append(event)
        return found


def _merged(parts: Sequence[list[Event]]) -> list[Event]:
    """Events that are in order in each of these parts."""
    if len(parts) == 1:
        return parts[0]
    found = [event for part in parts for event in part]
    found.sort(key=attrgetter("index"))
    return found
