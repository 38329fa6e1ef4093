"""What stack dumps say: ranks that stand elsewhere while the others wait.

The stack of the odd rank out tells what it is busy with, which is the cause that no log line
states. Where dumps of collectives name the culprits too, the two must agree to be surer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import CulpritKind, Evidence
from diagnose.infer.events.watchdogs import fold_ranks
from diagnose.infer.rules.base import Candidate
from diagnose.infer.stacks.classify import SAYS, Place, PlaceClass, odd
from diagnose.infer.stacks.rules import State
from diagnose.timeline.rows import STANDS, document_row

_LEVEL, _SURER = 4.0, 0.75
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
_PHASE_CAUSES = {"checkpoint": "slow.checkpoint", "evaluation": "slow.evaluation"}


def place_rows(classes: Sequence[PlaceClass]) -> list[dict[str, Any]]:
    """One row of the timeline per rank whose stack is known."""
    return [
        document_row(
            place.stack.source,
            place.stack.line,
            place.rank,
            STANDS,
            told(place),
            place.site,
            host=place.stack.host,
            pid=place.stack.pid,
            kind="place",
            phase=place.phase,
            op=place.op,
        )
        for group in classes
        for place in group.places
    ]


def told(place: Place) -> str:
    """`waits in a collective (all_reduce) at train.py:141: wait in torch/distributed/…`."""
    call = f" ({place.call})" if place.call else ""
    site = f" at {place.site}" if place.site else ""
    detail = f": {place.detail}" if place.detail else ""
    return f"{SAYS[place.state]}{call}{site}{detail}"


def placed(
    classes: Sequence[PlaceClass], frame: pd.DataFrame, catalog: Catalog, held: Collection[int]
) -> list[Candidate]:
    """Candidates from the stacks; `held` are the culprits that dumps of collectives name."""
    blamed = odd(classes)
    if held and not set(blamed) & set(held):
        # The dumps know who is waited for; the stacks then say what those ranks do.
        known = {r for group in classes if not group.waits for r in group.ranks}
        blamed = sorted(known & set(held))
    found = []
    if blamed:
        for group in (g for g in classes if set(g.ranks) & set(blamed)):
            ranks = sorted(set(group.ranks) & set(blamed))
            found.append(_candidate(group, ranks, frame, catalog, agree=set(ranks) <= set(held)))
    elif any(group.differs for group in classes):
        found.append(_mismatch(classes, frame, catalog))
    return found


def _candidate(
    group: PlaceClass, ranks: list[int], frame: pd.DataFrame, catalog: Catalog, *, agree: bool
) -> Candidate:
    cause = _CAUSES.get(group.state, "stall.host")
    kind = _KINDS.get(group.state)
    if kind is None:
        cause = _PHASE_CAUSES.get(group.phase or "", cause)
        kind = "slow" if set(group.moving) & set(ranks) else "stuck_host"
    who = fold_ranks(ranks, prefix=True)
    does = told(group.places[0])
    summary = f"The others wait for {who}, whose stack shows that it {does}."
    score = _LEVEL + (_SURER if agree else 0.0)
    return Candidate(
        cause, score, catalog.classes[cause].title, summary, _rows(frame, ranks), ranks=ranks,
        kind=kind, why=f"its stack: it {SAYS[group.state]}", inferred=True,
    )  # fmt: skip


def _mismatch(classes: Sequence[PlaceClass], frame: pd.DataFrame, catalog: Catalog) -> Candidate:
    """All wait, but not in one place. Stacks do not tell the group, so nobody is blamed."""
    waiting = [group for group in classes if group.waits]
    parts = [f"{fold_ranks(list(g.ranks), prefix=True)} in {_where(g)}" for g in waiting[:4]]
    ranks = [rank for group in waiting if group.differs for rank in group.ranks]
    summary = f"All ranks that are seen wait, but in different collectives: {'; '.join(parts)}."
    title = catalog.classes["desync.mismatch"].title
    rows = _rows(frame, ranks)
    return Candidate("desync.mismatch", 3.25, title, summary, rows, inferred=True)


def _where(group: PlaceClass) -> str:
    return f"{group.call or group.detail}" + (f" at {group.site}" if group.site else "")


def _rows(frame: pd.DataFrame, ranks: Collection[int]) -> list[int]:
    rows = frame[(frame["tells"] == STANDS) & frame["rank"].isin(ranks)]
    return [int(row) for row in rows.index[:4]]


def evidence(classes: Sequence[PlaceClass], blamed: Collection[int]) -> list[Evidence]:
    """One entry per class of ranks, the odd ones first: where it stands, with its first frames."""
    found = []
    for group in classes[:4]:
        place = group.places[0]
        frames = " < ".join(frame.func for frame in place.stack.frames[:_FRAMES])
        why = "the stack of the odd one out" if set(group.ranks) & set(blamed) else ""
        text = f"{fold_ranks(list(group.ranks), prefix=True)}: {told(place)} [{frames}]"
        found.append(Evidence(place.stack.source, place.stack.line, text, why))
    return found
