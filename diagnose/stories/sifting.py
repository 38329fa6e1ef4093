"""What becomes of events that look like a failure: which ones count, and what absolves the others.

Each decision has the stable name of the predicate that made it, so that a verdict can be explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from diagnose.timeline.event import Event

Fate = Literal["counted", "absolved", "ignored"]


class Sifted(NamedTuple):
    """Events that met the same fate, and the predicate that decided it.

    `ignored` are lines that nobody asks about: weak hints where something stronger counts, the
    clean end of a rank that had crashed.
    """

    fate: Fate
    predicate: str
    events: Sequence[Event]


class Failures(NamedTuple):
    """The events that show a failure, and what became of all that were looked at."""

    counted: list[Event]
    sifted: Sequence[Sifted] = ()


class Sieve:
    """Remembers what each predicate takes out of events that pass one after the other."""

    def __init__(self) -> None:
        self.sifted: list[Sifted] = []

    def keep(self, predicate: str, events: Sequence[Event], kept: list[Event]) -> list[Event]:
        """`kept`; those of `events` that are not among them are absolved by the predicate."""
        if len(kept) < len(events):
            left = {event.index for event in kept}
            self.absolve(predicate, [event for event in events if event.index not in left])
        return kept

    def absolve(self, predicate: str, events: Sequence[Event], fate: Fate = "absolved") -> None:
        """Note that the predicate takes out all of these."""
        if events:
            self.sifted.append(Sifted(fate, predicate, events))

    def counting(self, predicate: str, events: list[Event]) -> Failures:
        """The result where these are left, which count by the predicate."""
        counted = [Sifted("counted", predicate, events)] if events else []
        return Failures(events, [*counted, *self.sifted])
