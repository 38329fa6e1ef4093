"""Did a failure pass? Only what its own author did afterwards can say so.

A rank that died is silent; that others went on for a moment proves nothing of it (many steps of a
training do, where it signs none of its own). So recovery is: further work of the rank that failed,
its own word that it completed, or a handler that says it goes on. Of a line that names no rank the
author is one of those who write in its source: then every one of them must be seen to go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from diagnose.catalog.entries import COUNTER
from diagnose.infer.events.afterlife import Afterlife
from diagnose.infer.events.counting import (
    FURTHER,
    LONG,
    all_counted_on,
    bar_moved,
    counted_for_long,
    serves_on,
    went_on,
)
from diagnose.timeline.event import Event

# A handler's words belong to an error at most this many lines above them.
_HANDLED_REACH = 40


# How the author of a failing event was seen to go on.
Recovery = Literal[
    "completed", "handled", "answered", "served_on", "everybody_went_on", "counted_on", "worked_on"
]
# The rank that printed a line (None: it names none) and the source.
Author = tuple[int | None, str]


def author(event: Event) -> Author:
    """Who printed the line of an event, as far as that is known."""
    return event.rank, event.source


def survived(life: Afterlife, failing: Sequence[Event]) -> bool:
    """Whether every author of these failing events worked on after its last one."""
    return bool(recoveries(life, failing))


def recoveries(life: Afterlife, failing: Sequence[Event]) -> Mapping[Author, Recovery]:
    """How each author of these failing events recovered from its last one; empty if one did not."""
    if _final(life, failing):
        return {}
    found = [(failure, _recovery(life, failure)) for failure in _last_of_each(failing)]
    how = {author(failure): recovery for failure, recovery in found if recovery is not None}
    return how if len(how) == len(found) else {}


def _final(life: Afterlife, failing: Iterable[Event]) -> bool:
    return any(event.cause in life.final for event in failing)


def left(life: Afterlife, failing: Iterable[Event]) -> list[Event]:
    """Those events, the last of each author, after which it was not seen to go on."""
    return [failure for failure in _last_of_each(failing) if _recovery(life, failure) is None]


def doubtful(life: Afterlife, failing: Sequence[Event]) -> bool:
    """Whether others worked on for long after it, or a run began and worked.

    A death would have stopped other ranks; and a later run need not have failed.
    """
    if _final(life, failing):
        return False
    return _long_after(life, failing) or _began_again(life, failing)


def _began_again(life: Afterlife, failing: Sequence[Event]) -> bool:
    """Whether the first words of a source stand below all of these in it, and work below them."""
    last = max(_last_of_each(failing), key=lambda failure: failure.index)
    again = next((event for event in life.begun if _after(event, last)), None)
    return again is not None and life.busied.after(again)


def lasted(life: Afterlife, failing: Sequence[Event]) -> bool:
    """Whether the job finished after these events, worked on for long, or its server answered."""
    last = max(failing, key=lambda failure: failure.index)
    if any(ends.after(last) for ends in life.ended.values()) or _long_after(life, failing):
        return True
    return _answered(life, last)


def _answered(life: Afterlife, failure: Event) -> bool:
    """Whether a server served requests below this line."""
    work = (w for w in life.progress if w.phase == "inference" and _after(w, failure))
    served = {answer.text for answer in work}
    return len(served) >= FURTHER


def _long_after(life: Afterlife, failing: Sequence[Event]) -> bool:
    last = max(_last_of_each(failing), key=lambda failure: failure.index)
    steps = {work.step for work in life.progress if _after(work, last) and work.step is not None}
    return len(steps) >= LONG


def _last_of_each(failing: Iterable[Event]) -> list[Event]:
    """The last failing event of each rank, and of each source where no rank is named."""
    return list({author(event): event for event in failing}.values())


def _after(work: Event, failure: Event) -> bool:
    """Whether it surely came later: below in the same source, or by the clocks of both."""
    if work.source == failure.source:
        return work.line > failure.line
    return work.time is not None and failure.time is not None and work.index > failure.index


def _recovery(life: Afterlife, failure: Event) -> Recovery | None:
    """How the author of a failing event went on after it; None where it was not seen to."""
    if _completed(life, failure):
        return "completed"
    if _was_handled(life, failure):
        return "handled"
    if failure.role == "effect" and failure.phase == "inference" and _answered(life, failure):
        return "answered"
    own = life.by_rank.get(failure.rank)
    if serves_on([*(own or ()), *life.unnamed.get(failure.source, ())], failure):
        return "served_on"
    if failure.rank is None:
        return "everybody_went_on" if _everybody_went_on(life, failure) else None
    if own is None:
        return "counted_on" if _job_counted_on(life, failure) else None
    return "worked_on" if _went_on(own, failure, ended=_died_after(life, failure)) else None


def _completed(life: Afterlife, failure: Event) -> bool:
    """Its rank said afterwards that the work is complete; of an unsigned line, nobody else did.

    Of an error that is decisive by itself the word is not enough: its author must have worked, too.
    A rank that exited says no more; whoever speaks as it is of another run.
    """
    if failure.kind == "exit" and failure.rank is not None:
        return False
    if failure.rank not in life.ended or not life.ended[failure.rank].after(failure):
        return _job_completed(life, failure)
    if failure.strength != "decisive":
        return True
    if failure.rank is None:
        return life.worked.after(failure)
    return any(_after(work, failure) for work in life.by_rank.get(failure.rank, ()))


def _job_completed(life: Afterlife, failure: Event) -> bool:
    """The job as a whole said so, after further work, of an error that ends no process."""
    if failure.rank is None or None not in life.ended or failure.kind in ("exit", "exception"):
        return False
    said = life.ended[None].after(failure) and life.worked.after(failure)
    return said and failure.strength != "decisive" and not _died_after(life, failure)


def _was_handled(life: Afterlife, failure: Event) -> bool:
    """A handler took it up, and the job went on; on the same line, if only to its next phase."""
    words = [w for w in life.handled.get(failure.source, ()) if w.rank in (None, failure.rank)]
    if life.worked.after(failure):
        return any(0 <= word.line - failure.line <= _HANDLED_REACH for word in words)
    return life.busied.after(failure) and any(word.place == failure.place for word in words)


def _died_after(life: Afterlife, failure: Event) -> bool:
    """Whether its author ended afterwards; of an unsigned line that may be anybody."""
    if failure.rank is None:
        return life.deaths.after(failure)
    who = (None, failure.rank)
    return any(life.died[rank].after(failure) for rank in who if rank in life.died)


def _went_on(works: Iterable[Event], failure: Event, *, ended: bool) -> bool:
    before, after = _split(works, failure)
    return went_on(before, after, ended=ended)


def _everybody_went_on(life: Afterlife, failure: Event) -> bool:
    """Whether all who may have written a line without a rank are seen at work after it."""
    unnamed = life.unnamed.get(failure.source, [])
    before, after = _split(unnamed, failure)
    if not before and not after:
        ended = _died_after(life, failure)
        named = [works for works in life.by_rank.values() if _reaches(works, failure)]
        return bool(named) and all(_went_on(works, failure, ended=ended) for works in named)
    if any(work.step is not None for work in after):
        moved = bar_moved(before, after, failure.line) and not _died_after(life, failure)
        return moved or all_counted_on(before, after)
    # A few answers of a server show that a symptom passed, not that an error did.
    counted = [w for w in after if w.phase != "inference" or failure.role == "effect"]
    return len({w.text for w in counted}) >= FURTHER and not _died_after(life, failure)


def _job_counted_on(life: Afterlife, failure: Event) -> bool:
    """Whether steps that could not be made without a rank, which signs none, were made for long.

    Those that nobody signs are most often of rank 0. Of another rank only those of a training
    prove anything: in an evaluation each one works by itself.
    """
    if failure.kind == "exit" or _died_after(life, failure):
        return False
    unsigned = life.unnamed.get(failure.source, []) if failure.rank == 0 else []
    training = [
        work for work in life.progress if work.phase == "training" and work.signature != COUNTER.id
    ]
    return any(
        counted_for_long(_split(works, failure)[1], failure) for works in (unsigned, training)
    )


def _reaches(works: Iterable[Event], failure: Event) -> bool:
    """Whether this author writes where the failure stands, or its order to it is known."""
    return any(
        work.source == failure.source or (work.time is not None and failure.time is not None)
        for work in works
    )


def _split(works: Iterable[Event], failure: Event) -> tuple[list[Event], list[Event]]:
    before: list[Event] = []
    after: list[Event] = []
    for work in works:
        (after if _after(work, failure) else before).append(work)
    return before, after
