"""Events of the timeline from stack dumps: where each rank's stack is."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.infer.stacks.classify import Place
from diagnose.infer.stacks.frame_table import SAYS
from diagnose.infer.stacks.groups import PlaceClass
from diagnose.timeline.event import Event, Meaning, Work
from diagnose.timeline.readings import STANDS, document


def place_rows(classes: Sequence[PlaceClass]) -> list[Event]:
    """One event per rank whose stack is known."""
    return [_row(place) for group in classes for place in group.places]


def _row(place: Place) -> Event:
    meaning = Meaning(
        kind="place",
        severity="info",
        signal=STANDS,
        phase=place.phase,
    )
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
