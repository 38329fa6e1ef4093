"""Errors that a job prints again and again and works on: one more of them at its end is no death.

Rollouts whose answers cannot be parsed, files that a loader leaves out: each is caught, logged with
its traceback, and the next step is made. Where it stands below the last step it looks like the
error that ended the job.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from operator import itemgetter

from diagnose.catalog.entries import COUNTER
from diagnose.parse.prefix import peel
from diagnose.timeline.event import Event, Timeline

_OFTEN = 5  # times before the last progress
_BETWEEN = 2  # stretches of work in which it occurred, each with progress behind it
_FURTHER = 3  # or steps that were counted on since it first occurred (not all lines are kept)
_NUMBER = re.compile(r"\d+")
_ALIKE = 40  # characters in which messages of one kind agree

Kind = tuple[str, str, str]  # source, entry, how the message begins


def habits(timeline: Timeline) -> Collection[Kind]:
    """The kinds of errors, of those that may be caught, which the job survived regularly."""
    steps = [event for event in timeline.kind("progress") if event.signature != COUNTER.id]
    mild = timeline.where(lambda one: one.strength == "weak" or one.signal == "trouble")
    errors = [event for event in mild if _mild(event) and event.role != "progress"]
    often = Counter((event.source, event.signature) for event in errors)
    errors = [event for event in errors if often[event.source, event.signature] > _OFTEN]
    if not steps or not errors:  # a number that grows is too little for this
        return ()
    marks: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for step in steps:
        marks[step.source].append((step.line, step.step))
    for lines in marks.values():
        lines.sort(key=itemgetter(0))
    stretches: dict[Kind, list[int]] = defaultdict(list)
    for event in errors:
        own = marks[event.source]
        stretch = bisect_left(own, event.line, key=itemgetter(0))
        if stretch < len(own):
            stretches[_kind(event)].append(stretch)
    return {
        kind
        for kind, found in stretches.items()
        if len(found) >= _OFTEN and _worked_on(marks[kind[0]], found)
    }


def _worked_on(marks: Sequence[tuple[int, int | None]], stretches: Sequence[int]) -> bool:
    """Whether an error that occurred in these stretches did not keep the job from its steps."""
    if len(set(stretches)) >= _BETWEEN:
        return True
    first, last = marks[max(stretches[0] - 1, 0)][1], marks[-1][1]
    return first is not None and last is not None and last - first >= _FURTHER


def _mild(event: Event) -> bool:
    """Whether it may be caught: an exception of no known cause, an error line, a traceback."""
    if event.kind == "exit" or event.strength == "decisive":
        return False
    return event.strength == "weak" or event.signal == "trouble"


def kind_of(event: Event) -> Kind | None:
    """What such lines have in common; None for an error that may not be caught."""
    return _kind(event) if _mild(event) else None


def _kind(event: Event) -> Kind:
    message = peel(event.text).message.strip()
    return event.source, event.signature or "", _NUMBER.sub("0", message)[:_ALIKE]
