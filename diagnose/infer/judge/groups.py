"""Which ranks are in which process group, worked out of what single ranks say.

A line tells the name of a group and the number that its rank has there. Groups of a grid take
their ranks at equal distances, so that two members and their numbers give all the others, as far as
the size is known: by a gather, whose output is its input once for each member, else by where the
next group of the same distance begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from diagnose.infer.judge.stall import Wait

WORLD = ("0", "default_pg")  # names of the group of all ranks
_GATHERS, _SCATTERS = ("ALLGATHER", "_ALLGATHER_BASE"), ("REDUCE_SCATTER", "_REDUCE_SCATTER_BASE")
_MOST = 100_000  # members


@dataclass(slots=True)
class Members:
    """The members of a group by their number in it; `size` None where it is not known."""

    places: dict[int, int] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    size: int | None = None

    @property
    def known(self) -> bool:
        """Whether all of its members are known."""
        return self.size is not None and len(self.ranks) >= self.size


def gathered_size(waits: Iterable[Wait]) -> int | None:
    """How many ranks a group has by the sizes of a gather or scatter; None where no call tells."""
    for wait in waits:
        small, large = wait.size_in, wait.size_out
        if wait.op in _SCATTERS:
            small, large = large, small
        elif wait.op not in _GATHERS:
            continue
        if small and large and large % small == 0 and large > small:
            return large // small
    return None


def members_of(waits: Mapping[str, Iterable[Wait]], world: int | None) -> dict[str, Members]:
    """Group → its members, as far as the waits in it tell; `world` ranks are in the job."""
    groups: dict[str, Members] = {}
    for name, own in waits.items():
        group = groups[name] = Members(size=gathered_size(own))
        for wait in own:
            group.ranks.add(wait.rank)
            if wait.place is not None:
                group.places.setdefault(wait.place, wait.rank)
        if name in WORLD and world is not None and world <= _MOST:
            group.size, group.ranks = world, set(range(world))
    _complete([group for name, group in groups.items() if name not in WORLD], world)
    return groups


def _complete(groups: Iterable[Members], world: int | None) -> None:
    """Add the members at equal distances from those that are known."""
    strides: dict[int, list[tuple[Members, int]]] = defaultdict(list)
    for group in groups:
        line = _line(group.places)
        if line is not None:
            strides[line[1]].append((group, line[0]))
    for stride, alike in strides.items():
        size = _common_size(alike, stride, world)
        if size is None:
            continue
        for group, first in alike:
            found = {first + stride * place for place in range(size)}
            if min(found) >= 0 and (world is None or max(found) < world):
                group.size = size
                group.ranks |= found


def _common_size(
    alike: Sequence[tuple[Members, int]], stride: int, world: int | None
) -> int | None:
    """The size of all groups with this distance, which begin where the ones before them end."""
    gathered = {group.size for group, _ in alike} - {None}
    highest = max(max(group.places) for group, _ in alike) + 1
    size = gathered.pop() if len(gathered) == 1 else None
    if size is None:
        blocks = [first // stride for _, first in alike if first >= stride]
        if blocks:
            size = min(blocks)
        elif world is not None and world % stride == 0:
            size = world // stride
    if size is None or not highest <= size <= _MOST:
        return None
    fits = all(first // stride % size == 0 for _, first in alike)
    return size if fits else None


def _line(places: Mapping[int, int]) -> tuple[int, int] | None:
    """The rank at number 0 and the distance of the ranks; None where there is no such line."""
    known = sorted(places.items())
    if len(known) < 2:
        return None
    (place, rank), (other, last) = known[0], known[-1]
    stride, rest = divmod(last - rank, other - place)
    first = rank - stride * place
    if rest or stride < 1 or any(first + stride * at != one for at, one in known):
        return None
    return first, stride
