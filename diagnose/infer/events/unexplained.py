"""Error lines that no entry of the catalog explains and that no work answered."""

from __future__ import annotations

from diagnose.catalog.entries import is_word
from diagnose.infer.events.afterlife import Afterlife, is_end
from diagnose.infer.events.habits import without_habits, without_warnings
from diagnose.infer.events.recovery import left
from diagnose.infer.events.sifting import Failures, Sieve
from diagnose.timeline.event import Event, Meaning, Timeline


def unexplained(timeline: Timeline, life: Afterlife) -> Failures:
    """Error lines that no other entry knows and whose authors were not seen to go on.

    Those in words of their own (`tells: trouble`), and last lines that a logger wrote at error
    level. What is only of error level passes as soon as anybody works on below it.
    """
    last = [event for event in timeline.kind("edge") if event.severity == "error"]
    words = [event for event in timeline.role("cause") if is_word(event.signature)]
    found = [*timeline.telling("trouble"), *words, *last]
    found.sort(key=lambda event: event.index)
    if not found:
        return Failures([])
    sieve = Sieve()
    lines = {event.line for event in found}
    known = {event.place for event in timeline.where(_explains) if event.line in lines}
    found = sieve.keep("explained", found, [e for e in found if e.place not in known])
    found = sieve.keep("logged_as_warning", found, without_warnings(timeline, found))
    found = sieve.keep("habit", found, without_habits(timeline, found))
    grave = [event for event in found if event.strength == "strong"]
    lasting = {event.index for event in left(life, grave)}
    working = timeline.where(lambda a: a.kind in ("progress", "phase") or a.tells == "finished")
    worked = {e.source: e.line for e in working if e.kind == "progress" or is_end(e)}
    unanswered = [
        event
        for event in found
        if event.index in lasting
        or (event.strength != "strong" and worked.get(event.source, -1) <= event.line)
    ]
    unanswered = sieve.keep("worked_on_below", found, unanswered)
    first: dict[tuple[str, int], Event] = {}
    for event in unanswered:
        first.setdefault(event.place, event)
    return sieve.counting("unexplained", list(first.values()))


def _explains(meaning: Meaning) -> bool:
    """Whether an entry knows what lines are about, apart from that they tell of trouble."""
    named = meaning.signature is not None and meaning.tells != "trouble"
    return named and not (is_word(meaning.signature) and meaning.role == "cause")
