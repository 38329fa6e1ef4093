"""The attempts of a job: the last one is diagnosed, of the earlier ones a line is told."""

from __future__ import annotations

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog
from diagnose.infer.events.own_end import without_own_end
from diagnose.infer.events.teardown import without_teardown_noise
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Event, Timeline

_TELLING = ("cause", "effect", "progress", "phase")
_STRONG = ("decisive", "strong")
_LINES = 200  # of a run that went on
_TOLD = 20  # earlier attempts with a note of their own


def last_attempt(timeline: Timeline) -> tuple[Timeline, int]:
    """The last attempt that left anything but facts, or much of it, and the number of attempts."""
    numbers = {number for number in timeline.attempts if number is not None}
    if len(numbers) < 2:
        return _cleared(timeline), 1
    telling = [event.attempt for event in timeline.role(*_TELLING)]
    if not telling:
        return _cleared(timeline), len(numbers)
    known = [number for number in telling if number is not None]
    last = max(numbers)
    if len(known) == len(telling) and not _long(timeline.of_attempt(last)):
        last = max(known)
    return _cleared(timeline.of_attempt(last)), len(numbers)


def _long(run: Timeline) -> bool:
    """Whether it went on for many lines, though in words that no entry knows."""
    first: dict[str, int] = {}
    return any(event.line - first.setdefault(event.source, event.line) > _LINES for event in run)


def _cleared(timeline: Timeline) -> Timeline:
    """The timeline without what interpreters say while they end."""
    return without_own_end(without_teardown_noise(timeline))


def earlier_attempts(timeline: Timeline, catalog: Catalog, attempts: int) -> list[str]:
    """One line per earlier attempt: what it died of, as far as a line says so."""
    numbers = sorted(number for number in timeline.attempts if number is not None)
    died: dict[int, Event] = {}
    for event in timeline.role("cause"):
        if event.attempt is None:
            continue
        known = died.setdefault(event.attempt, event)
        if known.strength not in _STRONG and event.strength in _STRONG:
            died[event.attempt] = event
    notes = []
    ended = [number for number in numbers[: attempts - 1] if number in died]
    for number in ended[:_TOLD]:
        event = died[number]
        entry = entry_of(catalog, event.signature)
        who = "" if event.rank is None else f" ({ranks_phrase([event.rank])})"
        notes.append(
            f"attempt {number} ended with: {entry.title if entry else event.signature}{who}"
        )
    if len(ended) > _TOLD:
        notes.append(f"and {len(ended) - _TOLD:,} more attempts ended with a known cause")
    return notes
