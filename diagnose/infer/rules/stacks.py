"""What stack dumps say: ranks that stand elsewhere while the others wait.

The stack of the odd rank out tells what it is busy with, which is the cause that no log line
states. Where dumps of collectives name the culprits too, the two must agree to be surer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import CulpritKind, Evidence
from diagnose.infer import scoring
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.stacks.frame_table import SAYS, State
from diagnose.infer.stacks.groups import PlaceClass, odd
from diagnose.infer.stacks.rows import told
from diagnose.text.ranks import plural, ranks_phrase
from diagnose.timeline.documents import STANDS
from diagnose.timeline.event import Timeline

_FRAMES = 6  # innermost ones quoted

# The class of a rank that stands so while the others wait; of all other states `stall.host`.
_CAUSES: dict[State, str] = {
    "data_loading": "data.loader", "file_read": "slow.storage", "file_write": "slow.storage",
    "download": "slow.model_load", "preprocessing": "data.preparation",
    "compile": "slow.compile", "evaluation": "slow.evaluation", "device_driver": "hw.gpu",
    "crashing": "crash.native", "exited": "desync.missing_rank",
}  # fmt: skip
_KINDS: dict[State, CulpritKind] = {
    "device_driver": "stuck_device", "crashing": "crashed", "exited": "missing",
}  # fmt: skip
_PHASE_CAUSES = {
    "checkpoint": "slow.checkpoint", "evaluation": "slow.evaluation",
    "preprocessing": "data.preparation",
}  # fmt: skip
# What holds a rank up whatever it was about.
_NOWHERE: frozenset[State] = frozenset({"python", "unknown"})
_IN_ANY_PHASE: frozenset[State] = frozenset({"stopped", "pipe", "kernel_wait"})


def cause_of(state: State, phase: str | None) -> str:
    """The class of a rank that stands so, in that phase, while the others wait."""
    cause = _CAUSES.get(state, "stall.host")
    if state in _KINDS or state in _IN_ANY_PHASE:
        return cause
    if phase == "preprocessing" and cause != "stall.host":
        return cause  # which part of the preparation it is
    return _PHASE_CAUSES.get(phase or "", cause)


def propose(context: Context) -> list[Hypothesis]:
    """What the stacks of a job show, seen together with its dumps."""
    held = context.blocked.ranks if context.blocked else ()
    found = placed(context.stacks, context.timeline, context.catalog, held)
    if context.blocked is None or context.blocked.kind != "mismatched":
        return found
    # That the rank which called something else stands somewhere in Python is no other cause.
    vague = {rank for g in context.stacks if g.state in _NOWHERE for rank in g.ranks}
    known = vague & set(held)
    return [one for one in found if one.cause != "stall.host" or not set(one.ranks) <= known]


def placed(
    classes: Sequence[PlaceClass], timeline: Timeline, catalog: Catalog, held: Collection[int]
) -> list[Hypothesis]:
    """Hypotheses from the stacks; `held` are the culprits that dumps of collectives name."""
    blamed = odd(classes)
    if held and not set(blamed) & set(held):
        # The dumps know who is waited for; the stacks then say what those ranks do.
        known = {r for group in classes if not group.waits for r in group.ranks}
        blamed = sorted(known & set(held))
    found = []
    if blamed:
        for group in (g for g in classes if set(g.ranks) & set(blamed)):
            ranks = sorted(set(group.ranks) & set(blamed))
            found.append(
                _hypothesis(classes, group, ranks, timeline, catalog, agree=set(ranks) <= set(held))
            )
    elif any(group.differs for group in classes):
        found.append(_mismatch(classes, timeline, catalog))
    return found


def _hypothesis(
    classes: Sequence[PlaceClass],
    group: PlaceClass,
    ranks: list[int],
    timeline: Timeline,
    catalog: Catalog,
    *,
    agree: bool,
) -> Hypothesis:
    cause = cause_of(group.state, group.phase)
    kind = _KINDS.get(group.state)
    if kind is None:
        kind = "slow" if set(group.moving) & set(ranks) else "stuck_host"
    certain = any(place.certain for place in group.places)
    whose = plural(len(ranks), "its", "their") + (" process" if certain else " stack")
    does = f"{plural(len(ranks), 'is', 'are')} {told(group.places[0])}"
    said = f"{ranks_phrase(ranks)} {does}."
    victims = _victims(classes)
    summary = f"{victims}; {said}" if victims else f"{said[:1].upper()}{said[1:]}"
    weights = {"outlier": scoring.STACK_OUTLIER}
    if agree:
        weights["agrees_with_dumps"] = scoring.STACK_AGREES
    return Hypothesis(
        cause, sum(weights.values()), catalog.classes[cause].title, summary,
        _rows(timeline, ranks), ranks=ranks, kind=kind, why=f"{whose}: {SAYS[group.state]}",
        inferred=True, basis="stack", weights=weights,
    )  # fmt: skip


def _victims(classes: Sequence[PlaceClass]) -> str:
    """`Ranks 0-2 wait in all_reduce`: those that wait for other ranks, and where if in one call.

    "" where none is known to wait.
    """
    waiting = [group for group in classes if group.waits]
    ranks = [rank for group in waiting for rank in group.ranks]
    if not ranks:
        return ""
    calls = {group.call for group in waiting}
    call = calls.pop() if len(calls) == 1 else None
    where = f"in {call}" if call else "for other ranks"
    return f"{ranks_phrase(ranks).capitalize()} {plural(len(ranks), 'waits', 'wait')} {where}"


def _mismatch(classes: Sequence[PlaceClass], timeline: Timeline, catalog: Catalog) -> Hypothesis:
    """All wait, but not in one place.

    Stacks do not tell the group, so nobody is blamed, but for a few ranks in one place where all
    others are in another and were seen to make no step.
    """
    waiting = [group for group in classes if group.waits]
    parts = [f"{ranks_phrase(g.ranks)} in {_where(g)}" for g in waiting[:4]]
    ranks = [rank for group in waiting if group.differs for rank in group.ranks]
    seen = [place.still for group in classes for place in group.places]
    alone = len(classes) == 2 and 2 * len(ranks) < len(seen) and all(seen)
    summary = f"All ranks with a stack wait, but in different collectives: {'; '.join(parts)}."
    title = catalog.classes["desync.mismatch"].title
    rows = _rows(timeline, ranks)
    found = Hypothesis(
        "desync.mismatch", scoring.STACKS_DIFFER, title, summary, rows, inferred=True, basis="stack"
    )
    if alone:
        found.ranks, found.kind = sorted(ranks), "mismatched"
        found.why = "in another collective than all other ranks"
    return found


def _where(group: PlaceClass) -> str:
    return f"{group.call or group.detail}" + (f" at {group.site}" if group.site else "")


def _rows(timeline: Timeline, ranks: Collection[int]) -> list[int]:
    return [event.index for event in timeline.telling(STANDS) if event.rank in ranks][:4]


def evidence(classes: Sequence[PlaceClass], blamed: Collection[int]) -> list[Evidence]:
    """One entry per class of ranks, the odd ones first: where it stands, with its first frames."""
    found = []
    for group in classes[:4]:
        place = group.places[0]
        frames = " < ".join(frame.func for frame in place.stack.frames[:_FRAMES])
        what = "Stack" if place.stack.frames else "Process"
        why = f"{what} of the outlier rank" if set(group.ranks) & set(blamed) else ""
        text = f"{ranks_phrase(group.ranks)}: {told(place)}" + (f" [{frames}]" if frames else "")
        found.append(Evidence(place.stack.source, place.stack.line, text, why))
    return found
