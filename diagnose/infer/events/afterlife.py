"""Who did what, and when last: what questions about the time after a line are answered from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

from diagnose.catalog.schema import CauseClass
from diagnose.timeline.draft import BEGINS
from diagnose.timeline.event import Event, Timeline

_DEATHS = ("timeout", "teardown", "exception")


class _Latest:
    """The last of some events, given in order: in each source, and by the clock."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._lines: dict[str, int] = {}
        for event in events:
            if event.line > self._lines.get(event.source, -1):
                self._lines[event.source] = event.line
        timed = (event.index for event in reversed(events) if event.time is not None)
        self._index = next(timed, -1)

    def after(self, failure: Event) -> bool:
        """Whether one of them surely came later than `failure`."""
        if self._lines.get(failure.source, -1) > failure.line:
            return True
        return failure.time is not None and self._index > failure.index


class Afterlife:
    """Who did what, for questions about the time after a line; of a timeline, as it is asked for.

    `final` are the cause classes after which whatever is printed comes from processes about to end.
    """

    def __init__(self, timeline: Timeline, final: frozenset[str] = frozenset()) -> None:
        self.final = final
        self._timeline = timeline
        self.progress = timeline.kind("progress")

    @cached_property
    def by_rank(self) -> Mapping[int | None, Sequence[Event]]:
        """The progress of each rank; that of none by `unnamed`."""
        signed = [event for event in self.progress if event.rank is not None]
        return _grouped(signed, attrgetter("rank"))

    @cached_property
    def unnamed(self) -> Mapping[str, Sequence[Event]]:
        """The progress of no rank, by source."""
        unsigned = [event for event in self.progress if event.rank is None]
        return _grouped(unsigned, attrgetter("source"))

    @cached_property
    def works(self) -> Mapping[int | None, Sequence[Event]]:
        """Progress and phases of each rank."""
        return _grouped(self._timeline.kind("phase", "progress"), attrgetter("rank"))

    @cached_property
    def begun(self) -> Sequence[Event]:
        """Where the first words of a source stand."""
        return self._timeline.telling(BEGINS)

    @cached_property
    def worked(self) -> _Latest:
        """All progress."""
        return _Latest(self.progress)

    @cached_property
    def busied(self) -> _Latest:
        """All progress and phases."""
        return _Latest(self._timeline.kind("phase", "progress"))

    @cached_property
    def ended(self) -> Mapping[int | None, _Latest]:
        """Words that the work is complete, of each rank; None holds what no rank signed."""
        return _latest_of_ranks(endings(self._timeline))

    @cached_property
    def died(self) -> Mapping[int | None, _Latest]:
        """The deaths of each rank; None holds what no rank signed."""
        return _latest_of_ranks(self._deaths)

    @cached_property
    def deaths(self) -> _Latest:
        """The deaths of all ranks."""
        return _Latest(self._deaths)

    @cached_property
    def _deaths(self) -> Sequence[Event]:
        return self._timeline.where(lambda a: a.kind == "exit" or a.tells in _DEATHS)

    @cached_property
    def handled(self) -> Mapping[str, Sequence[Event]]:
        """The words of handlers, by source."""
        return _grouped(self._timeline.telling("handled"), attrgetter("source"))


def afterlife(timeline: Timeline, classes: Mapping[str, CauseClass]) -> Afterlife:
    """The afterlife by these cause classes."""
    return Afterlife(timeline, frozenset(cause.id for cause in classes.values() if cause.final))


def endings(timeline: Timeline) -> list[Event]:
    """The lines that say that the job, or a rank, finished."""
    said = timeline.where(lambda meaning: meaning.kind == "phase" or meaning.tells == "finished")
    return [event for event in said if is_end(event)]


def is_end(event: Event) -> bool:
    """Whether it says that the job finished."""
    return event.tells == "finished" or (event.kind == "phase" and event.phase == "shutdown")


def _grouped(events: Iterable[Event], key: Callable[[Event], Any]) -> dict[Any, list[Event]]:
    found: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        found[key(event)].append(event)
    return found


def _latest_of_ranks(events: Iterable[Event]) -> dict[int | None, _Latest]:
    return {rank: _Latest(own) for rank, own in _grouped(events, attrgetter("rank")).items()}
