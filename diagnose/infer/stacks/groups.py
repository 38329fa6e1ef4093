"""Ranks whose stacks are alike, and which of them stand apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from diagnose.infer.judge.stall import P2P_OPS
from diagnose.infer.stacks.classify import Place
from diagnose.infer.stacks.frame_table import WAITING, State
from diagnose.text.ranks import fold_ranks


@dataclass(frozen=True, slots=True)
class PlaceClass:
    """Ranks that stand at one place; fields as in `Place`, of the lowest rank.

    `moving` are those of its ranks that moved between dumps. `differs`: all ranks wait in
    collectives, and these in another one than most (all of them, on a tie).
    """

    ranks: tuple[int, ...]
    label: str
    state: State
    detail: str
    site: str | None
    phase: str | None
    call: str | None
    op: str | None
    key: tuple[str, ...]
    vague: bool
    moving: tuple[int, ...]
    differs: bool
    places: tuple[Place, ...]

    @property
    def waits(self) -> bool:
        """Do its ranks wait for other ranks?"""
        return self.state in WAITING


def fold(found: Iterable[Place]) -> list[PlaceClass]:
    """Classes of ranks that stand alike: the smallest first, then by lowest rank."""
    alike: dict[tuple[State, str | None, tuple[str, ...]], list[Place]] = defaultdict(list)
    for place in found:
        alike[place.state, place.call, place.key].append(place)
    classes = [_class(members) for members in alike.values()]
    classes.sort(key=lambda c: (len(c.ranks), c.ranks))
    return _compare(classes)


def odd(classes: Sequence[PlaceClass]) -> list[int]:
    """The ranks that do not wait for others while more than half of all do; else none.

    A rank that certainly makes no step is one whatever the others do.

    Ranks whose place is vague may wait for the GPU. They count as odd only where the majority
    stands in calls that block the host, because then they have not come there. Locks count as
    waiting when the majority is after one. A rank that gave no stacks counts nowhere.
    """
    seen = [group for group in classes if group.key or group.state == "exited"]
    if all(group.state == "exited" for group in seen):
        return []  # the job ended while it was looked at
    certain = [p.rank for group in seen for p in group.places if p.certain]
    if certain:
        return sorted(certain)
    waiting = [group for group in seen if group.waits]
    locked = [group for group in seen if group.state == "lock"]
    if 2 * _count(locked) > _count(seen):
        waiting += locked
    if 2 * _count(waiting) <= _count(seen):
        return []
    # Collectives of a backward pass on GPUs do not block: a rank may be behind it already.
    blocking = all(group.state != "cuda_sync" and group.call != "backward" for group in waiting)
    return sorted(
        rank
        for group in seen
        if group not in waiting and (blocking or not group.vague)
        for rank in group.ranks
    )


def hang(classes: Sequence[PlaceClass]) -> bool:
    """Whether these show by themselves that a job hangs: it was looked at twice while it ran.

    At any moment of a healthy job some ranks wait for another; but they move on.
    """
    places = [place for group in classes for place in group.places]
    if any(place.certain and place.state != "exited" for place in places):
        return True  # a rank may have ended because it had done its work
    apart = set(odd(classes)) | {rank for g in classes if g.differs for rank in g.ranks}
    return (
        bool(apart)
        and any(place.still for place in places)
        and not any(place.still is False for place in places if place.rank not in apart)
    )


def at_work(classes: Sequence[PlaceClass]) -> bool:
    """Whether every rank made steps between two looks at it."""
    places = [place for group in classes for place in group.places]
    return bool(places) and all(place.still is False for place in places)


def _count(classes: Iterable[PlaceClass]) -> int:
    return sum(len(group.ranks) for group in classes)


def _class(members: list[Place]) -> PlaceClass:
    members.sort(key=lambda place: place.rank)
    ranks, first = tuple(place.rank for place in members), members[0]
    return PlaceClass(
        ranks, fold_ranks(ranks), first.state, first.detail, first.site, first.phase,
        first.call, first.op, first.key, any(place.vague for place in members),
        tuple(place.rank for place in members if place.moving), False, tuple(members),
    )  # fmt: skip


def _compare(classes: list[PlaceClass]) -> list[PlaceClass]:
    """Mark the classes that wait in another collective than most.

    Only where every rank is in a collective that can be compared: behind a rank that is stuck
    elsewhere, its neighbours of other groups wait in other collectives and are all victims.
    """
    votes: Counter[tuple[str | None, str | None]] = Counter()
    if any(group.op is None or group.op in P2P_OPS for group in classes):
        return classes
    for group in classes:
        votes[group.op, group.site] += len(group.ranks)
    most = max(votes.values(), default=0)
    leaders = [collective for collective, count in votes.items() if count == most]
    return [
        replace(
            group,
            differs=len(leaders) > 1 or (group.op, group.site) != leaders[0],
        )
        for group in classes
    ]
