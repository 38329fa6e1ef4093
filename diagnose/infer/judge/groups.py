"""Which ranks are in which process group, worked out of what single ranks say.

A line tells the name of a group and the number that its rank has there. Groups of a grid take
their ranks at equal distances, so that two members and their numbers give all the others, as far as
the size is known: by a gather, whose output is its input once for each member, else by where the
next group of the same distance begins, and because all of them make up the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from diagnose.infer.judge.ops import Op, gathered_size

WORLD = ("0", "default_pg")  # names of the group of all ranks
_MOST = 100_000  # members


@dataclass(slots=True)
class Members:
    """The members of a group by their number in it, and all of them as far as they are known.

    `size` is None where nothing tells it, `certain` whether it can be no other; `desc` the kind of
    the group.
    """

    places: dict[int, int] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    size: int | None = None
    certain: bool = False
    desc: str | None = None

    @property
    def known(self) -> bool:
        """Whether all of its members are known."""
        return self.certain and self.size is not None and len(self.ranks) >= self.size


def members_of(waits: Sequence[Op], world: int | None) -> dict[str, Members]:
    """Group → its members, as far as the waits in it tell; `world` ranks are in the job."""
    groups: dict[str, Members] = {}
    named: dict[str, list[Op]] = defaultdict(list)
    for wait in waits:
        if wait.group is not None:
            named[wait.group].append(wait)
    for name, own in named.items():
        size = gathered_size(wait.kind for wait in own)
        group = groups[name] = Members(size=size, certain=size is not None)
        for wait in own:
            group.ranks.add(wait.rank)
            group.desc = group.desc or wait.desc
            if wait.place is not None:
                group.places.setdefault(wait.place, wait.rank)
        if name in WORLD and world is not None and world <= _MOST:
            group.size, group.certain, group.ranks = world, True, set(range(world))
        elif name in WORLD:
            group.ranks |= {wait.rank for wait in waits}  # whoever waits is of the job
    parallel = [group for name, group in groups.items() if name not in WORLD]
    _complete(parallel, world)
    _complete_by_first(parallel, world)
    return groups


def _complete(groups: Iterable[Members], world: int | None) -> None:
    """Add the members at equal distances from those that are known."""
    strides: dict[tuple[int, str | None], list[tuple[Members, int]]] = defaultdict(list)
    for group in groups:
        line = line_through(group.places)
        if line is not None:
            strides[line[1], group.desc].append((group, line[0]))
    for (stride, _), alike in strides.items():
        size, certain = _common_size(alike, stride, world)
        for group, first in alike if size else ():
            _fill(group, first, stride, size, world, certain)


def _complete_by_first(groups: Iterable[Members], world: int | None) -> None:
    """Add the members of groups of which only the first is known, if these are all of one kind.

    Of a grid the first ranks of its groups at a distance d are 0 to d - 1.
    """
    kinds: dict[str, list[tuple[int, Members]]] = defaultdict(list)
    for group in groups:
        if group.desc and group.size is None and [*group.places] == [0]:
            kinds[group.desc].append((group.places[0], group))
    for alike in kinds.values():
        firsts = sorted(first for first, _ in alike)
        if world is None or firsts != [*range(len(firsts))] or world % len(firsts):
            continue
        for first, group in alike:
            _fill(group, first, len(firsts), world // len(firsts), world, True)


def _fill(
    group: Members, first: int, stride: int, size: int, world: int | None, certain: bool
) -> None:
    found = {first + stride * place for place in range(size)}
    if min(found) >= 0 and (world is None or max(found) < world):
        group.size, group.certain = size, group.certain or certain
        group.ranks |= found


def _common_size(
    alike: Sequence[tuple[Members, int]], stride: int, world: int | None
) -> tuple[int, bool]:
    """The least size that all groups of a kind can have, and whether it is the only one.

    A group begins where the one before it ends, and all together make up the job. 0 for none.
    """
    gathered = {group.size for group, _ in alike if group.certain}
    highest = max(max(group.places) for group, _ in alike) + 1
    blocks = [first // stride for _, first in alike]
    most = min([block for block in blocks if block] or [(world or 0) // stride])
    sizes = [
        size
        for size in (gathered if len(gathered) == 1 else range(highest, min(most, _MOST) + 1))
        if size is not None and size >= highest and all(block % size == 0 for block in blocks)
        if world is None or world % (size * stride) == 0
    ]
    return (sizes[0], len(sizes) == 1) if sizes else (0, False)


def line_through(places: Mapping[int, int]) -> tuple[int, int] | None:
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
