"""The attempts of a job: the last one is diagnosed, of the earlier ones a line is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog, CauseClass
from diagnose.stories.shutdown import settled
from diagnose.stories.sifting import Sifted
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Event, Timeline

_TELLING = ("cause", "effect", "progress", "phase")
_STRONG = ("decisive", "strong")
_LINES = 200  # of a run that went on
MAX_ATTEMPTS = 20  # earlier attempts with a note of their own


class Attempt(NamedTuple):
    """The attempt that is diagnosed.

    `number` is None where its events cannot be told from those of others, `attempts` counts all.
    `sifted` is what its interpreters printed while they ended.
    """

    timeline: Timeline
    attempts: int = 1
    number: int | None = None
    sifted: Sequence[Sifted] = ()


def last_attempt(timeline: Timeline, classes: Mapping[str, CauseClass]) -> Attempt:
    """The last attempt that left anything but facts, or much of it."""
    numbers = {number for number in timeline.attempts if number is not None}
    if len(numbers) < 2:
        return _cleared(timeline, classes, 1)
    telling = [event.attempt for event in timeline.role(*_TELLING)]
    if not telling:
        return _cleared(timeline, classes, len(numbers))
    known = [number for number in telling if number is not None]
    last = max(numbers)
    if len(known) == len(telling) and not _long(timeline.of_attempt(last)):
        last = max(known)
    return _cleared(timeline.of_attempt(last), classes, len(numbers), last)


def _long(run: Timeline) -> bool:
    """Whether it went on for many lines, though in words that no entry knows."""
    first: dict[str, int] = {}
    return any(event.line - first.setdefault(event.source, event.line) > _LINES for event in run)


def _cleared(
    timeline: Timeline,
    classes: Mapping[str, CauseClass],
    attempts: int,
    number: int | None = None,
) -> Attempt:
    """The attempt without what interpreters say while they end."""
    timeline, sifted = settled(timeline, classes)
    return Attempt(timeline, attempts, number, sifted)


def earlier_attempts(timeline: Timeline, catalog: Catalog, attempts: int) -> list[str]:
    """One line per earlier attempt: what it died of, as far as a line says so."""
    ended = ended_by(timeline, attempts)
    notes = []
    for number, event in [*ended.items()][:MAX_ATTEMPTS]:
        entry = entry_of(catalog, event.signature)
        who = "" if event.rank is None else f" ({ranks_phrase([event.rank])})"
        notes.append(
            f"attempt {number} ended with: {entry.title if entry else event.signature}{who}"
        )
    if len(ended) > MAX_ATTEMPTS:
        notes.append(f"and {len(ended) - MAX_ATTEMPTS:,} more attempts ended with a known cause")
    return notes


def ended_by(timeline: Timeline, attempts: int) -> dict[int, Event]:
    """Earlier attempt → the first strong cause that a line of it states, else the first one.

    Where none states a cause, what the attempt printed first of its failure.
    """
    numbers = sorted(number for number in timeline.attempts if number is not None)
    died: dict[int, Event] = {}
    for event in (*timeline.role("cause"), *timeline.role("effect")):
        if event.attempt is None:
            continue
        known = died.setdefault(event.attempt, event)
        if known.strength not in _STRONG and event.strength in _STRONG and event.role == "cause":
            died[event.attempt] = event
    return {number: died[number] for number in numbers[: attempts - 1] if number in died}
