"""What the log says about the job itself: frameworks, versions, settings, world size, hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from diagnose.catalog.schema import Signature
from diagnose.timeline.captures import RANK_LIMIT, highest_rank
from diagnose.timeline.event import Timeline
from diagnose.timeline.facts import stated_facts


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
