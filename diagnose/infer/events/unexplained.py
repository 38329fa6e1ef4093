"""Error lines that no entry of the catalog explains and that no work answered."""

from __future__ import annotations

import re

from diagnose.catalog.entries import is_word
from diagnose.parse.prefix import peel
from diagnose.stories.fold import Stories
from diagnose.stories.passing import fatal_so_far
from diagnose.stories.sifting import Failures, Sieve
from diagnose.timeline.event import Event, Meaning

# A dotted name with what was raised, or a bare one, as no program writes it but below a traceback.
_NAMED = re.compile(
    r"(?:[a-z_]\w*\.)+(?:[A-Z][A-Za-z0-9]*[a-z]\w*)(?:: .*)?$|(?:[A-Z][a-z0-9]+){2,}$"
)
# A frame of a native stack, as a signal handler of the program itself prints it: a debugger, which
# looks at a program that goes on, writes arguments.
_FRAME = re.compile(r"(?:\[\d+\] )?#\d+ +\S.* (?:in|at) \S+(?! *\()[^()]*$")


def unexplained(stories: Stories) -> Failures:
    """Error lines that no other entry knows and whose authors were not seen to go on.

    Those in words of their own (`signal: trouble`), and last lines that a logger wrote at error
    level or that read as the name of an exception. Where nobody knows who writes, what is only of
    error level passes as soon as anybody works on below it.
    """
    timeline = stories.timeline
    edges = timeline.kind("edge")
    last = [e for e in edges if _ends_in_error(e) or _ends_in_stack(e, stories)]
    words = [event for event in timeline.role("cause") if is_word(event.signature)]
    found = [*timeline.signalling("trouble"), *words, *last]
    found.sort(key=lambda event: event.index)
    if not found:
        return Failures([])
    sieve = Sieve()
    lines = {event.line for event in found}
    known = {event.place for event in timeline.where(_explains) if event.line in lines}
    unknown = [e for e in found if e.place not in known or (e.kind == "edge" and _is_named(e))]
    found = sieve.keep("explained", found, unknown)
    answered = {event.place for event in found if not _unanswered(event, stories)}
    found = sieve.keep("worked_on_below", found, [e for e in found if e.place not in answered])
    first: dict[tuple[str, int], Event] = {}
    for event in found:
        first.setdefault(event.place, event)
    return sieve.counting("unexplained", list(first.values()))


def _ends_in_error(edge: Event) -> bool:
    """Whether a first or last line is of error level, or an exception under a name of its own."""
    return edge.severity == "error" or _is_named(edge)


def _ends_in_stack(edge: Event, stories: Stories) -> bool:
    """Whether it is the last line of a program that showed work, and a frame of its stack."""
    if not _FRAME.match(edge.text) or edge.line < stories.deeds.last_lines[edge.source]:
        return False
    return any(work.source == edge.source for work in stories.deeds.progress)


def _is_named(edge: Event) -> bool:
    return _NAMED.match(peel(edge.text).message) is not None


def _unanswered(event: Event, stories: Stories) -> bool:
    """Whether neither its author was seen to go on nor, of a mere line of a console, anybody."""
    if stories.passed(event):
        return False
    if event.strength == "strong" or stories.deeds.author(event).kind != "source":
        return True
    if event.index in stories.deeds.raised.uncaught:
        return True
    return fatal_so_far(event, stories.deeds) or not stories.deeds.answered_below(event)


def _explains(meaning: Meaning) -> bool:
    """Whether an entry knows what lines are about, apart from that they tell of trouble."""
    named = meaning.signature is not None and meaning.signal != "trouble"
    return named and not (is_word(meaning.signature) and meaning.role == "cause")
