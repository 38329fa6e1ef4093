"""Who was killed by the launcher, once one of its processes had ended by itself."""

from __future__ import annotations

import signal
from collections.abc import Callable

from diagnose.timeline.ends import exit_code
from diagnose.timeline.event import Event, Timeline


def by_launcher(timeline: Timeline) -> Callable[[Event], bool]:
    """Whether an event is the end of a process by SIGKILL that its launcher sent.

    That is so after a launcher says that it stops what is left, where a process had ended by itself
    before or the line gives the reason, and of each process that it says it killed.
    """
    stopping, killed = _stopping(timeline), _named(timeline)

    def sent(event: Event) -> bool:
        return exit_code(event.fields) == -signal.SIGKILL and (
            event.line > stopping.get(event.source, event.line) or event.fields.get("pid") in killed
        )

    return sent


def _stopping(timeline: Timeline) -> dict[str, int]:
    """Source → the line from which a launcher kills the rest, because a process ended by itself."""
    ended: dict[str, int] = {}
    for event in timeline.kind("exit"):
        if event.role != "aftermath" and exit_code(event.fields) not in (0, None, -signal.SIGKILL):
            ended[event.source] = min(event.line, ended.get(event.source, event.line))
    lines: dict[str, int] = {}
    for event in timeline.signalling("stopping"):
        if "reason" in event.fields or event.line > ended.get(event.source, event.line):
            lines[event.source] = min(event.line, lines.get(event.source, event.line))
    return lines


def _named(timeline: Timeline) -> set[str]:
    """The processes which a launcher says that it killed, as they did not end when told to."""
    return {
        event.fields["pid"]
        for event in timeline.signalling("teardown")
        if "pid" in event.fields and exit_code(event.fields) == -signal.SIGKILL
    }
