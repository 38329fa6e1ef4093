"""What the log says about the job itself: frameworks, versions, settings, world size, attempts.

The last attempt is diagnosed, of the earlier ones a line is shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog, CauseClass, Signature
from diagnose.stories.passing import Sifted
from diagnose.stories.shutdown import settled
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import RANK_LIMIT, highest_rank, stated_facts
from diagnose.timeline.event import Event, Timeline

_TELLING = ("cause", "effect", "progress", "phase")
_STRONG = ("decisive", "strong")
_LINES = 200  # of a run that went on
MAX_ATTEMPTS = 20  # earlier attempts with a note of their own


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts by name (`framework`, `trainer`, `version.torch`, …), each with its values in order.

    `world_size` is the number of ranks the log claims (None: it does not say), `world_why` the
    sources of that number. `ranks_seen` are the ranks with a line of their own.
    """

    values: dict[str, list[str]] = field(default_factory=dict)
    world_size: int | None = None
    ranks_seen: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)

    def get(self, name: str) -> list[str]:
        """Values of one fact, most frequent first; empty when unknown."""
        return self.values.get(name, [])

    def first(self, name: str) -> str | None:
        """The most frequent value of a fact."""
        return next(iter(self.get(name)), None)

    @property
    def versions(self) -> dict[str, str]:
        """Package versions by package name."""
        prefix = "version."
        return {
            name.removeprefix(prefix): values[0]
            for name, values in sorted(self.values.items())
            if name.startswith(prefix)
        }


def gather(timeline: Timeline, signatures: Mapping[str, Signature]) -> Facts:
    """All facts of a timeline."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for name, value, events in stated_facts(timeline, signatures):
        counted[name][value] += len(events)
    if timeline.pods:  # whoever collected their logs says so
        counted["launcher"]["kubernetes"] += 1
    return Facts(
        values={name: [v for v, _ in counter.most_common(8)] for name, counter in counted.items()},
        world_size=_world_size(timeline, counted.get("world_size", Counter())),
        ranks_seen=timeline.ranks,
        hosts=sorted(set(timeline.column("host")) - {None}),
    )


def _world_size(timeline: Timeline, named: Counter[str]) -> int | None:
    """The largest world size claimed by at least one source; None when there is none.

    Sub-groups claim smaller sizes than the job, so the largest wins; a claim smaller than a rank
    that was seen is wrong.
    """
    sizes = [int(value) for value in named if value.isdigit()]
    claims = {event.fields["world_size"] for event in timeline.capturing("world_size")}
    sizes += [int(value) for value in claims if value.isdigit()]
    for event in timeline.signalling("missing", "joined"):
        highest = (highest_rank(event.fields.get(key)) for key in ("ranks", "missing"))
        sizes += [rank + 1 for rank in highest if rank is not None]
    sizes = [size for size in sizes if 0 < size <= RANK_LIMIT]
    if not sizes:
        return None
    return max([*sizes, timeline.ranks[-1] + 1 if timeline.ranks else 0])


class Attempt(NamedTuple):
    """The attempt that is diagnosed.

    `number` is None where its events cannot be told from those of others, `attempts` counts all.
    `sifted` is what its interpreters printed while they ended.
    """

    timeline: Timeline
    attempts: int = 1
    number: int | None = None
    sifted: Sequence[Sifted] = ()


def last_attempt(timeline: Timeline, classes: Mapping[str, CauseClass]) -> Attempt:
    """The last attempt that left anything but facts, or much of it."""
    numbers = {number for number in timeline.attempts if number is not None}
    if len(numbers) < 2:
        return _cleared(timeline, classes, 1)
    telling = [event.attempt for event in timeline.role(*_TELLING)]
    if not telling:
        return _cleared(timeline, classes, len(numbers))
    known = [number for number in telling if number is not None]
    last = max(numbers)
    if len(known) == len(telling) and not _long(timeline.of_attempt(last)):
        last = max(known)
    return _cleared(timeline.of_attempt(last), classes, len(numbers), last)


def _long(run: Timeline) -> bool:
    """Whether it went on for many lines, though in words that no entry knows."""
    first: dict[str, int] = {}
    return any(event.line - first.setdefault(event.source, event.line) > _LINES for event in run)


def _cleared(
    timeline: Timeline, classes: Mapping[str, CauseClass], attempts: int, number: int | None = None
) -> Attempt:
    """The attempt without what interpreters say while they end."""
    timeline, sifted = settled(timeline, classes)
    return Attempt(timeline, attempts, number, sifted)


def earlier_attempts(timeline: Timeline, catalog: Catalog, attempts: int) -> list[str]:
    """One line per earlier attempt: what it died of, as far as a line says so."""
    ended = ended_by(timeline, attempts)
    notes = []
    for number, event in [*ended.items()][:MAX_ATTEMPTS]:
        entry = entry_of(catalog, event.signature)
        who = "" if event.rank is None else f" ({ranks_phrase([event.rank])})"
        notes.append(
            f"attempt {number} ended with: {entry.title if entry else event.signature}{who}"
        )
    if len(ended) > MAX_ATTEMPTS:
        notes.append(f"and {len(ended) - MAX_ATTEMPTS:,} more attempts ended with a known cause")
    return notes


def ended_by(timeline: Timeline, attempts: int) -> dict[int, Event]:
    """Earlier attempt → the first strong cause that a line of it states, else the first one.

    Where none states a cause, what the attempt printed first of its failure.
    """
    numbers = sorted(number for number in timeline.attempts if number is not None)
    died: dict[int, Event] = {}
    for event in (*timeline.role("cause"), *timeline.role("effect")):
        if event.attempt is None:
            continue
        known = died.setdefault(event.attempt, event)
        if known.strength not in _STRONG and event.strength in _STRONG and event.role == "cause":
            died[event.attempt] = event
    return {number: died[number] for number in numbers[: attempts - 1] if number in died}
