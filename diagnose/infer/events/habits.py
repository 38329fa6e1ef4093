"""Errors that a job prints again and again and works on: one more of them at its end is no death.

Rollouts whose answers cannot be parsed, files that a loader leaves out: each is caught, logged with
its traceback, and the next step is made. Where it stands below the last step it looks like the
error that ended the job.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter, itemgetter

from diagnose.catalog.entries import COUNTER
from diagnose.parse.prefix import peel
from diagnose.timeline.event import Event, Timeline

_OFTEN = 5  # times before the last progress
_BETWEEN = 2  # stretches of work in which it occurred, each with progress behind it
_FURTHER = 3  # or steps that were counted on since it first occurred (not all lines are kept)
_OPTIONAL = (None, "crash.exception", "env.version")  # what a program can do without
_TRACEBACK = "Traceback (most recent call last)"
_CALM = ("WARNING", "INFO", "DEBUG")  # levels at which nobody reports a death
_NUMBER = re.compile(r"\d+")
_ALIKE = 40  # characters in which messages of one kind agree


def without_habits(timeline: Timeline, events: Sequence[Event]) -> list[Event]:
    """Those of these events that are not of a kind which the job survived again and again."""
    steps = [event for event in timeline.kind("progress") if event.signature != COUNTER.id]
    if len(events) <= _OFTEN or not steps:  # a number that grows is too little for this
        return list(events)
    marks: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for step in steps:
        marks[step.source].append((step.line, step.step))
    for lines in marks.values():
        lines.sort(key=itemgetter(0))
    stretches: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for event in events:
        own = marks[event.source]
        stretch = bisect_left(own, event.line, key=itemgetter(0))
        if stretch < len(own):
            stretches[event.source, *_kind(event)].append(stretch)
    usual = {
        kind
        for kind, told in stretches.items()
        if len(told) >= _OFTEN and _worked_on(marks[kind[0]], told)
    }
    passed = {e.place for e in events if _mild(e) and (e.source, *_kind(e)) in usual}
    return [e for e in events if e.place not in passed or not (_mild(e) or e.kind == "edge")]


def _worked_on(marks: Sequence[tuple[int, int | None]], stretches: Sequence[int]) -> bool:
    """Whether an error that occurred in these stretches did not keep the job from its steps."""
    if len(set(stretches)) >= _BETWEEN:
        return True
    first, last = marks[max(stretches[0] - 1, 0)][1], marks[-1][1]
    return first is not None and last is not None and last - first >= _FURTHER


def without_warnings(timeline: Timeline, events: Sequence[Event]) -> list[Event]:
    """Those that are no exception which its author logged as less than an error, and went on."""
    raised = [event for event in events if _as_warning(event)]
    if not raised:
        return list(events)
    works = timeline.kind("progress", "phase")
    last = {work.source: work.line for work in sorted(works, key=attrgetter("line"))}
    calm = {event.index for event in raised if last.get(event.source, -1) > event.line}
    return [event for event in events if event.index not in calm]


def _as_warning(event: Event) -> bool:
    raised = event.kind == "exception" or (event.tells == "trouble" and _TRACEBACK in event.text)
    optional = event.cause in _OPTIONAL and event.strength != "decisive"
    return raised and optional and peel(event.text).level in _CALM


def _mild(event: Event) -> bool:
    """Whether it may be caught: an exception of no known cause, an error line, a traceback."""
    if event.kind == "exit" or event.strength == "decisive":
        return False
    return event.strength == "weak" or event.tells == "trouble"


def _kind(event: Event) -> tuple[str, str]:
    """What such lines have in common: the entry, and how the message begins."""
    return event.signature or "", _NUMBER.sub("0", peel(event.text).message.strip())[:_ALIKE]
