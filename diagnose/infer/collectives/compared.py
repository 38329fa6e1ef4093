"""What the counts of a rank's communicators show beside those of others.

Not all calls are counted: no sends, receives and all-to-all. A rank that waits in one of these
lacks calls elsewhere, like the rank that it waits for; but that one lacks more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from diagnose.infer.collectives.communicators import Communicator
from diagnose.parse.comm_rank import CommRank

_PAIR = 2  # ranks of which nobody knows which is odd

# By rank, and by the size of its communicators, a number for each of these.
Numbers = Mapping[int, Mapping[int, list[int]]]


@dataclass(frozen=True, slots=True)
class CountedWait:
    """A rank waits in a call of a group that no source names; `only`: nobody else waits."""

    rank: int
    name: str
    desc: str
    members: tuple[int, ...]
    seq: int
    source: str
    line: int
    only: bool = False


def compared(
    comms: Sequence[Communicator], dead: Collection[int], *, at_once: bool
) -> list[CountedWait] | None:
    """Who waits by the counts of different communicators; `dead` are ranks that ended.

    A rank that alone has made a call more than all others, while these are equal, made it by
    itself: if they were counted `at_once`, as a log may end anywhere. Of the ranks that lack calls
    those wait for a rank that is dead, or else for one that lacks more than they do. None where it
    is one of several that lack as much as each other, and nothing shows which.
    """
    made: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    lacking: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    entry_of: dict[int, CommRank] = {}
    for comm in comms:
        counts = {place: o.launched for place, o in comm.seen.items() if o.launched is not None}
        for place in counts.keys() & comm.ranks.keys():
            rank = comm.ranks[place]
            made[rank][comm.size].append(counts[place])
            lacking[rank][comm.size].append(max(counts.values()) - counts[place])
            entry_of.setdefault(rank, comm.seen[place])
    alone = _ahead_alone(made) if at_once and not dead else None
    if alone is not None:
        rank, size, seq = alone
        one = entry_of[rank]
        return [
            CountedWait(
                rank, "by their counts", f"communicators of {size} ranks", tuple(sorted(made)), seq,
                one.source, one.line, only=True,
            )
        ]  # fmt: skip
    lagging = sorted(rank for rank, sizes in lacking.items() if any(map(any, sizes.values())))
    last = [
        rank
        for rank in lagging
        if not any(_lacks_more(lacking[other], lacking[rank]) for other in lagging)
    ]
    ends = sorted(dead) or (last if len(last) == 1 else [])
    if not ends and at_once and _tied(lacking, last):
        return None
    names = ", ".join(map(str, ends))
    return [
        CountedWait(
            rank, f"{rank} and {names}", "calls that are not counted",
            tuple(sorted((rank, *ends))), 1, entry_of[rank].source, entry_of[rank].line,
        )
        for rank in (lagging if ends else ())
        if rank not in ends
    ]  # fmt: skip


def _ahead_alone(made: Numbers) -> tuple[int, int, int] | None:
    """The one rank that has made more calls than all others, of what size, and how many."""
    if len(made) <= _PAIR:
        return None
    found = []
    for size in sorted({size for sizes in made.values() for size in sizes}):
        counts = [sorted(sizes[size]) for sizes in made.values() if size in sizes]
        if len(counts) < len(made) or len({*map(len, counts)}) > 1:
            continue
        for column in zip(*counts, strict=True):
            most = max(column)
            if column.count(most) == 1 and len({*column}) == 2:
                found.append(([*made][column.index(most)], size, most))
    return found[0] if len({rank for rank, _, _ in found}) == 1 else None


def _lacks_more(own: Mapping[int, list[int]], other: Mapping[int, list[int]]) -> bool:
    """Whether a rank lacks more calls in communicators of some size, and less in none.

    In a communicator of which nothing is told of a rank it lacks none.
    """
    pairs = [
        pair
        for size in own.keys() | other.keys()
        for pair in zip_longest(
            sorted(own.get(size, ()), reverse=True), sorted(other.get(size, ()), reverse=True),
            fillvalue=0,
        )
    ]  # fmt: skip
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _tied(lacking: Numbers, last: Collection[int]) -> bool:
    """Whether the ranks that lack most calls are a few, and all lack as many.

    Then one of them may wait for another, in calls that nobody counts.
    """
    alike = {tuple(sorted((n, tuple(v)) for n, v in lacking[rank].items())) for rank in last}
    return len(last) > 1 == len(alike) and 2 * len(last) < len(lacking)
