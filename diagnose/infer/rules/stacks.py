"""What the places of processes say: ranks that are elsewhere while the others wait.

Where the rank apart is tells what it is busy with, which is the cause that no log line states.
Where dumps of collectives name the culprits too, the two must agree to be surer. What a job is
ended with that was seen to hang, is only its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import Evidence
from diagnose.infer.events.onset import doing
from diagnose.infer.judge.lost import cut_ranks
from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.infer.stacks.classify import Place
from diagnose.infer.stacks.frame_table import KINDS, WHATEVER_FOR, State
from diagnose.infer.stacks.groups import (
    Division,
    PlaceClass,
    by_itself,
    described,
    divide,
    none_ran,
    says,
)
from diagnose.infer.stacks.processes import worked_below
from diagnose.stories.silence import own_way
from diagnose.text.ranks import plural, ranks_phrase
from diagnose.timeline.ends import endings
from diagnose.timeline.event import Timeline

_FRAMES = 6  # innermost ones quoted
_PLACES = 4  # of which the evidence is shown
# What holds a rank up whatever it was about, and what says nothing of one that nobody compares.
_NOWHERE: frozenset[State] = frozenset({"python", "unknown"})
_SILENT: frozenset[State] = frozenset({*_NOWHERE, "lock", "sleep", "exited"})
# The work of one rank, whose phase says more than how it is done.
_OF_A_PHASE = ("checkpoint", "evaluation", "preprocessing")
_HUNG_TASK = "host.kernel.hung-task"


def cause_of(state: State, phase: str | None, catalog: Catalog) -> str:
    """The class of a rank that is in this state, in that phase, while the others wait."""
    cause = next(one.id for one in catalog.classes.values() if state in one.held)
    if state in WHATEVER_FOR or phase not in _OF_A_PHASE:
        return cause
    if phase == "preprocessing" and state not in _SILENT:
        return cause  # which part of the preparation it is
    return catalog.busy_class(phase) or cause


def propose(context: Context) -> Iterator[Hypothesis]:
    """What the places of a job's processes show, seen together with its dumps."""
    if context.stacks:
        yield from _compared(context)
    elif not _crashed(context):
        yield from _lone(context)


def _compared(context: Context) -> Iterator[Hypothesis]:
    by_dumps = context.by_dumps
    held = by_dumps.ranks if by_dumps else ()
    found = placed(context.stacks, context, held)
    if by_dumps is None or by_dumps.kind != "mismatched":
        yield from found
        return
    # That the rank which called something else is somewhere in Python is no other cause.
    vague = {rank for g in context.stacks if g.state in _NOWHERE for rank in g.ranks}
    for one in found:
        if not set(one.ranks) <= vague & set(held):
            yield one


def placed(
    classes: Sequence[PlaceClass], context: Context, held: Collection[int]
) -> list[Hypothesis]:
    """Hypotheses from the places; `held` are the culprits that dumps of collectives name."""
    counted = context.facts.world_size is not None
    division = divide(classes, context.world, counted=counted, named=context.timeline.ranks)
    blamed = set(division.held)
    if held and not blamed & set(held):
        # The dumps know who is waited for; the stacks then say what those ranks do.
        blamed = {r for group in classes if not group.waits for r in group.ranks} & set(held)
    if blamed:
        return [
            _held(group, sorted(blamed & set(group.ranks)), division, context, set(held))
            for group in classes
            if blamed & set(group.ranks)
        ]
    gone = _gone(division, context)
    if gone is not None and not held:
        return [gone]
    if division.alone or any(group.differs for group in classes):
        return [_mismatch(classes, division, context)]
    if not held and (left := _left(classes, context)):
        return [left]
    shown = division.waiting or (classes if _ended(context) or none_ran(classes) else ())
    seen = any(place.running for group in shown for place in group.places)
    return [_unclear(shown, context)] if seen and not held else []


def _held(
    group: PlaceClass, ranks: list[int], division: Division, context: Context, held: set[int]
) -> Hypothesis:
    cause = cause_of(group.state, group.phase, context.catalog)
    kind = KINDS.get(group.state)
    if kind is None:
        kind = "slow" if set(group.moving) & set(ranks) else "stuck_host"
    certain = any(place.certain for place in group.places)
    whose = plural(len(ranks), "its", "their") + (" process" if certain else " stack")
    text = f"{ranks_phrase(ranks)} {plural(len(ranks), 'is', 'are')} {described(group.places[0])}."
    victims = _victims(division)
    text = f"{victims}; {text}" if victims else f"{text[:1].upper()}{text[1:]}"
    found = _of_stacks(cause, text, context, ranks)
    agrees = set(ranks) <= held
    found.tier = Tier.OBSERVED if agrees else Tier.STRONG
    found.grounds = ["outlier", *(["agrees_with_dumps"] if agrees else [])]
    found.ranks, found.kind, found.why = ranks, kind, f"{whose}: {says(group.places[0])}"
    host_of = context.timeline.hosts_of_ranks
    found.hosts = sorted({host_of[rank] for rank in ranks if rank in host_of})
    return found


def _gone(division: Division, context: Context) -> Hypothesis | None:
    """Ranks that are not there while the others wait: that say they finished, or are missed."""
    timeline, classes = context.timeline, context.catalog.classes
    absent = {*division.absent}
    ended = [event for event in endings(timeline) if event.rank in absent]
    ranks = sorted({event.rank for event in ended if event.rank is not None})
    if not ranks and (not division.missed or cut_ranks(timeline, context.world or 0) & absent):
        return None
    cause = cause_of("exited", None, context.catalog)
    if ranks:
        cause = next((one.id for one in classes.values() if "shutdown" in one.ahead), cause)
    names = ranks_phrase(ranks or division.absent)
    what = f"{names} had finished" if ranks else f"there is no stack of {names}"
    found = _of_stacks(cause, f"{_victims(division)}; {what}.", context, [])
    found.rows = [event.index for event in ended[:_PLACES]]
    found.tier = Tier.STRONG if ranks else Tier.CIRCUMSTANTIAL
    found.ranks, found.kind = ranks or [*division.absent], "missing"
    found.why = "all others that have a stack wait" + (", and it had finished" if ranks else "")
    return found


def _left(classes: Sequence[PlaceClass], context: Context) -> Hypothesis | None:
    """The rank that alone wrote something else last than all others, and stands by itself too."""
    way = own_way(context.timeline)
    if way is None or (own := by_itself(classes, way.rank)) is None:
        return None
    summary = (
        f"{ranks_phrase(own.ranks).capitalize()} alone wrote something else last than all others, "
        f"and is alone at {own.site or own.detail}: it took another branch."
    )
    found = _of_stacks(context.catalog.class_shown_by("stack.own_way"), summary, context, own.ranks)
    found.rows = [way.index, *found.rows]
    found.tier, found.ranks, found.kind = Tier.LIKELY, [*own.ranks], "mismatched"
    found.why = "it alone wrote something else last, and is at a place of its own"
    return found


def _unclear(classes: Sequence[PlaceClass], context: Context) -> Hypothesis:
    """Ranks wait, or somebody ended a job of which stacks were taken; none shows why."""
    ranks = [rank for group in classes for rank in group.ranks]
    where = _victims(Division(tuple(group for group in classes if group.waits)))
    if not where and none_ran(classes):
        where = f"{ranks_phrase(sorted(ranks)).capitalize()} did not run at all between two looks"
    elif not where:
        parts = [f"{ranks_phrase(g.ranks)} at {g.site or g.detail}" for g in classes[:_PLACES]]
        where = "; ".join(parts).capitalize()
    return _of_stacks("unknown", f"{where}; no stack shows who holds them up.", context, ranks)


def _ended(context: Context) -> bool:
    """Whether all that went wrong is that somebody ended the job."""
    causes = [event.cause for event in context.failing if event.cause]
    return bool(causes) and all(context.catalog.classes[cause].outside for cause in causes)


def _victims(division: Division) -> str:
    """`Ranks 0-2 wait in all_reduce`: those that wait for other ranks, and where if in one call.

    "" where none is known to wait.
    """
    ranks = [rank for group in division.waiting for rank in group.ranks]
    if not ranks:
        return ""
    wheres = {
        f"in {group.call}" if group.call else f"at {group.site}" for group in division.waiting
    }
    where = wheres.pop() if len(wheres) == 1 else "for other ranks"
    return f"{ranks_phrase(ranks).capitalize()} {plural(len(ranks), 'waits', 'wait')} {where}"


def _mismatch(classes: Sequence[PlaceClass], division: Division, context: Context) -> Hypothesis:
    """All wait, but not in one place.

    Stacks do not tell the group, so nobody is blamed but the one rank that is in another place than
    all others: if it is beyond the loop in which these are, it has run out of work.
    """
    parts = [f"{ranks_phrase(g.ranks)} in {_where(g)}" for g in division.waiting[:_PLACES]]
    ranks = [rank for group in division.waiting if group.differs for rank in group.ranks]
    summary = f"All ranks with a stack wait, but in different collectives: {'; '.join(parts)}."
    cause = cause_of(division.waiting[0].state, None, context.catalog)
    found = _of_stacks(cause, summary, context, ranks)
    found.tier = Tier.CIRCUMSTANTIAL
    if not division.alone:
        return found
    one, *others = sorted(division.waiting, key=lambda group: group.ranks != division.alone)
    found.ranks, found.kind = [*division.alone], "mismatched"
    found.why = "in another collective than all other ranks"
    ahead = _ahead(one, others, context.catalog)
    if ahead is not None:
        found.cause, found.tier = ahead, Tier.OBSERVED
        found.title = context.catalog.classes[ahead].title
        names = ranks_phrase(division.alone).capitalize()
        found.summary = (
            f"{names} had left the training loop for {one.phase} while the other ranks were still "
            "training: fewer batches."
        )
    return found


def _ahead(one: PlaceClass, others: Sequence[PlaceClass], catalog: Catalog) -> str | None:
    """The class of a rank that is through with the work that the others are still at.

    Work of rank 0 alone (evaluation, saving) is a branch, not less work.
    """
    if one.ranks == (0,) or any(group.phase != "training" for group in others):
        return None
    return next((c.id for c in catalog.classes.values() if one.phase in c.ahead), None)


def _where(group: PlaceClass) -> str:
    return f"{group.call or group.detail}" + (f" at {group.site}" if group.site else "")


def _of_stacks(cause: str, summary: str, context: Context, ranks: Collection[int]) -> Hypothesis:
    """A hypothesis on these places.

    Tracebacks show no hang by themselves: ranks are anywhere where a job at work was interrupted.
    Where it had been silent for long they show where it hung.
    """
    silent = context.silence is not None and context.silence.whole
    places = [place for group in context.stacks for place in group.places]
    return Hypothesis(
        cause, Tier.WEAK, context.catalog.classes[cause].title, summary,
        _rows(context.timeline, places, ranks), inferred=True, basis="stack",
        hung=silent or any(place.running for place in [*places, *context.lone]),
    )  # fmt: skip


def _rows(timeline: Timeline, places: Sequence[Place], ranks: Collection[int]) -> list[int]:
    """The events at the places of these ranks."""
    wanted = {(place.stack.source, place.stack.line) for place in places if place.rank in ranks}
    shown = [*timeline.kind("place"), *timeline.kind("frame")] if wanted else []
    # A place stands for the heading of its thread, which is the same line.
    places_of = {event.place: event.index for event in reversed(shown) if event.place in wanted}
    return sorted(places_of.values())[:_PLACES]


def _lone(context: Context) -> Iterator[Hypothesis]:
    """One hypothesis for the first process of unknown rank that is busy, or else that waits.

    A lock, or a process of its own, holds one up where another one is seen to wait for others, and
    whatever it does, the one that does not wait where several do.
    """
    waiting = None
    waits = sum(place.waits for place in context.lone)
    apart = waits > 1 and waits + 1 == len(context.lone)
    silent: frozenset[State] = frozenset() if apart else _NOWHERE if waits else _SILENT
    for place in context.lone:
        if worked_below(place.stack.source, place.stack.line, context.timeline):
            continue
        if place.waits:
            waiting = waiting or place
            continue
        if place.state == "kernel_wait" and context.timeline.by_signature.get(_HUNG_TASK):
            continue  # it says more about a task whose stack says nothing
        cause = cause_of(place.state, place.phase, context.catalog)
        if place.state in silent and cause == cause_of(place.state, None, context.catalog):
            continue
        what = doing(place.phase) if place.state in _NOWHERE and not apart else says(place)
        summary = f"The stack shows a process {what}: {place.detail}."
        yield replace(_of_stacks(cause, summary, context, []), tier=Tier.CIRCUMSTANTIAL)
        return
    if waiting is not None and _ended(context):
        what = described(waiting)
        summary = f"A process was {what} before somebody ended it; nothing shows for whom."
        yield _of_stacks("unknown", summary, context, [])


def _crashed(context: Context) -> bool:
    """A line says that a process died by itself: what hangs then may wait for it."""
    classes = context.catalog.classes
    return any(event.cause and classes[event.cause].is_crash for event in context.failing)


def evidence(classes: Sequence[PlaceClass], blamed: Collection[int]) -> list[Evidence]:
    """One entry per class of ranks, the odd ones first: where it is, with its first frames."""
    found = []
    for group in classes[:_PLACES]:
        place = group.places[0]
        frames = " < ".join(frame.func for frame in place.stack.frames[:_FRAMES])
        what = "Stack" if place.stack.frames else "Process"
        why = f"{what} of the outlier rank" if set(group.ranks) <= set(blamed) else ""
        seen = f"{ranks_phrase(group.ranks)}: {described(place)}"
        text = f"{seen} [{frames}]" if frames else seen
        found.append(Evidence(place.stack.source, place.stack.line, text, why, quoted=False))
    return found
