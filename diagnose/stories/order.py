"""What surely came after what, as far as sources and clocks order it."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.timeline.event import Event


def after(later: Event, event: Event, slack: int = 0) -> bool:
    """Whether it surely came later: below in the same source, or by the clocks of both.

    `slack` is by how many ns these are not trusted to agree.
    """
    if later.source == event.source:
        return later.line > event.line
    if later.time is None or event.time is None or later.index <= event.index:
        return False
    return not slack or later.time - event.time > slack


class Latest:
    """The last of some events, given in order: in each source, and by the clock."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._lines: dict[str, int] = {}
        for event in events:
            if event.line > self._lines.get(event.source, -1):
                self._lines[event.source] = event.line
        timed = (event.index for event in reversed(events) if event.time is not None)
        self._index = next(timed, -1)

    def after(self, event: Event) -> bool:
        """Whether one of them surely came later than an event."""
        if self._lines.get(event.source, -1) > event.line:
            return True
        return event.time is not None and self._index > event.index
