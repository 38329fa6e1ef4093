"""Ranks whose places are alike, which of them are apart from the many, and their events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from diagnose.infer.judge.standing import no_chance
from diagnose.infer.judge.verdict import P2P_OPS
from diagnose.infer.stacks.classify import Place
from diagnose.infer.stacks.frame_table import SAYS, WAITING, State
from diagnose.parse.tracebacks import Frame
from diagnose.text.ranks import fold_ranks
from diagnose.timeline.event import Event, Meaning, Work
from diagnose.timeline.readings import STANDS, document

_FEW = 4  # one in so many ranks is apart from a place that only the many make one of waiting
_DEEP = 2  # calls below where the others are, so that it is no wrapper of what they are in
_SEVERAL = 3  # ranks seen, so that one without a stack is an exception


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


@dataclass(frozen=True, slots=True)
class Division:
    """How the ranks of a job are to each other, by their places.

    `waiting` are the classes that wait for other ranks, `held` the ranks that are held up elsewhere
    while these do. Where all that have a place wait, `alone` is the one rank that waits in another
    than all others, and `absent` are the ranks of which there is none; `missed` says that these are
    one or those of a node, so that it is no chance.
    """

    waiting: tuple[PlaceClass, ...] = ()
    held: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    missed: bool = False


def fold(found: Iterable[Place]) -> list[PlaceClass]:
    """Classes of ranks that stand alike: the smallest first, then by lowest rank."""
    alike: dict[tuple[State, str | None, tuple[str, ...]], list[Place]] = defaultdict(list)
    for place in found:
        alike[place.state, place.call, place.key].append(place)
    classes = [_class(members) for members in alike.values()]
    classes.sort(key=lambda c: (len(c.ranks), c.ranks))
    return _compare(classes)


def divide(
    classes: Sequence[PlaceClass],
    world: int | None = None,
    *,
    counted: bool = False,
    named: Collection[int] = (),
) -> Division:
    """Who is apart from the many; the job has at least `world` ranks, just these if `counted`.

    `named` are ranks that wrote lines.

    A rank that certainly makes no step is, whatever the others do. A rank that gave no stacks
    counts nowhere, and the job whose processes have all ended misses nobody.
    """
    seen = [group for group in classes if group.key or group.state == "exited"]
    if all(group.state == "exited" for group in seen):
        return Division()
    waiting = _waiting(seen)
    if certain := [p.rank for group in seen for p in group.places if p.certain]:
        return Division(tuple(waiting), tuple(sorted(certain)))
    total, many = _count(seen), _count(waiting)
    rest = [group for group in seen if group not in waiting]
    absent = _absent(classes, world)
    if rest:
        met = any(_may_meet(group) for group in waiting)
        few = _count(rest) == 1 or _FEW * _count(rest) <= total
        if 2 * many < total or (2 * many == total and total > 2) or (met and not few):
            return Division(tuple(waiting))
        held = sorted(_held(rest, waiting, certain=bool(absent)))
        if held or not absent:
            return Division(tuple(waiting), tuple(held))
    if absent:
        return Division(tuple(waiting), absent=absent, missed=_missed(absent, total, named))
    alone = _one_alone(waiting) and (counted or total > _SEVERAL)
    return Division(tuple(waiting), alone=waiting[0].ranks if alone else ())


def hang(classes: Sequence[PlaceClass], world: int | None = None) -> bool:
    """Whether these show by themselves that a job hangs.

    Who looked twice while it ran knows whether ranks made steps. Whoever took stacks once saw a
    reason to: then ranks that wait for one that is held up do, but not for one that computes.
    """
    places = [place for group in classes for place in group.places]
    if any(place.certain and place.state != "exited" for place in places):
        return True  # a rank may have ended because it had done its work
    division = divide(classes, world)
    wait = 2 * _count(division.waiting) >= len(places)
    if any(place.still is not None for place in places):
        apart = {*division.held, *division.alone, *_differing(classes)}
        steps = any(place.still is False for place in places if place.rank not in apart)
        seen_still = (wait or bool(apart)) and any(place.still for place in places)
        return none_ran(classes) or (seen_still and not steps)
    if any(place.moving for place in places if place.rank not in division.held):
        return False
    computes = any(p.state == "python" for p in places if p.rank in division.held)
    return wait and not computes


def by_itself(classes: Sequence[PlaceClass], rank: int | None) -> PlaceClass | None:
    """The place of a rank where no other rank is."""
    return next((group for group in classes if group.ranks == (rank,)), None)


def none_ran(classes: Sequence[PlaceClass]) -> bool:
    """Whether the main thread of no rank ran at all between two looks at it."""
    places = [place for group in classes for place in group.places]
    return bool(places) and all(place.still for place in places)


def together(classes: Sequence[PlaceClass], world: int | None = None) -> bool:
    """Whether all ranks were at one line that says neither what it does nor that it waits.

    A step or a pause looks like this as well as a meeting does.
    """
    return len(classes) == 1 and _may_meet(classes[0]) and not _absent(classes, world)


def at_work(classes: Sequence[PlaceClass]) -> bool:
    """Whether every rank made steps between two looks at it."""
    places = [place for group in classes for place in group.places]
    return bool(places) and all(place.still is False for place in places)


def _waiting(seen: Sequence[PlaceClass]) -> list[PlaceClass]:
    """The classes that wait: in a call that says so, or where most of the others are.

    A host that waits for its GPU shows no call below the line of the program (`.item()`), and so
    does a call into a compiled library; where the many are at one line, they meet there. Locks
    count as well where the majority is after one.
    """
    waiting = [group for group in seen if group.waits]
    others = [group for group in seen if not group.waits]
    locked = [group for group in others if group.state == "lock"]
    if 2 * _count(locked) > _count(seen):
        return waiting + locked
    most = max(filter(_may_meet, others), key=lambda group: len(group.ranks), default=None)
    if most is not None and len(most.ranks) > 1 and 2 * len(most.ranks) > _count(others):
        waiting.append(most)
    if waiting or len(others) == 1:
        return waiting
    return [group for group in others if _at_loop(group, others)]


def _at_loop(group: PlaceClass, others: Iterable[PlaceClass]) -> bool:
    """Whether it stands in the very function from which all others have gone elsewhere.

    Deep enough, or into a call that is known, so that they are not below it for the same meeting.
    """
    own = group.places[0].stack.frames[:1]
    return _may_meet(group) and all(
        group is other
        or (depth := _depth_below(own, other)) >= _DEEP
        or (depth > 0 and other.state not in ("unknown", "python"))
        for other in others
    )


def _depth_below(own: Sequence[Frame], other: PlaceClass) -> int:
    """How many frames a rank is below the function of this frame; 0 where it is not below it."""
    where = [(frame.func, frame.file) for frame in own]
    stack = other.places[0].stack.frames
    return next((n for n, f in enumerate(stack) if [(f.func, f.file)] == where), 0)


def _may_meet(group: PlaceClass) -> bool:
    return group.state == "unknown" and bool(group.key)


def _held(rest: Iterable[PlaceClass], waiting: Iterable[PlaceClass], *, certain: bool) -> list[int]:
    """The ranks that are elsewhere than those that wait.

    Ranks whose place is vague may wait for the GPU. They count only where the others are in calls
    that block the host, because then they have not come there: collectives of a backward pass on
    GPUs do not block, a rank may be behind it already. Nor do they where it is `certain` that the
    job has ranks of which nothing is known: the GPU may wait for one of these.
    """
    passing = any(group.state == "cuda_sync" or group.call == "backward" for group in waiting)
    blocking = not certain and not passing
    return [rank for group in rest if blocking or not group.vague for rank in group.ranks]


def _one_alone(waiting: Sequence[PlaceClass]) -> bool:
    """Whether all ranks but one wait in one place, and neither place is that of sends.

    What is between neighbours of a pipeline, and what is behind the wait for a GPU, cannot be
    compared.
    """
    if len(waiting) != 2 or len(waiting[0].ranks) != 1 or len(waiting[1].ranks) < 2:
        return False
    one, many = waiting
    known = one.op is not None and (many.op is not None or _may_meet(many))
    return known and not {one.op, many.op} & P2P_OPS and (one.op, one.site) != (many.op, many.site)


def _absent(classes: Sequence[PlaceClass], world: int | None) -> tuple[int, ...]:
    known = {rank for group in classes for rank in group.ranks}
    size = max(world or 0, max(known, default=-1) + 1)
    return tuple(rank for rank in range(size) if rank not in known)


def _missed(absent: Sequence[int], seen: int, named: Collection[int]) -> bool:
    """Whether these are one rank, or those of a node, as hardly by chance."""
    size, first, total = len(absent), absent[0], seen + len(absent)
    if size == 1:
        return seen >= _SEVERAL - (first in named)
    return first % size == 0 and absent[-1] == first + size - 1 and no_chance(absent, total)


def _differing(classes: Iterable[PlaceClass]) -> set[int]:
    return {rank for group in classes if group.differs for rank in group.ranks}


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
        replace(group, differs=len(leaders) > 1 or (group.op, group.site) != leaders[0])
        for group in classes
    ]


def place_rows(classes: Sequence[PlaceClass]) -> list[Event]:
    """One event per rank whose stack is known."""
    return [_row(place) for group in classes for place in group.places]


def _row(place: Place) -> Event:
    meaning = Meaning(kind="place", severity="info", signal=STANDS, phase=place.phase)
    work = Work(op=place.op)
    stack = place.stack
    draft = document(
        stack.source, stack.line, place.rank, described(place), meaning, work, place.site
    )
    draft.host, draft.pid = stack.host, stack.pid
    return draft


def described(place: Place) -> str:
    """`waiting in a collective (all_reduce) at train.py:141: wait in torch/distributed/…`."""
    call = f" ({place.call})" if place.call else ""
    site = f" at {place.site}" if place.site else ""
    detail = f": {place.detail}" if place.detail else ""
    return f"{says(place)}{call}{site}{detail}"


def says(place: Place) -> str:
    """What its state means, after "the rank is"."""
    if place.state == "unknown" and not place.stack.frames:
        return "without a stack"
    asleep = place.state == "unknown" and place.stack.status == "idle"
    return "asleep in a call that shows no frame" if asleep else SAYS[place.state]
